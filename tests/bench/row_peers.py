"""The same 1000 events again, from the edge and from two servers that do a part of it: one at a time, and 200 at once.

The events are those of our own answers; the peers are filled with them. Everything has ended before it is read again.
`edge`: the one that it ran on; `other_edge`: one that never saw it. The storm: 200 clients at once over four ended
streams, from the first request to the last event of the last client. Before: `__main__`. After: `peers_running`.
"""

import asyncio
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.bench.client import (
    EVENT,
    EVENT_ID,
    GENERATION_ID,
    Exchange,
    chat_request,
    exchange,
    percentile,
    request_of,
)
from tests.bench.peers_running import Peer, peers
from tests.bench.results import Round, Row, row_of
from tests.bench.stack import BenchFailed, Stack, bench_stack

EVENTS_AGAIN = 1000
STREAMS = 4
CLIENTS = 200
ALONE = 50
QUICK = 5  # a part of each
ROUNDS = 3
LATE_S = 120.0
EDGES = {"edge": "edge-1", "other_edge": "edge-2"}
_DATA = re.compile(rb"\ndata: (\{.*\})\n")


class Again(NamedTuple):
    """How one side is asked for what it has: a request for each stream."""

    port: int
    mark: bytes
    requests: list[bytes]


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row; a peer that does not run here is not in it."""
    count, part = rounds or (1 if quick else ROUNDS), QUICK if quick else 1
    found = []
    with tempfile.TemporaryDirectory(prefix="tokentrail-peers-") as path:
        tell("peers: installing")
        async with (
            bench_stack("provider", *EDGES.values(), edges=2) as stack,
            peers(Path(path), tell) as others,
        ):
            sides = await _filled(stack, others, tell)
            for side in sides.values():
                await _alone(side, STREAMS)  # the first of everything
            for nth in range(count):
                tell(f"peers: round {nth + 1} of {count}")
                found.append(await _round(sides, ALONE // part, CLIENTS // part))
    return [row_of("peers", found, events=EVENTS_AGAIN, clients=CLIENTS // part)]


async def _filled(stack: Stack, others: list[Peer], tell: Callable[[str], None]) -> dict[str, Again]:
    """The same ended streams everywhere."""
    request = chat_request(stack.key, tokens=EVENTS_AGAIN, interval_ms=1, ttft_ms=1)
    port = stack.ports[EDGES["edge"]]
    answers = await asyncio.gather(*(exchange(port, request) for _ in range(STREAMS)))
    ours: list[tuple[str, str]] = []
    events: list[list[bytes]] = []
    for answer in answers:
        await answer.closed
        answer.check()
        head, event_id = GENERATION_ID.search(answer.whole), EVENT_ID.search(answer.whole)
        if head is None or event_id is None:
            raise BenchFailed(f"an answer without ids: {answer.whole[:400]!r}")
        ours.append((head[1].decode(), event_id[1].decode()))
        events.append(_DATA.findall(_plain(answer.whole))[: EVENTS_AGAIN + 1])
    sides = {
        side: Again(stack.ports[edge], EVENT, [_resume(stack.key, *each) for each in ours])
        for side, edge in EDGES.items()
    }
    for peer in others:
        try:
            asked = await asyncio.gather(*(peer.fill(f"s{nth}", each) for nth, each in enumerate(events)))
        except (BenchFailed, OSError, EOFError) as error:
            tell(f"peers: {peer.name} is left out: {error}")
            continue
        sides[peer.name] = Again(peer.port, peer.mark, asked)
    return sides


def _plain(answer: bytes) -> bytes:
    """A chunked answer without its framing."""
    body = answer.partition(b"\r\n\r\n")[2]
    whole = bytearray(b"\n")
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole += body[:length]
        body = body[length + 2 :]
    return bytes(whole)


def _resume(key: str, generation_id: str, cursor: str) -> bytes:
    path = f"/v1/generations/{generation_id}/events?dialect=openai.chat"
    return request_of("GET", path, key, headers={"last-event-id": cursor})


async def _round(sides: Mapping[str, Again], alone: int, clients: int) -> Round:
    figures: dict[str, dict[str, float]] = {}
    for name, side in sides.items():
        figures[name] = await _alone(side, alone) | await _storm(side, clients)
    return figures


async def _alone(side: Again, count: int) -> dict[str, float]:
    """One after the other."""
    first_ms, last_ms = [], []
    for nth in range(count):
        asked = await _asked(side, nth)
        first, last = _first_and_last_ms(await _ended(asked))
        first_ms.append(first)
        last_ms.append(last)
    first_ms.sort()
    last_ms.sort()
    return {
        "first_p50_ms": percentile(first_ms, 0.5),
        "first_p99_ms": percentile(first_ms, 0.99),
        "last_p50_ms": percentile(last_ms, 0.5),
        "last_p99_ms": percentile(last_ms, 0.99),
    }


async def _storm(side: Again, clients: int) -> dict[str, float]:
    """All at once."""
    asked = await asyncio.gather(*(_asked(side, nth) for nth in range(clients)))
    for each in asked:
        await _ended(each)
    last_ms = sorted(_first_and_last_ms(each)[1] for each in asked)
    began_ns = min(each.sent_ns for each in asked)
    took_ns = max(each.event_arrivals_ns()[EVENTS_AGAIN - 1] for each in asked) - began_ns
    return {
        "storm_last_p50_ms": percentile(last_ms, 0.5),
        "storm_last_p99_ms": percentile(last_ms, 0.99),
        "storm_events_per_s": clients * EVENTS_AGAIN * 1e9 / took_ns,
    }


async def _asked(side: Again, nth: int) -> Exchange:
    return await exchange(side.port, side.requests[nth % STREAMS], EVENTS_AGAIN, side.mark)


async def _ended(asked: Exchange) -> Exchange:
    """Its thousandth event is here: not every server closes a connection when its answer is over."""
    async with asyncio.timeout(LATE_S):
        await asked.reached
    asked.cut()
    asked.check()
    return asked


def _first_and_last_ms(asked: Exchange) -> tuple[float, float]:
    """From the request to the first and to the thousandth event."""
    arrivals_ns = asked.event_arrivals_ns()
    if len(arrivals_ns) < EVENTS_AGAIN:
        raise BenchFailed(f"{len(arrivals_ns)} events came again, not {EVENTS_AGAIN}")
    return (arrivals_ns[0] - asked.sent_ns) / 1e6, (arrivals_ns[EVENTS_AGAIN - 1] - asked.sent_ns) / 1e6
