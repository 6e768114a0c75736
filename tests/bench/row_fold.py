"""Records per second of one pipeline worker on a backlog: reading, the real codec, folding, its rows acknowledged.

The worker is the real process, so billing its attempts is in it. The reference is a Faust agent on the same topic that
does nothing. Each round writes a backlog while no worker runs, then lets one do it; afterwards its rows are counted.
Before: `__main__`. After: `backlog`, `progress`, `noop_faust`.
"""

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

from compose.supervisor import Service
from pipeline.kafka.consumer import parse_commit
from schemas.topics import EVENTS, FOLD_GROUP, GENERATIONS
from tests.bench import backlog
from tests.bench.progress import GroupWatch, ends, rate_of
from tests.bench.results import Row, row_of
from tests.bench.stack import ROOT, BenchFailed, Stack, bench_stack

RECORDS = 200_000
RECORDS_QUICK = 30_000
FAUST_SHARE = 4
"""The reference reads a quarter of it: its rate does not depend on how long it runs."""
FAUST_DEADLINE_S = 120.0
ROUNDS = 3
COMMIT_INTERVAL_S = "0.2"
"""Five commits a second instead of one, so that the slope has more points; each costs the worker 1-2 ms."""


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row."""
    count = rounds or (1 if quick else ROUNDS)
    records = RECORDS_QUICK if quick else RECORDS
    found = []
    async with bench_stack(edges=1) as stack:
        stack.services["pipeline"] = _committing_often(stack)
        templates = await backlog.record_templates(stack)
        expected = len(templates)
        for nth in range(count):
            tell(f"fold: round {nth + 1} of {count}: writing {records} records")
            made = backlog.multiply(templates, records, seed=nth)
            await backlog.write(stack.kafka, made)
            expected += backlog.generations_of(made)
            tell(f"fold: round {nth + 1} of {count}: measuring")
            worker = await _worker(stack, expected)
            found.append(
                {"fold": worker, "noop_faust": await _noop_faust(stack, nth, records // FAUST_SHARE)}
            )
    return [row_of("fold", found, records=records)]


def _committing_often(stack: Stack) -> Service:
    service = stack.services["pipeline"]
    environ = {**service.env(1), "TOKENTRAIL_PIPELINE__COMMIT_INTERVAL_S": COMMIT_INTERVAL_S}
    return dataclasses.replace(service, env=lambda _: environ)


async def _worker(stack: Stack, expected_generations: int) -> dict[str, float]:
    total = (await ends(stack.kafka, EVENTS.name))[EVENTS.name]

    def done_of(commit: Any) -> int:
        return parse_commit(commit.offset, commit.metadata).emitted_below

    async with (
        GroupWatch(stack.kafka, FOLD_GROUP, EVENTS.name, done_of) as watch,
        stack.running("pipeline", awaited=False),
    ):
        samples = await watch.until(total, lambda: stack.cpu_s("pipeline"))
    rows = (await ends(stack.kafka, GENERATIONS.name))[GENERATIONS.name]
    if rows != expected_generations:
        raise BenchFailed(
            f"{expected_generations} generations were written, the fold made {rows} rows of them"
        )
    return rate_of(samples)


async def _noop_faust(stack: Stack, nth: int, records: int) -> dict[str, float]:
    folder = stack.folder.path / f"noop-faust-{nth}"
    folder.mkdir()
    words = [stack.kafka, f"bench.noop-faust.{nth}", str(records), str(folder)]
    log = stack.folder.logs / "noop_faust.log"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.noop_faust", *words, cwd=ROOT, stdout=output, stderr=output
        )
    try:
        await asyncio.wait_for(process.wait(), FAUST_DEADLINE_S)
    except TimeoutError:
        raise BenchFailed(
            f"the reference did not read {records} records in {FAUST_DEADLINE_S:.0f} s"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    result = folder / "result.json"
    if not result.exists():
        raise BenchFailed(f"the reference ended (exit code {process.returncode}): {log.read_text()[-2000:]}")
    found = json.loads(result.read_text())
    return {
        "records_per_s": found["records"] / found["seconds"],
        "cpu_us_per_record": found["cpu_s"] * 1e6 / found["records"],
    }
