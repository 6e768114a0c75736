"""``python -m tests.drill resume --cuts N [--json]``: run the drill, print its verdict; exit code 1 if anything is wrong.

Before: the command line. After: ``world``, ``readers``, ``verdict``.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import anthropic
import httpx
import openai

from edge.sse import SseDecoder
from tests.drill.readers import all_of
from tests.drill.verdict import Replayed, Verdict, compare, said_by
from tests.drill.world import complaints, running
from tests.support.processes import HEADERS

AT_ONCE = (3, 6)
"""Streams of each kind of client at the same time, for few cuts and for many: mostly they wait for an edge that is away."""
MANY_CUTS = 1_000
STREAM_WITHIN_S = 300
"""On a machine with much else to do an edge takes half a minute to come back; a client that sticks does so for ever."""
REPLAY_WITHIN_S = 60
REFUSALS = (429, 500, 502, 503, 504)
"""What a call may be answered where nothing was said yet, while edges die and freeze; anything else is a finding.

500 is ``edge_lost``; that of a bug is beside a traceback, which is found in the edge's log.
"""


class Drill:
    """What was seen so far."""

    def __init__(self, world, cuts, tell):
        self.world = world
        self.asked = self.wanted = cuts
        self.tell = tell
        self.total = Verdict()
        self.streams = Counter()
        self.refused = Counter()
        self.wrong = []
        self.unended = []
        self._told = 0

    async def one_kind(self, name, read):
        """Let one kind of client read stream after stream, until enough was cut."""
        while self.world.cuts < self.wanted:
            try:
                async with asyncio.timeout(STREAM_WITHIN_S):
                    seen = await read()
            except (openai.APIStatusError, anthropic.APIStatusError) as error:
                self._refused(name, error.status_code)
                continue
            except Exception as error:  # noqa: BLE001 - whatever a client raises is this drill's finding
                self.unended.append(f"{name}: {error!r} {self.world.stuck()}")
                continue
            if seen.refused is not None:
                self._refused(name, seen.refused)
                continue
            self.streams[name] += 1
            if seen.unended is not None or seen.generation_id is None:
                self.unended.append(f"{name} {seen.generation_id}: {seen.unended or 'no generation'}")
                continue
            try:
                async with asyncio.timeout(REPLAY_WITHIN_S):
                    await self._judge(seen)
            except TimeoutError:
                self.unended.append(f"{name} {seen.generation_id}: is not replayed")
            self.world.cutting = self.world.cuts < self.wanted
            if self.world.cuts - self._told >= self.wanted // 20:
                self._told = self.world.cuts
                self.tell(f"{self._told} cuts (wanted: {self.wanted}), {sum(self.streams.values())} streams")

    def enough(self):
        """Cut no more (SIGTERM): what is being read is read to its end, and what was seen is said."""
        self.wanted = self.world.cuts
        self.world.cutting = False

    def _refused(self, name, status):
        """Nothing began, and that was said."""
        self.refused[f"{name}: {status}"] += 1
        if status not in REFUSALS:
            self.unended.append(f"{name}: refused with {status}")

    async def _judge(self, seen):
        replayed = await replay(self.world, seen.generation_id, seen.dialect)
        if seen.arguments is None:
            seen.arguments = replayed.arguments
        verdict = compare(seen, replayed)
        self.total.lost += verdict.lost
        self.total.repeated += verdict.repeated
        self.total.reordered += verdict.reordered
        if verdict:
            self.wrong.append(f"{seen.client} {seen.generation_id}: {verdict}")

    def summary(self, skipped, seconds):
        """Give everything that was found."""
        return {
            "drill": "resume",
            "ok": not (self.total or self.unended) and self.world.cuts >= self.asked,
            "cuts": self.world.cuts,
            "lost": self.total.lost,
            "repeated": self.total.repeated,
            "reordered": self.total.reordered,
            "streams": dict(sorted(self.streams.items())),
            "kills": self.world.kills,
            "freezes": self.world.freezes,
            "refused": dict(sorted(self.refused.items())),
            "provider_calls": len(self.world.provider.requests),
            "wrong": self.wrong[:20],
            "unended": self.unended[:20],
            "skipped": skipped,
            "edges": self.world.watched(),
            "seconds": round(seconds, 1),
        }


async def replay(world, generation_id, dialect):
    """Give the stream as it is replayed without a cut, by whichever edge answers."""
    while True:
        for edge in world.edges:
            with contextlib.suppress(httpx.TransportError):
                async with httpx.AsyncClient(headers=HEADERS, timeout=10) as client:
                    base = f"{edge.url}/v1/generations/{generation_id}/events"
                    answer = await client.get(base, params={"dialect": dialect})
                    native = await client.get(base)
                if answer.status_code == native.status_code == httpx.codes.OK:
                    shown, said = _events(answer.content), _events(native.content)
                    text, arguments = said_by([event.data for event in said])
                    return Replayed(
                        [int(event.id.partition("-")[0]) for event in shown],
                        [event.data for event in shown],
                        text,
                        arguments,
                    )
        await asyncio.sleep(0.1)  # both edges are away: asked again at this pace


def _events(body):
    return [event for event in SseDecoder(1 << 20).feed(body) if event.id is not None]


async def resume(cuts, seed, tell):
    """Run the drill; its summary."""
    with tempfile.TemporaryDirectory(prefix="tokentrail-drill-") as folder:
        async with running(Path(folder), seed) as world, all_of(world) as (kinds, skipped):
            drill, began = Drill(world, cuts, tell), time.monotonic()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drill.enough)
            beside = [asyncio.create_task(work) for work in (world.chaos(), world.watch())]
            try:
                at_once = AT_ONCE[cuts >= MANY_CUTS]
                await asyncio.gather(
                    *(drill.one_kind(name, read) for name, read in kinds.items() for _ in range(at_once))
                )
            finally:
                for task in beside:
                    task.cancel()
                for died in await asyncio.gather(*beside, return_exceptions=True):
                    if not isinstance(died, asyncio.CancelledError):
                        drill.unended.append(f"the drill's own faults ended early: {died!r}")
            said = drill.summary(skipped, time.monotonic() - began)
        said["complaints"] = complaints(Path(folder))  # of their ends, too
        said["ok"] = said["ok"] and not said["complaints"]
        return said


def lines(value):
    """Give a figure as people read it: what has parts, one a line."""
    if isinstance(value, bool):
        return ["yes" if value else "NO"]
    if isinstance(value, dict):
        parts = {
            name: ", ".join(lines(part)) if isinstance(part, dict) else part for name, part in value.items()
        }
        return [f"{name}: {part}" for name, part in parts.items()] or ["none"]
    if isinstance(value, list):
        return [str(part) for part in value] or ["none"]
    return [str(value)]


def main():
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="tokentrail drill", description="Fault drills with a verdict.")
    parser.add_argument("name", choices=["resume"])
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tell = lambda text: sys.stderr.write(f"drill: {text}\n")  # noqa: E731 - said beside the answer
    said = asyncio.run(resume(arguments.cuts, arguments.seed, tell))
    if arguments.json:
        sys.stdout.write(json.dumps(said) + "\n")
    else:
        for name, value in said.items():
            first, *others = lines(value)
            sys.stdout.write(f"{name:>15}  {first}\n" + "".join(f"{'':>15}  {other}\n" for other in others))
    return 0 if said["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
