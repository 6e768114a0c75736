"""The sinks as a process, on a real Kafka and a real ClickHouse engine: killed, moved, cut off, and still exact."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from compose.embedded.clickhouse.process import EmbeddedClickHouse
from compose.topics import apply
from schemas import topics
from schemas.errors import Poison, SchemaUnknown
from schemas.partition import partition_of
from schemas.parts import SLICE_BYTES, cut
from sinks import derived, rows
from sinks.clickhouse import ClickHouseStore
from sinks.intake import TABLES, intake_of
from sinks.store import SqlError, Unavailable
from tests.support.kafka import session_kafka
from tests.support.processes import Process, environment
from tests.support.records import CODEC, attempt, delta, generation, generation_id, ledger, start
from tests.support.warehouse import fresh_database

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]
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


@pytest.fixture
def broker(tmp_path):
    """A broker of the test's own: sinks read whole topics, so nobody else may write to them."""
    with session_kafka(tmp_path) as kafka:
        asyncio.run(apply(kafka.bootstrap_servers, window_days=6))
        yield kafka.bootstrap_servers


@pytest.fixture
def store(clickhouse):
    with fresh_database(clickhouse, migrated=False) as real:
        yield real


@pytest.fixture
def sinks(broker, clickhouse, store, tmp_path):
    """Make sink processes; whatever still runs at the end is killed."""
    made = []
    (row,) = store.query("SELECT currentDatabase() AS name")

    def make(name="sinks", arguments=(), **extra):
        told = {
            "TOKENTRAIL_CLICKHOUSE__URL": clickhouse,
            "TOKENTRAIL_CLICKHOUSE__DATABASE": row["name"],
            "TOKENTRAIL_PIPELINE__SCHEMA_WAIT_S": "0.5",
        }
        process = Sinks(tmp_path, environment(broker, told | extra), name, arguments)
        made.append(process)
        return process

    yield make
    for process in made:
        if process.child is not None:
            process.kill()


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


async def test_killed_at_random_every_row_is_there_once(broker, sinks, store):
    """Killed with -9 at random times while the log grows, the tables hold what the log says: once, none missing."""
    chance = random.Random(7)
    sink = sinks()
    writing = asyncio.create_task(publish(broker, history(), pause_s=0.01))
    for _ in range(4):
        sink.start()
        await sink.until_said("sinks ready")
        await asyncio.sleep(chance.uniform(0.0, 1.2))
        sink.kill()
    await writing
    sink.start()
    wanted = await stored(broker, store, sink)
    assert sink.stop() == 0
    for table in TABLES:
        store.merge(table)
    assert but_letters(held(store)) == wanted


async def test_reading_the_whole_log_again_changes_nothing(broker, sinks, store):
    """With every group put back to the beginning, the sinks insert everything again: the same rows, also merged."""
    sink = sinks()
    await publish(broker, history(count=20))
    sink.start()
    await stored(broker, store, sink)
    assert sink.stop() == 0
    await committed_from_the_start(broker)
    await publish(
        broker, history(first=20, count=1)
    )  # so that the second pass does not have the first one's blocks
    again = sinks("again", TOKENTRAIL_SINK__BATCH_ROWS="7")
    again.start()
    wanted = await stored(broker, store, again)
    assert again.stop() == 0
    assert json.loads(again.said().splitlines()[-1])["rows"]["events"] == len(wanted["events"])
    for table in TABLES:
        store.merge(table)
    assert but_letters(held(store)) == wanted


async def test_sinks_share_partitions_and_hand_them_over(broker, sinks, store):
    """A second sink takes its share; when the first stops, the rest: every row once, and both end with code 0."""
    one, two = sinks("one"), sinks("two")
    one.start()
    await one.until_said("sinks ready")
    writing = asyncio.create_task(publish(broker, history(), pause_s=0.005))
    two.start()
    await two.until_said("sinks ready")
    await asyncio.sleep(1)
    assert await asyncio.to_thread(one.stop) == 0
    await writing
    await stored(broker, store, two)
    assert two.stop() == 0


async def test_a_warehouse_that_goes_away_loses_nothing(broker, sinks, tmp_path):
    """ClickHouse is killed under a running sink and comes back: the sink waited, and the rows are all there once."""
    server = EmbeddedClickHouse(tmp_path / "engine").start()
    try:
        sink = sinks(TOKENTRAIL_CLICKHOUSE__URL=server.url, TOKENTRAIL_CLICKHOUSE__DATABASE="default")
        sink.start()
        await sink.until_said("sinks ready")
        await publish(broker, history(count=10))
        server.kill()
        await publish(broker, history(first=10, count=10))
        await sink.until_said("warehouse away")
        server.start()
        store = ClickHouseStore(server.url)
        await stored(broker, store, sink)
        store.close()
        assert sink.stop() == 0
    finally:
        server.kill()


async def test_sigterm_stores_what_was_read(broker, sinks, store):
    """Rows of a batch that is not due are inserted and committed on SIGTERM: the exit code is 0, nothing is read twice."""
    sink = sinks(TOKENTRAIL_SINK__BATCH_AGE_S="600")
    sink.start()
    await sink.until_said("sinks ready")
    await publish(broker, history(count=2))
    wanted, _ = await expected(broker)
    await asyncio.sleep(
        1
    )  # nothing outside the process tells that it has read; what it has not, it reads next time
    assert store.final(rows.EVENTS) == []
    assert sink.stop() == 0
    sink.start()
    await sink.until_said("sinks ready")
    assert sink.stop() == 0
    assert held(store) == wanted


async def test_a_lost_range_stops_a_sink_until_it_is_accepted(broker, sinks, store):
    """Records that left the log unread end the sink with their range; --accept-loss goes on and records it."""
    sink = sinks()
    gid = generation_id(1, time.time_ns() // 1000)
    tp = TopicPartition(topics.ATTEMPTS.name, partition_of(gid.encode(), 32))
    one = [(topics.ATTEMPTS.name, gid.encode(), CODEC.encode(attempt(gid, n))) for n in range(4)]
    await publish(broker, one[:1])
    sink.start()
    await sink.until_said("sinks ready")
    await eventually(lambda: held(store).get("attempts"), sink)
    assert sink.stop() == 0
    await publish(broker, one[1:])
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    await admin.delete_records({tp: RecordsToDelete(3)})
    await admin.close()

    sink.start()
    assert await asyncio.to_thread(sink.child.wait, 30) == 1
    assert "offsets 1 to 2 left the log" in sink.said()

    accepting = sinks("accepting", arguments=["--accept-loss"])
    accepting.start()
    attempts = derived.ATTEMPTS.columns.index("attempt")
    await eventually(lambda: [row[attempts] for row in held(store)["attempts"]] == [0, 3], accepting)
    await eventually(lambda: held(store)["dead_letters"], accepting)
    assert accepting.stop() == 0
    (letter,) = held(store)["dead_letters"]
    assert letter[:5] == (tp.topic, tp.partition, 1, "sink.attempts", "lost_range")


async def test_the_log_is_json_lines(broker, sinks):
    """Every line on stderr is one JSON object with a level and an event, for whatever collects it."""
    sink = sinks()
    sink.start()
    await sink.until_said("sinks ready")
    await publish(broker, history(first=5, count=1))
    await sink.until_said("dead letter")
    assert sink.stop() == 0
    for line in sink.said().splitlines():
        assert {"level", "event", "timestamp"} <= json.loads(line).keys()
