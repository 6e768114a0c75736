"""The pipeline as a process on a real Kafka: killed at random, met with poison, left alone with an orphan."""

import asyncio
import json
import random
from functools import partial

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from compose.topics import apply
from pipeline.app import EXIT_HALTED
from schemas import topics
from schemas.avro import schema_of
from schemas.codec import HEADER_BYTES, MAGIC, Codec
from schemas.events import Kind, LogEvent
from schemas.partition import partition_of
from schemas.records import AttemptRecord, GenerationRecord, LedgerLine
from tests.support.figures import figures_at
from tests.support.folding import CODEC, attempt_start, content, feed, generations, new_fold, start, whole
from tests.support.kafka import session_kafka
from tests.support.pipeline import WITHIN_S, beat, ended, log_of, new_id, publish, rows_until, woven
from tests.support.processes import Process, environment, free_port

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]
KILLS = 5
GENERATIONS = 60
NO_ORPHANS = {"TOKENTRAIL_PIPELINE__ORPHAN_AFTER_S": "60"}
"""For tests whose writer may be slower than a twentieth of the real time allows: a busy machine is no dead edge."""
LINES = 4  # of one attempt: input and output, on both sides


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A broker of these tests' own: the fold's group is one per cluster, and it is killed."""
    with session_kafka(tmp_path_factory.mktemp("broker")) as kafka:
        asyncio.run(apply(kafka.bootstrap_servers, window_days=6))
        yield kafka


@pytest.fixture(scope="module")
def broker(cluster):
    """Where it listens."""
    return cluster.bootstrap_servers


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


async def test_kill_nine_at_random_loses_and_changes_no_row(broker, worker):
    """Killed again and again while records arrive, the worker leaves each row once, with the bytes of a single pass."""
    logs = [
        whole(tuple(range(100, 100 + 20 * n, 20)), generation_id=new_id()) for n in range(1, GENERATIONS + 1)
    ]
    process = worker(**NO_ORPHANS)
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
    ledger = await rows_until(broker, topics.LEDGER, LedgerLine, ids, count=LINES * GENERATIONS)
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

    heart = asyncio.create_task(publish(broker, map(partial(beat, alive), range(1_000)), pause_s=0.5))
    made = await rows_until(broker, topics.GENERATIONS, GenerationRecord, [silent])
    process.kill()
    process.start()
    await process.until_said("pipeline ready")
    await asyncio.sleep(4)
    await ended(heart)
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
    port = free_port()
    process = worker(TOKENTRAIL_PIPELINE__SCHEMA_WAIT_S="0.5", TOKENTRAIL_METRICS__PIPELINE_PORT=str(port))
    process.start()
    await publish(broker, [*good[:2], *poison, *good[2:]])
    await rows_until(broker, topics.GENERATIONS, GenerationRecord, [good[0].generation_id])
    figures = await figures_at(port)
    assert figures["tokentrail_dead_letters_total", "fold"] >= len(poison)
    assert figures["tokentrail_fold_generations_total",] > 0
    assert ("tokentrail_fold_lag_records",) in figures
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
    one, two = worker("one", **NO_ORPHANS), worker("two", **NO_ORPHANS)
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


async def test_an_outage_of_the_log_loses_nothing_and_orphans_nobody(cluster, broker, worker):
    """While the broker is away for longer than the orphan time nothing is decided; when it is back everything goes on."""
    before, after = ([whole(generation_id=new_id()) for _ in range(10)] for _ in range(2))
    alive = new_id()
    process = worker()
    process.start()
    await process.until_said("pipeline ready")
    await publish(broker, [*woven(before), start(generation_id=alive), attempt_start(generation_id=alive)])
    await asyncio.to_thread(cluster.kill)
    await asyncio.sleep(5)
    await asyncio.to_thread(cluster.restart)
    heart = asyncio.create_task(publish(broker, map(partial(beat, alive), range(1_000)), pause_s=0.5))
    await publish(broker, woven(after), pause_s=0.05)
    logs = [*before, *after]
    made = await rows_until(
        broker, topics.GENERATIONS, GenerationRecord, [log[0].generation_id for log in logs]
    )
    assert sorted(made.values()) == sorted(
        CODEC.encode(row) for log in logs for row in generations(feed(new_fold(), log))
    )
    events = [
        CODEC.decode(raw.value, LogEvent)
        for raw in await log_of(broker, topics.EVENTS)
        if raw.key == alive.encode()
    ]
    assert {event.edge_id for event in events} == {"edge-1"}
    await ended(heart)
    assert process.child.poll() is None
    assert process.stop() == 0


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


async def test_without_a_broker_the_worker_ends_with_an_error(worker):
    """A worker that cannot work says so with its exit code, so that a supervisor starts it again."""
    process = worker(TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1")
    process.start()
    assert await asyncio.to_thread(process.child.wait, WITHIN_S) != 0
    assert "Unable to bootstrap" in process.said()
