"""What tests of the pipeline as a process need: records onto the log, rows off it."""

import asyncio
import itertools
import random
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from schemas import topics
from schemas.events import Heartbeat, Kind, LogEvent, Stage
from schemas.ids import uuid7
from schemas.partition import partition_of
from tests.support.events import log_event
from tests.support.folding import CODEC, at

WITHIN_S = 40
IDENTITY = ("generation_id", "attempt", "side", "bucket", "revision")


def new_id():
    """A fresh generation id."""
    return uuid7(time.time_ns() // 1_000_000, random.getrandbits(74))


async def publish(broker, events, topic=topics.EVENTS, pause_s=0.0):
    """Append records, each acknowledged; raw ``(key, value)`` pairs as they are."""
    producer = AIOKafkaProducer(bootstrap_servers=broker, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        for event in events:
            raw = (
                (event.generation_id.encode(), CODEC.encode(event)) if isinstance(event, LogEvent) else event
            )
            key, value = raw
            partition = partition_of(key, topic.partitions)
            await producer.send_and_wait(topic.name, value=value, key=key, partition=partition)
            await asyncio.sleep(pause_s)
    finally:
        await producer.stop()


async def log_of(broker, topic):
    """Every record of a topic."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, auto_offset_reset="none", enable_auto_commit=False)
    await consumer.start()
    try:
        tps = [TopicPartition(topic.name, p) for p in range(topic.partitions)]
        ends, starts = await consumer.end_offsets(tps), await consumer.beginning_offsets(tps)
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, starts[tp])
        found = []
        while len(found) < sum(ends.values()) - sum(starts.values()):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
        return found
    finally:
        await consumer.stop()


async def rows_until(broker, topic, record, ids, count=None):
    """The rows of these generations by identity and revision, once there are so many; equal identities, equal bytes."""
    wanted, count = set(ids), count or len(ids)
    async with asyncio.timeout(WITHIN_S):
        while True:
            rows = {}
            for raw in await log_of(broker, topic):
                if raw.key.decode() not in wanted:
                    continue
                row = CODEC.decode(raw.value, record)
                identity = tuple(getattr(row, name, None) for name in IDENTITY)
                assert row.generation_id == raw.key.decode()
                assert rows.setdefault(identity, raw.value) == raw.value
            if len(rows) >= count:
                return rows
            await asyncio.sleep(0.1)


def woven(logs):
    """Several generations' records, one of each in turn."""
    return [event for turn in itertools.zip_longest(*logs) for event in turn if event is not None]


def beat(generation_id, index):
    """A heartbeat of a waiting generation."""
    said = Heartbeat(stage=Stage.PREFILL, elapsed_ms=index)
    return log_event(Kind.HEARTBEAT, after_seq=0, heartbeat=said, **at(index, generation_id=generation_id))


async def ended(task):
    """Cancel a task and wait until it has cleaned up."""
    task.cancel()
    await asyncio.wait([task])
