"""Every process of ours is asked to end while its broker, or its warehouse, is there, dead, frozen, or never was.

It ends by itself, with code 0, before the deadline of its stop (whose code is another), says what it leaves, and loses
nothing that was acknowledged: the test with everything there finds every row. In this order: the last one kills the broker.
"""

import asyncio
import os
import signal

import pytest

from compose.embedded.simulator import Simulator
from compose.topics import apply
from schemas import topics
from schemas.records import GenerationRecord
from tests.support.clickhouse import connect
from tests.support.client import Reader, body, new_client
from tests.support.folding import whole
from tests.support.gate import Gate
from tests.support.kafka import session_kafka
from tests.support.pipeline import new_id, publish, rows_until, woven
from tests.support.processes import Edge, Process, environment, write_config
from tests.support.warehouse import fresh_database

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]
STOP = {
    "TOKENTRAIL_STOP__SETTLE_S": "1",
    "TOKENTRAIL_STOP__CLOSE_S": "30",  # what ends with code 0 has ended by itself, however busy the machine is
    "TOKENTRAIL_EDGE__DRAIN_S": "0.2",
    "TOKENTRAIL_LOG__DELIVERY_S": "4",  # longer than a busy broker takes, so that the stop ends it and no outage
    "TOKENTRAIL_DISCONNECT__GRACE_S": "60",
    "TOKENTRAIL_PIPELINE__COMMIT_INTERVAL_S": "60",  # there is something to commit at each stop
    "TOKENTRAIL_PIPELINE__ORPHAN_AFTER_S": "60",
}
UNHURRIED = {"TOKENTRAIL_STOP__SETTLE_S": "60", "TOKENTRAIL_LOG__DELIVERY_S": "20"}
WITHIN_S = 60
ALL_ENDED = {"pipeline": 0, "sinks": 0, "edge": 0}
LEFT = "the next start reads it again"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    """A broker of these tests' own, with our topics: it is killed and frozen."""
    with session_kafka(tmp_path_factory.mktemp("broker")) as started:
        asyncio.run(apply(started.bootstrap_servers, window_days=6))
        yield started


