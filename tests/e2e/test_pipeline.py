"""The pipeline as a process on a real Kafka: killed at random, met with poison, left alone with an orphan."""

import asyncio
import itertools
import json
import random
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from compose.topics import apply
from pipeline.app import EXIT_HALTED
from schemas import topics
from schemas.avro import schema_of
from schemas.codec import HEADER_BYTES, MAGIC, Codec
from schemas.events import Heartbeat, Kind, LogEvent, Stage
from schemas.ids import uuid7
from schemas.partition import partition_of
from schemas.records import AttemptRecord, GenerationRecord, LedgerLine
from tests.support.events import log_event
from tests.support.folding import (
    CODEC,
    at,
    attempt_start,
    content,
    feed,
    generations,
    new_fold,
    start,
    whole,
)
from tests.support.kafka import session_kafka
from tests.support.processes import Process, environment

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]
KILLS = 5
GENERATIONS = 60
WITHIN_S = 40
IDENTITY = ("generation_id", "attempt", "side", "bucket", "revision")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker of these tests' own: the fold's group is one per cluster."""
    with session_kafka(tmp_path_factory.mktemp("broker")) as kafka:
        asyncio.run(apply(kafka.bootstrap_servers, window_days=6))
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The workers' folder: in the same one, a worker is known to the group as the one before it."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture
def worker(broker, folder, request):
    """Make workers; whatever still runs at the end is killed."""
    made = []

    def make(name="one", **extra):
        process = Process("pipeline", folder, environment(broker, extra), f"{request.node.name}-{name}")
        made.append(process)
        return process

    yield make
    for process in made:
        if process.child is not None:
            process.kill()


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


async def test_kill_nine_at_random_loses_and_changes_no_row(broker, worker):
    """Killed again and again while records arrive, the worker leaves each row once, with the bytes of a single pass."""
    logs = [
        whole(tuple(range(100, 100 + 20 * n, 20)), generation_id=new_id()) for n in range(1, GENERATIONS + 1)
    ]
    process = worker()
    process.start()
    first = woven(logs[: GENERATIONS // 2])
    await publish(broker, first)  # before the group has committed anything: it begins at the beginning
    rest = asyncio.create_task(publish(broker, woven(logs[GENERATIONS // 2 :]), pause_s=0.004))
    chance = random.Random(7)
    for _ in range(KILLS):
        await process.until_said("pipeline ready")
        await asyncio.sleep(chance.random())
        process.kill()
        process.start()
    await rest
    ids = [log[0].generation_id for log in logs]
    wanted = [output for log in logs for output in feed(new_fold(), log)]
    made = await rows_until(broker, topics.GENERATIONS, GenerationRecord, ids)
    assert sorted(made.values()) == sorted(CODEC.encode(row) for row in generations(wanted))
    attempts = await rows_until(broker, topics.ATTEMPTS, AttemptRecord, ids)
    assert len(attempts) == GENERATIONS
    assert set(attempts.values()) == {CODEC.encode(o) for o in wanted if isinstance(o, AttemptRecord)}
    ledger = await rows_until(broker, topics.LEDGER, LedgerLine, ids, count=2 * GENERATIONS)
    assert {key[0] for key in ledger} == set(ids)
    await process.until_said("pipeline ready")
    assert process.stop() == 0


async def test_an_orphan_on_an_idle_log_ends_once(broker, worker):
    """With nothing else on the log, a silent generation gets its lost attempt and one ``edge_lost``; a restart adds none.

    One whose edge still sends heartbeats is left alone.
    """
    silent, alive = new_id(), new_id()
    opened = [e for g in (silent, alive) for e in (start(generation_id=g), attempt_start(generation_id=g))]
    process = worker()
    process.start()
    await process.until_said("pipeline ready")
    await publish(broker, [*opened, content(1, 100, generation_id=silent)])

    def beat(index):
        said = Heartbeat(stage=Stage.PREFILL, elapsed_ms=index)
        return log_event(Kind.HEARTBEAT, after_seq=0, heartbeat=said, **at(index, generation_id=alive))

    heart = asyncio.create_task(publish(broker, map(beat, range(1_000)), pause_s=0.5))
    made = await rows_until(broker, topics.GENERATIONS, GenerationRecord, [silent])
    process.kill()
    process.start()
    await process.until_said("pipeline ready")
    await asyncio.sleep(4)
    heart.cancel()
    events = [CODEC.decode(raw.value, LogEvent) for raw in await log_of(broker, topics.EVENTS)]
    written = [
        (e.generation_id, e.kind, e.seq)
        for e in events
        if e.edge_id == "finder" and e.generation_id in (silent, alive)
    ]
    assert written == [(silent, Kind.ATTEMPT_END, None), (silent, Kind.ERROR, 2)]
    (row,) = [CODEC.decode(value, GenerationRecord) for value in made.values()]
    assert (row.generation_id, row.error_code, row.status) == (silent, "edge_lost", "complete")
    assert await rows_until(broker, topics.GENERATIONS, GenerationRecord, [silent]) == made


async def test_poison_goes_to_the_dead_letters_once_and_blocks_nothing(broker, worker):
    """Records that cannot be read lie aside with their bytes and place; what follows is folded; a restart adds none."""
    good, after = whole(generation_id=new_id()), whole(generation_id=new_id())
    key = good[0].generation_id.encode()
    strange = CODEC.encode(start(generation_id=new_id()))
    poison = [(key, b"\xff\xfe"), (key, None), (key, strange), (key, b"\xc3\x01" + bytes(8) + b"future")]
    process = worker(TOKENTRAIL_PIPELINE__SCHEMA_WAIT_S="0.5")
    process.start()
    await publish(broker, [*good[:2], *poison, *good[2:]])
    await rows_until(broker, topics.GENERATIONS, GenerationRecord, [good[0].generation_id])
    process.kill()
    process.start()
    await process.until_said("pipeline ready")
    await publish(broker, after)
    await rows_until(broker, topics.GENERATIONS, GenerationRecord, [after[0].generation_id])
    letters = [(dict(raw.headers), raw.key, raw.value) for raw in await log_of(broker, topics.DEAD_LETTERS)]
    assert {(value, headers["reason"]) for headers, _, value in letters} == {
        (b"\xff\xfe", b"undecodable"),
        (None, b"tombstone"),
        (strange, b"key_mismatch"),
        (b"\xc3\x01" + bytes(8) + b"future", b"schema_version"),
    }
    places = {(headers["topic"], headers["partition"], headers["offset"]) for headers, _, _ in letters}
    assert len(places) == len(poison)
    assert {headers["stage"] for headers, _, _ in letters} == {b"fold"}
    assert process.stop() == 0


async def test_an_unknown_schema_is_waited_for_and_holds_up_its_partition_only(broker, worker):
    """A record of a newer writer is folded once its schema is announced; meanwhile other partitions go on."""
    schema = schema_of(LogEvent)
    schema["fields"].append({"name": "later", "type": ["null", "long"], "default": None})
    mark = bytes.fromhex(Codec().learn(json.dumps(schema)))
    log, other = whole(generation_id=new_id()), whole(generation_id=new_id())
    while partition_of(other[0].generation_id.encode(), 32) == partition_of(
        log[0].generation_id.encode(), 32
    ):
        other = whole(generation_id=new_id())
    key = log[0].generation_id.encode()
    newer = [(key, MAGIC + mark + CODEC.encode(event)[HEADER_BYTES:] + b"\x00") for event in log[2:4]]
    process = worker()
    process.start()
    await publish(broker, [*log[:2], *newer, *log[4:]])
    await process.until_said("a partition waits for a schema")
    await publish(broker, other)
    await rows_until(broker, topics.GENERATIONS, GenerationRecord, [other[0].generation_id])
    await publish(broker, [(mark.hex().encode(), json.dumps(schema).encode())], topics.SCHEMAS)
    made = await rows_until(broker, topics.GENERATIONS, GenerationRecord, [log[0].generation_id])
    assert list(made.values()) == [CODEC.encode(row) for row in generations(feed(new_fold(), log))]
    assert process.stop() == 0


async def test_a_second_worker_takes_its_share_and_gives_it_back(broker, worker):
    """Partitions move to a worker that comes and back from one that is killed, and no row is lost on the way."""
    one, two = worker("one"), worker("two")
    one.start()
    await one.until_said("pipeline ready")
    logs = [whole(generation_id=new_id()) for _ in range(40)]
    writing = asyncio.create_task(publish(broker, woven(logs), pause_s=0.03))
    two.start()
    await two.until_said("pipeline ready")
    two.kill()
    await writing
    made = await rows_until(
        broker, topics.GENERATIONS, GenerationRecord, [log[0].generation_id for log in logs]
    )
    wanted = [row for log in logs for row in generations(feed(new_fold(), log))]
    assert sorted(made.values()) == sorted(CODEC.encode(row) for row in wanted)
    assert one.stop() == 0


async def test_a_lost_range_stops_the_worker_loudly(broker, worker):
    """Where the log no longer holds what comes next, the worker ends with an error instead of skipping it.

    The last test of this broker: the group stays where it stands.
    """
    process = worker()
    process.start()
    log = whole(generation_id=new_id())
    await publish(broker, log)
    await rows_until(broker, topics.GENERATIONS, GenerationRecord, [log[0].generation_id])
    await process.until_said("pipeline ready")
    assert process.stop() == 0
    await publish(broker, log)
    partition = partition_of(log[0].generation_id.encode(), topics.EVENTS.partitions)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        ends = {raw.partition: raw.offset + 1 for raw in await log_of(broker, topics.EVENTS)}
        cut = RecordsToDelete(before_offset=ends[partition])  # what lies behind the commit is gone too
        await admin.delete_records({TopicPartition(topics.EVENTS.name, partition): cut})
    finally:
        await admin.close()
    process.start()
    assert await asyncio.to_thread(process.child.wait, WITHIN_S) == EXIT_HALTED
    assert "does not hold these offsets any more" in process.said()
