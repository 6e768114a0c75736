"""The sinks as a process, on a real Kafka and a real ClickHouse engine: killed, moved, cut off, and still exact."""

from __future__ import annotations

import asyncio
import json
import random
import time

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from compose.embedded.clickhouse.process import EmbeddedClickHouse
from compose.topics import apply
from schemas import topics
from schemas.partition import partition_of
from sinks import derived
from sinks.clickhouse import ClickHouseStore
from sinks.intake import TABLES
from tests.support.figures import figures_at
from tests.support.kafka import session_kafka
from tests.support.processes import environment, free_port
from tests.support.records import CODEC, attempt, generation_id
from tests.support.sinks import (
    WITHIN_S,
    Sinks,
    but_letters,
    committed_from_the_start,
    eventually,
    expected,
    held,
    history,
    publish,
    read_to_the_end,
    stored,
)
from tests.support.warehouse import fresh_database

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]


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


async def all_stored(port):
    """Wait until the sinks say of no table that anything waits or is stale (a commit comes behind its rows)."""
    late = ("tokentrail_sink_lag_records", "tokentrail_sink_freshness_s")
    async with asyncio.timeout(60):
        while True:
            figures = await figures_at(port)
            if figures and not any(value for (name, *_), value in figures.items() if name in late):
                return figures
            await asyncio.sleep(0.1)


async def test_reading_the_whole_log_again_changes_nothing(broker, sinks, store):
    """With every group put back to the beginning, the sinks insert everything again: the same rows, also merged."""
    port = free_port()
    sink = sinks(TOKENTRAIL_METRICS__SINKS_PORT=str(port))
    await publish(broker, history(count=20))
    sink.start()
    await stored(broker, store, sink)
    figures = await all_stored(port)
    assert figures["tokentrail_sink_rows_total", "events"] > 0
    assert sum(value for (name, *_), value in figures.items() if name == "tokentrail_dead_letters_total") > 0
    assert sink.stop() == 0
    await committed_from_the_start(broker)
    await publish(
        broker, history(first=20, count=1)
    )  # so that the second pass does not have the first one's blocks
    again = sinks("again", TOKENTRAIL_SINK__BATCH_ROWS="7")
    again.start()
    wanted = await stored(broker, store, again)
    await read_to_the_end(broker, again)
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
    """No batch is ever due here, so that all rows come by way of SIGTERM, which ends the process with code 0."""
    sink = sinks(TOKENTRAIL_SINK__BATCH_AGE_S="600")
    await publish(broker, history(count=2))
    wanted, _ = await expected(broker)
    deadline_s = time.monotonic() + WITHIN_S
    while (
        held(store) != wanted
    ):  # nothing outside the process tells what it has read: it is asked to stop again
        assert time.monotonic() < deadline_s, sink.said()[-3000:]
        sink.start()
        await sink.until_said("sinks ready")
        await asyncio.sleep(0.5)
        assert await asyncio.to_thread(sink.stop) == 0


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