@pytest.fixture(scope="module")
def database(clickhouse):
    """A database of these tests' own."""
    with fresh_database(clickhouse) as store:
        yield store.query("SELECT currentDatabase() AS name")[0]["name"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The workers' folder: in the same one, a worker is known to its group as the one before it."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def written():
    """The generations that were written to the log so far."""
    return []


@pytest.fixture
def made():
    """What a test started; whatever still runs at its end is killed."""
    processes = []
    yield processes
    for process in processes:
        if process.child is not None:
            process.kill()


def children(warehouse, database, folder, **more):
    """What our processes are told beside their broker."""
    return (
        STOP
        | more
        | {
            "TOKENTRAIL_CLICKHOUSE__URL": warehouse,
            "TOKENTRAIL_CLICKHOUSE__DATABASE": database,
            "TOKENTRAIL_PIPELINE__DATA_DIR": str(folder / "faust"),
        }
    )


def start_all(made, folder, brokers, warehouse, database, name, **more):
    """Start a pipeline worker, the sinks and an edge, each with its broker."""
    extra = children(warehouse, database, folder, **more)
    environs = [environment(broker, extra) for broker in brokers]
    for module, environ in zip(("pipeline", "sinks"), environs, strict=False):
        made.append(Process(module, folder, environ, f"{module}-{name}"))
    made.append(Edge(folder, environs[-1], f"edge-{name}"))
    for process in made:
        process.start()


async def ended(processes):
    """The exit codes, once each has ended by itself."""
    waits = [asyncio.to_thread(process.child.wait, WITHIN_S) for process in processes]
    return dict(zip((p.module for p in processes), await asyncio.gather(*waits), strict=True))


async def asked_twice(processes, first, second):
    """Ask each to end, and again when it has heard."""
    for process in processes:
        process.signal(first)
    for process in processes:
        await process.until_said("stopping")
        if process.child.poll() is None:
            process.signal(second)
    return await ended(processes)


async def running(processes, broker, written, client):
    """All ready; generations are folded and their rows acknowledged, nothing is committed; the edge runs one more."""
    pipeline, sinks, edge = processes
    await pipeline.until_said("pipeline ready")
    await sinks.until_said("sinks ready")
    await edge.until_ready()
    logs = [whole(generation_id=new_id()) for _ in range(5)]
    await publish(broker, woven(logs))
    ids = [log[0].generation_id for log in logs]
    await rows_until(broker, topics.GENERATIONS, GenerationRecord, ids)
    written += ids
    reader = Reader(client)
    await reader.post(edge.url, body(tokens=10_000, interval_ms=20), cut_after=3)
    return reader.generation_id


async def stored(warehouse, wanted):
    """How many rows each generation has, once each that is wanted has one."""
    sql = "SELECT toString(generation_id) AS id, count() FROM generations_final GROUP BY id"
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = dict((await asyncio.to_thread(warehouse.query, sql)).result_rows)
            if set(wanted) <= found.keys():
                return found
            await asyncio.sleep(0.1)


def check_said(made, generation):
    """Pipeline and edge have said what they leave."""
    pipeline, _, edge = made
    assert "not committed in partitions" in pipeline.said()
    assert LEFT in pipeline.said()
    assert f'"generations": ["{generation}"]' in edge.said()


async def test_a_stop_while_the_broker_is_frozen_ends(kafka, clickhouse, database, folder, written, made):
    """Each process ends by itself, says what it leaves undone, and takes a second signal for nothing."""
    async with Simulator(port=0) as simulator, new_client() as client:
        write_config(folder, simulator.base_url)
        start_all(made, folder, [kafka.bootstrap_servers] * 3, clickhouse, database, "frozen")
        generation = await running(made, kafka.bootstrap_servers, written, client)
        os.kill(kafka.pids[1], signal.SIGSTOP)
        try:
            assert await asked_twice(made, signal.SIGINT, signal.SIGTERM) == ALL_ENDED
        finally:
            os.kill(kafka.pids[1], signal.SIGCONT)
    check_said(made, generation)


async def test_a_stop_in_the_first_moment_ends(clickhouse, database, tmp_path, made):
    """Before a process hears signals the signal itself ends it; from then on it ends by itself. Nothing has begun."""
    write_config(tmp_path, "http://127.0.0.1:9")
    async with Gate() as gate:
        start_all(made, tmp_path, [gate.address] * 3, clickhouse, database, "first")
        for process in made:
            process.signal(signal.SIGTERM)
        assert set((await ended(made)).values()) <= {0, -signal.SIGTERM}


async def test_a_stop_without_a_broker_from_the_start_ends(clickhouse, database, tmp_path, made):
    """A broker that takes connections and never answers holds up no process that is asked to end while it starts."""
    write_config(tmp_path, "http://127.0.0.1:9")
    async with Gate() as first, Gate() as second, Gate() as third:
        gates = [first, second, third]
        start_all(made, tmp_path, [gate.address for gate in gates], clickhouse, database, "never")
        for gate, process in zip(gates, made, strict=True):
            async with asyncio.timeout(WITHIN_S):
                await gate.asked.wait()
            process.signal(signal.SIGTERM)
        assert await ended(made) == ALL_ENDED
    assert ["stopped before" in process.said() for process in made] == [True, True, True]


async def test_a_stop_without_a_warehouse_ends(kafka, clickhouse, database, tmp_path, made, written):
    """An insert that is never answered is left to the next start; so is a migration, and nobody waits for its thread."""
    host, port = clickhouse.removeprefix("http://").split(":")
    async with Gate(host, int(port)) as gate:
        environ = environment(kafka.bootstrap_servers, children(f"http://{gate.address}", database, tmp_path))
        sinks = Process("sinks", tmp_path, environ, "sinks-shut")
        made.append(sinks)
        sinks.start()
        await sinks.until_said("sinks ready")
        gate.shut()
        ids = [new_id()]
        await publish(kafka.bootstrap_servers, whole(generation_id=ids[0]))
        written += ids
        await gate.asked.wait()
        assert await asked_twice([sinks], signal.SIGTERM, signal.SIGTERM) == {"sinks": 0}
        assert LEFT in sinks.said()
        gate.asked.clear()
        sinks.start()
        await gate.asked.wait()
        assert await asked_twice([sinks], signal.SIGTERM, signal.SIGTERM) == {"sinks": 0}


async def test_a_stop_with_everything_there_leaves_nothing(
    kafka, clickhouse, database, folder, written, made
):
    """After all those stops every row is there, once; the last stop commits all that was read."""
    async with Simulator(port=0) as simulator, new_client() as client:
        write_config(folder, simulator.base_url)
        start_all(made, folder, [kafka.bootstrap_servers] * 3, clickhouse, database, "alive", **UNHURRIED)
        await running(made, kafka.bootstrap_servers, written, client)
        with connect(clickhouse, database=database) as warehouse:
            found = await stored(warehouse, written)
        assert {found[generation] for generation in written} == {1}
        assert await asked_twice(made, signal.SIGTERM, signal.SIGTERM) == ALL_ENDED
    assert "everything that was read is settled and committed" in made[0].said()
    assert not [process.name for process in made if LEFT in process.said()]


async def test_a_stop_after_the_broker_died_ends(kafka, clickhouse, database, folder, written, made):
    """Each process ends by itself, says what it leaves undone, and takes a second signal for nothing."""
    async with Simulator(port=0) as simulator, new_client() as client:
        write_config(folder, simulator.base_url)
        start_all(made, folder, [kafka.bootstrap_servers] * 3, clickhouse, database, "killed")
        generation = await running(made, kafka.bootstrap_servers, written, client)
        kafka.kill()
        assert await asked_twice(made, signal.SIGTERM, signal.SIGINT) == ALL_ENDED
    check_said(made, generation)
