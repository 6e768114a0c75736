"""Very many realistic log records: what a real edge wrote of a few answers, multiplied under new generation ids.

A generation id has one length, so a record's bytes with another id in them are another whole record. Generations of one
partition overlap, as they do when they run at the same time. Before: `row_fold`, `row_sink`, `row_crowded`. After: the broker.
"""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from aiokafka import AIOKafkaProducer

from compose.kafka import read_whole
from schemas.ids import start_ms, uuid7
from schemas.partition import partition_of
from schemas.topics import EVENTS
from tests.bench.client import chat_request, exchange
from tests.bench.stack import Stack

TEMPLATES = 32
TOKENS = (40, 160)
"""Answers of 40 to 160 tokens."""
AT_ONCE = 50
"""Generations of one partition that overlap."""
BATCH_BYTES = 900_000
_RANDOM_BITS = 74

Template = Sequence[bytes]


class Keyed(NamedTuple):
    """A record to be written."""

    key: bytes
    value: bytes


async def record_templates(stack: Stack) -> list[tuple[str, Template]]:
    """Let an edge write some answers, and read its records back: (generation id, values in order) of each."""
    async with stack.running("provider", "edge-1"):
        low, high = TOKENS
        requests = [
            chat_request(
                stack.key, tokens=low + nth * (high - low) // TEMPLATES, interval_ms=1, ttft_ms=1, seed=nth
            )
            for nth in range(TEMPLATES)
        ]
        return await templates_of(stack, "edge-1", requests)


async def templates_of(stack: Stack, edge: str, requests: Sequence[bytes]) -> list[tuple[str, Template]]:
    """The records of these calls, in the order in which they lie in the log, which holds no others yet."""
    asked = await asyncio.gather(*(exchange(stack.ports[edge], request) for request in requests))
    for each in asked:
        await each.closed
        each.check()
    values: dict[bytes, list[bytes]] = defaultdict(list)
    for record in sorted(await read_whole(stack.kafka, EVENTS.name), key=lambda r: (r.partition, r.offset)):
        values[record.key or b""].append(record.value or b"")
    return [(key.decode(), template) for key, template in values.items()]


def multiply(templates: Sequence[tuple[str, Template]], records: int, seed: int) -> dict[int, list[Keyed]]:
    """At least so many records by partition, of whole generations that overlap. The same seed gives the same ones."""
    drawn = random.Random(seed)
    waiting: dict[int, deque[Iterator[Keyed]]] = defaultdict(deque)
    made = 0
    while made < records:
        old, template = templates[drawn.randrange(len(templates))]
        new = uuid7(start_ms(old), drawn.getrandbits(_RANDOM_BITS)).encode()
        waiting[partition_of(new, EVENTS.partitions)].append(_renamed(template, old.encode(), new))
        made += len(template)
    return {partition: _overlapping(generations) for partition, generations in waiting.items()}


def generations_of(records: dict[int, list[Keyed]]) -> int:
    """How many generations these records are."""
    return len({record.key for each in records.values() for record in each})


def _renamed(template: Template, old: bytes, new: bytes) -> Iterator[Keyed]:
    return (Keyed(new, value.replace(old, new)) for value in template)


def _overlapping(waiting: deque[Iterator[Keyed]]) -> list[Keyed]:
    """Take one record from each of the running generations in turn."""
    running: deque[Iterator[Keyed]] = deque()
    taken = []
    while running or waiting:
        while waiting and len(running) < AT_ONCE:
            running.append(waiting.popleft())
        generation = running.popleft()
        record = next(generation, None)
        if record is not None:
            taken.append(record)
            running.append(generation)
    return taken


async def write(bootstrap_servers: str, records: dict[int, list[Keyed]]) -> None:
    """Append to the events topic, in large batches; returns when all are acknowledged."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", max_batch_size=BATCH_BYTES)
    await producer.start()
    try:
        for partition, each in records.items():
            await append(producer, partition, each)
    finally:
        await producer.stop()


async def append(producer: AIOKafkaProducer, partition: int, records: Iterable[Keyed]) -> int:
    """Append to one partition, in large batches; the first one's offset, when all are acknowledged."""
    acknowledged = []
    batch = producer.create_batch()
    for record in records:
        if batch.append(key=record.key, value=record.value, timestamp=None) is None:
            acknowledged.append(await producer.send_batch(batch, EVENTS.name, partition=partition))
            batch = producer.create_batch()
            batch.append(key=record.key, value=record.value, timestamp=None)
    acknowledged.append(await producer.send_batch(batch, EVENTS.name, partition=partition))
    return int((await asyncio.gather(*acknowledged))[0].offset)
