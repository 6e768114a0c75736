"""A resume beside very much other traffic: 1000 events of one generation among 1 M records of its partition.

An edge writes one answer; its records are copied under new ids, as if other edges had written them: some into the middle of
a partition that holds 1 M records of others, some into one that holds nothing else. An edge that never saw them is asked for
what follows the cursor of the first event, one at a time, the two sides in turn; nothing is asked for twice.
Before: `__main__`. After: `backlog`, `client`.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from aiokafka import AIOKafkaProducer

from compose.config import load_settings
from schemas.codec import Codec
from schemas.cursor import render
from schemas.events import LogEvent
from schemas.ids import start_ms, uuid7
from schemas.partition import partition_of
from schemas.signing import Signing
from schemas.topics import EVENTS
from tests.bench import backlog
from tests.bench.client import EVENT, Exchange, chat_request, exchange, percentile, request_of
from tests.bench.results import Round, Row, row_of
from tests.bench.stack import BenchFailed, Stack, bench_stack

EVENTS_AGAIN = 1000
OTHERS = 1_000_000
OTHERS_QUICK = 20_000
OTHER_GENERATIONS = 500
COPIES = 5
ROUNDS = 3
LATE_S = 30.0
CROWDED, ALONE = 0, 1
"""The partition of the many, and the one that holds nothing but copies."""
_RANDOM_BITS = 74


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row."""
    count, others = rounds or (1 if quick else ROUNDS), OTHERS_QUICK if quick else OTHERS
    found = []
    async with bench_stack("provider", "edge-1", edges=1) as stack:
        tell(f"crowded: writing {others} records")
        made = await _Written.of(stack, others, copies=1 + COPIES * count)
        await _round(stack, made, 1)  # the first of everything
        for nth in range(count):
            tell(f"crowded: round {nth + 1} of {count}")
            found.append(await _round(stack, made, COPIES))
    return [row_of("crowded", found, events=EVENTS_AGAIN, others=others)]


class _Written:
    """What lies in the log: requests for the copies that were not asked for yet, by side."""

    def __init__(self, stack: Stack, producer: AIOKafkaProducer, template: Sequence[bytes]) -> None:
        self.requests: dict[str, list[bytes]] = {"crowded": [], "alone": []}
        self._key = stack.key
        self._producer = producer
        self._template = template
        self._signing = Signing(load_settings(stack.folder.config).secrets.cursor)
        self._events = [Codec().decode(value, LogEvent) for value in template]
        self._drawn = random.Random(1)

    @classmethod
    async def of(cls, stack: Stack, others: int, copies: int) -> "_Written":
        """Half of the others, the copies, the other half; and as many copies alone."""
        template = await _template(stack)
        producer = AIOKafkaProducer(
            bootstrap_servers=stack.kafka, acks="all", max_batch_size=backlog.BATCH_BYTES
        )
        await producer.start()
        try:
            made = cls(stack, producer, template)
            crowd = made.crowd()
            await backlog.append(producer, CROWDED, islice(crowd, others // 2))
            for _ in range(copies):
                await made.copy("crowded", CROWDED)
                await made.copy("alone", ALONE)
            await backlog.append(producer, CROWDED, islice(crowd, others - others // 2))
        finally:
            await producer.stop()
        return made

    async def copy(self, side: str, partition: int) -> None:
        """Write the template under an id that lies in this partition, and know how it is asked for."""
        old, new = self._events[0].generation_id, self._id_in(partition)
        records = [
            backlog.Keyed(new.encode(), value.replace(old.encode(), new.encode())) for value in self._template
        ]
        base = await backlog.append(self._producer, partition, records)
        nth, first = next((nth, event) for nth, event in enumerate(self._events) if event.seq == 1)
        sig = self._signing.sign(new, 1, first.key_id, time.time_ns() // 1000)
        cursor = render(1, partition, base + nth, sig)
        path = f"/v1/generations/{new}/events?dialect=openai.chat"
        self.requests[side].append(request_of("GET", path, self._key, headers={"last-event-id": cursor}))

    def crowd(self) -> Iterator[backlog.Keyed]:
        """Small records of many generations of the crowded partition, without end."""
        old, value = self._events[0].generation_id.encode(), min(self._template, key=len)
        ids = [self._id_in(CROWDED).encode() for _ in range(OTHER_GENERATIONS)]
        records = [backlog.Keyed(each, value.replace(old, each)) for each in ids]
        while True:
            yield from records

    def _id_in(self, partition: int) -> str:
        began_ms = start_ms(self._events[0].generation_id)
        while True:
            drawn = uuid7(began_ms, self._drawn.getrandbits(_RANDOM_BITS))
            if partition_of(drawn.encode(), EVENTS.partitions) == partition:
                return drawn


async def _template(stack: Stack) -> Sequence[bytes]:
    """The records of one answer of 1000 tokens, in order."""
    request = chat_request(stack.key, tokens=EVENTS_AGAIN, interval_ms=1, ttft_ms=1)
    ((_, template),) = await backlog.templates_of(stack, "edge-1", [request])
    return template


async def _round(stack: Stack, made: _Written, copies: int) -> Round:
    took: dict[str, list[tuple[float, float]]] = {side: [] for side in made.requests}
    for _ in range(copies):
        for side, requests in made.requests.items():
            async with asyncio.timeout(LATE_S):
                took[side].append(await _resume(stack.ports["edge-1"], requests.pop()))
    return {
        side: {
            "first_p50_ms": percentile(sorted(first_ms for first_ms, _ in times), 0.5),
            "last_p50_ms": percentile(sorted(last_ms for _, last_ms in times), 0.5),
        }
        for side, times in took.items()
    }


async def _resume(port: int, request: bytes) -> tuple[float, float]:
    """Milliseconds from the request to the first and to the thousandth event."""
    again: Exchange = await exchange(port, request, EVENTS_AGAIN, EVENT)
    await again.reached
    again.cut()
    again.check()
    arrivals_ns = again.event_arrivals_ns()
    if len(arrivals_ns) < EVENTS_AGAIN:
        raise BenchFailed(f"{len(arrivals_ns)} events came again, not {EVENTS_AGAIN}")
    return (arrivals_ns[0] - again.sent_ns) / 1e6, (arrivals_ns[EVENTS_AGAIN - 1] - again.sent_ns) / 1e6
