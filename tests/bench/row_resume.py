"""1000 events again, behind the cursor of an answer's first event: how long to the first of them, and to the last.

`same_edge` and `other_edge`: the generation still runs (it is silent after its 1000 tokens); `after_end`: it has ended,
and the other edge is asked. One at a time, in turn. The reference is what a resume would be without the edge's shared
reader: a new Kafka consumer that seeks to the cursor's place and filters by key. Before: `__main__`. After: `client`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas.cursor import Cursor, parse
from schemas.topics import EVENTS
from tests.bench.client import (
    EVENT_ID,
    GENERATION_ID,
    Exchange,
    chat_request,
    exchange,
    percentile,
    request_of,
)
from tests.bench.results import Round, Row, row_of
from tests.bench.stack import BenchFailed, Stack, bench_stack

EVENTS_AGAIN = 1000
GENERATIONS = 10
GENERATIONS_QUICK = 3
ROUNDS = 3
SILENCE_MS = 60_000
OWNER, OTHER = "edge-1", "edge-2"
FIRST, LAST = "first_p50_ms", "last_p50_ms"
LATE_S = 30.0


class Left(NamedTuple):
    """An answer that a client left after its first event."""

    generation_id: str
    cursor_text: str

    @property
    def cursor(self) -> Cursor:
        """The cursor of its first event."""
        return parse(self.cursor_text)


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row."""
    count = rounds or (1 if quick else ROUNDS)
    found = []
    async with bench_stack("provider", OWNER, OTHER, edges=2) as stack:
        await _round(stack, 1)  # the first of everything
        for nth in range(count):
            tell(f"resume: round {nth + 1} of {count}")
            found.append(await _round(stack, GENERATIONS_QUICK if quick else GENERATIONS))
    return [row_of("resume", found, events=EVENTS_AGAIN)]


async def _round(stack: Stack, generations: int) -> Round:
    running = await _begun(stack, generations, stalls=[(EVENTS_AGAIN, SILENCE_MS)])
    ended = await _begun(stack, generations)
    ways: dict[str, Callable[[Left, Left], Awaitable[tuple[float, float]]]] = {
        "same_edge": lambda runs, _: _resume(stack, OWNER, runs),
        "other_edge": lambda runs, _: _resume(stack, OTHER, runs),
        "after_end": lambda _, ends: _resume(stack, OTHER, ends),
        "consumer_per_replay": lambda runs, _: _consume(stack.kafka, runs),
    }
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for runs, ends in zip(running, ended, strict=True):
        for way, again in ways.items():
            async with asyncio.timeout(LATE_S):
                took[way].append(await again(runs, ends))
    return {
        way: {
            FIRST: percentile(sorted(first_ms for first_ms, _ in times), 0.5),
            LAST: percentile(sorted(last_ms for _, last_ms in times), 0.5),
        }
        for way, times in took.items()
    }


async def _begun(stack: Stack, generations: int, **script: object) -> list[Left]:
    """Answers of 1000 tokens whose clients have seen all of them: those with a silence behind it still run."""
    request = chat_request(stack.key, tokens=EVENTS_AGAIN, interval_ms=2, ttft_ms=1, **script)
    asked = await asyncio.gather(
        *(exchange(stack.ports[OWNER], request, EVENTS_AGAIN + 1) for _ in range(generations))
    )
    left = []
    for each in asked:
        await (each.reached if script else each.closed)
        each.cut()
        each.check()
        head, event_id = GENERATION_ID.search(each.whole), EVENT_ID.search(each.whole)
        if head is None or event_id is None:
            raise BenchFailed(f"an answer without ids: {each.whole[:400]!r}")
        left.append(Left(head[1].decode(), event_id[1].decode()))
    return left


async def _resume(stack: Stack, edge: str, left: Left) -> tuple[float, float]:
    """Milliseconds from the request to the first and to the thousandth event."""
    path = f"/v1/generations/{left.generation_id}/events?dialect=openai.chat"
    request = request_of("GET", path, stack.key, headers={"last-event-id": left.cursor_text})
    again = await exchange(stack.ports[edge], request, EVENTS_AGAIN)
    await again.reached
    again.cut()
    again.check()
    return _first_and_last_ms(again)


def _first_and_last_ms(again: Exchange) -> tuple[float, float]:
    arrivals_ns = again.event_arrivals_ns()
    if len(arrivals_ns) < EVENTS_AGAIN:
        raise BenchFailed(f"{len(arrivals_ns)} events came again, not {EVENTS_AGAIN}")
    return (arrivals_ns[0] - again.sent_ns) / 1e6, (arrivals_ns[EVENTS_AGAIN - 1] - again.sent_ns) / 1e6


async def _consume(bootstrap_servers: str, left: Left) -> tuple[float, float]:
    """The same events by a consumer of their own: connect, seek, filter by key. Its frames are not even rendered."""
    key, cursor = left.generation_id.encode(), left.cursor
    place = TopicPartition(EVENTS.name, cursor.partition)
    began_s = time.perf_counter()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="none", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([place])
        consumer.seek(place, (cursor.offset or 0) + 1)
        seen, first_s = 0, 0.0
        while seen < EVENTS_AGAIN:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                seen += sum(record.key == key for record in records)
            if seen and not first_s:
                first_s = time.perf_counter()
        return (first_s - began_s) * 1000, (time.perf_counter() - began_s) * 1000
    finally:
        await consumer.stop()
