"""Sinks as processes, what to feed them, and what their tables must hold then."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from schemas import topics
from schemas.errors import Poison, SchemaUnknown
from schemas.partition import partition_of
from schemas.parts import SLICE_BYTES, cut
from sinks import rows
from sinks.intake import TABLES, intake_of
from sinks.store import SqlError, Unavailable
from tests.support.processes import Process
from tests.support.records import CODEC, attempt, delta, generation, generation_id, ledger, start

GENERATIONS = 40
DELTAS = 12
WITHIN_S = 90


class Sinks(Process):
    """A process of sinks, with arguments."""

    def __init__(self, folder, environ, name, arguments):
        super().__init__("sinks", folder, environ, name)
        self.arguments = arguments

    def start(self):
        """Start it (again)."""
        with self.log.open("ab") as out:
            command = [sys.executable, "-m", "sinks", *self.arguments]
            self.child = subprocess.Popen(command, cwd=self.folder, env=self.environ, stderr=out)


def history(first=0, count=GENERATIONS):
    """What edges and pipeline would write: a generation's records in order, some poison, a record in parts."""
    now_us = time.time_ns() // 1000
    for number in range(first, first + count):
        gid = generation_id(number, now_us)
        key = gid.encode()
        yield topics.EVENTS.name, key, CODEC.encode(start(gid))
        for seq in range(1, DELTAS):
            yield topics.EVENTS.name, key, CODEC.encode(delta(gid, seq, f"{number}.{seq} "))
        if number % 10 == 3:
            for part in cut(CODEC, delta(gid, DELTAS, "x" * (2 * SLICE_BYTES))):
                yield topics.EVENTS.name, key, part
        if number % 10 == 5:
            yield topics.EVENTS.name, key, b"\xc3\x01 not a record"
            yield topics.EVENTS.name, b"foreign", CODEC.encode(delta(gid, DELTAS, "x"))
        yield topics.ATTEMPTS.name, key, CODEC.encode(attempt(gid))
        for revision in (3, 4):
            yield topics.GENERATIONS.name, key, CODEC.encode(generation(gid, revision))
        for bucket in ("input", "output"):
            yield topics.LEDGER.name, key, CODEC.encode(ledger(gid, bucket))


async def publish(broker, records, pause_s=0.0):
    """Write the records in order, each acknowledged."""
    producer = AIOKafkaProducer(bootstrap_servers=broker, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        for topic, key, value in records:
            partition = partition_of(key, 32)
            await producer.send_and_wait(topic, value=value, key=key, partition=partition)
            if pause_s:
                await asyncio.sleep(pause_s)
    finally:
        await producer.stop()


async def log_of(broker, topic):
    """Every record of a topic."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, auto_offset_reset="none", enable_auto_commit=False)
    await consumer.start()
    try:
        tps = [TopicPartition(topic.name, p) for p in range(topic.partitions)]
        ends = await consumer.end_offsets(tps)
        starts = await consumer.beginning_offsets(tps)
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


async def expected(broker):
    """What every table must hold, by the pure functions over the log as it is; the poison of it by place."""
    wanted, poison = {}, set()
    for table in TABLES:
        intake = intake_of(table, CODEC)
        standing = {}
        for record in await log_of(broker, table.topic):
            try:
                row = intake.row(record)
            except (Poison, SchemaUnknown):
                poison.add((record.topic, record.partition, record.offset))
                continue
            if row is not None:
                key = tuple(row[table.columns.index(name)] for name in table.key)
                version = row[table.columns.index(table.version)] if table.version else 0
                standing[key] = max(standing.get(key, (version, row)), (version, row), key=lambda v: v[0])
        wanted[table.name] = [standing[key][1] for key in sorted(standing)]
    return wanted, poison


def held(store):
    """What every table holds, as the views count it; nothing where there is no table yet or nobody answers."""
    try:
        return {table.name: store.final(table) for table in TABLES}
    except (SqlError, Unavailable):
        return {}


def but_letters(tables):
    """Without the dead letters: a kill between a letter and its commit writes it twice, at two places."""
    return {name: found for name, found in tables.items() if name != rows.DEAD_LETTERS.name}


async def eventually(condition, sink, within_s=WITHIN_S):
    """Wait until a condition on the tables holds; fail with the sink's own words where it does not in time."""
    deadline_s = time.monotonic() + within_s
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline_s, sink.said()[-3000:]
        await asyncio.sleep(0.1)


async def stored(broker, store, sink):
    """Wait until the tables hold what the log says, each row once, and every poison lies as one dead letter."""
    wanted, poison = await expected(broker)
    await eventually(lambda: but_letters(held(store)) == but_letters(wanted), sink)
    places = [row[:3] for row in held(store)[rows.DEAD_LETTERS.name]]
    await eventually(lambda: len(held(store)[rows.DEAD_LETTERS.name]) == len(poison), sink)
    assert set(places) <= poison
    return but_letters(wanted)


async def committed_from_the_start(broker):
    """Put every sink's group back to the beginning, as an operator would to read the log again."""
    for table in TABLES:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker, group_id=topics.sink_group(table.name), enable_auto_commit=False
        )
        await consumer.start()
        tps = [TopicPartition(table.topic.name, p) for p in range(table.topic.partitions)]
        consumer.assign(tps)
        await consumer.commit(dict.fromkeys(tps, 0))
        await consumer.stop()


async def read_to_the_end(broker, sink, within_s=WITHIN_S):
    """Wait until every sink's group has committed the end of its topic."""
    for table in TABLES:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker, group_id=topics.sink_group(table.name), enable_auto_commit=False
        )
        await consumer.start()
        try:
            tps = [TopicPartition(table.topic.name, p) for p in range(table.topic.partitions)]
            consumer.assign(tps)
            wanted = await consumer.end_offsets(tps)
            deadline_s = time.monotonic() + within_s
            while [tp for tp in tps if (await consumer.committed(tp) or 0) < wanted[tp]]:
                assert time.monotonic() < deadline_s, sink.said()[-3000:]
                await asyncio.sleep(0.1)
        finally:
            await consumer.stop()
