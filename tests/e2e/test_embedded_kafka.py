"""The embedded broker, really started: what survives, what is refused, what a dead runner leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from compose.embedded.kafka import (
    CorruptStorageError,
    DataDirInUseError,
    EmbeddedKafka,
    PortInUseError,
    prepare,
)
from compose.embedded.kafka.process import start_mark
from tests.support.kafka import kafka_options

pytestmark = pytest.mark.services

TOPIC = "records"


async def create_topic(bootstrap_servers: str, replicas: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=replicas)])
        assert [error[1] for error in answer.topic_errors] == [0]
    finally:
        await admin.close()


@contextlib.asynccontextmanager
async def producer_of(bootstrap_servers: str):
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        request_timeout_ms=20_000,
        retry_backoff_ms=50,
        metadata_max_age_ms=5000,
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def read_all(bootstrap_servers: str) -> list[bytes]:
    partition = TopicPartition(TOPIC, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="none", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        values: list[bytes] = []
        while len(values) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


async def test_acknowledged_records_survive_kill_9_and_a_clean_stop(tmp_path):
    """Whatever was acknowledged is still there, once and in order, after kill -9 under load and after a clean stop."""
    kafka = EmbeddedKafka(kafka_options(tmp_path / "kafka dir é"), die_with_parent=True)
    acknowledged: list[bytes] = []
    await asyncio.to_thread(kafka.start)
    try:
        address, first_pid = kafka.bootstrap_servers, kafka.pids[1]
        await create_topic(address, replicas=1)
        async with producer_of(address) as producer:

            async def write(count: int) -> None:
                for _ in range(count):
                    value = str(len(acknowledged)).encode()
                    await producer.send_and_wait(TOPIC, value)
                    acknowledged.append(value)

            await write(200)
            during = asyncio.create_task(write(200))
            kafka.kill()
            assert kafka.pids == {}
            await asyncio.to_thread(kafka.restart)
            await during
        assert kafka.bootstrap_servers == address
        assert kafka.pids[1] != first_pid
        await asyncio.to_thread(kafka.stop)
        assert kafka.pids == {}
        await asyncio.to_thread(kafka.start)
        assert kafka.bootstrap_servers == address
        assert await read_all(address) == acknowledged
    finally:
        await asyncio.to_thread(kafka.stop)
    assert len(acknowledged) == 400


async def test_two_brokers_on_one_directory_or_one_port_are_refused(tmp_path):
    """While one broker runs, a second on its directory or its port is an error that says so, and does it no harm."""
    with EmbeddedKafka(kafka_options(tmp_path / "a"), die_with_parent=True) as kafka:
        with pytest.raises(DataDirInUseError, match=rf"broker \(process {kafka.pids[1]}\)"):
            prepare(kafka_options(tmp_path / "a"))
        kafka.prepared.node(1).pid_file.unlink()
        with pytest.raises(DataDirInUseError, match="Another process runs a broker"):
            prepare(kafka_options(tmp_path / "a"))
        kafka.prepared.record_started(1, kafka.pids[1])
        port = kafka.prepared.node(1).port
        with pytest.raises(PortInUseError, match=f"Port {port} .* another port"):
            prepare(kafka_options(tmp_path / "b", port=port))
        assert kafka.prepared.is_ready()
        kafka.stop()
        assert kafka.pids == {}
        assert "[kafka-shutdown-hook]" in kafka.prepared.node(1).log_file.read_text()


async def test_a_supervisors_child_that_ends_is_explained(tmp_path):
    """A supervisor that runs the command itself is told why it ended: a port taken in between, storage damaged."""
    prepared = prepare(kafka_options(tmp_path))

    async def start() -> None:
        child = await asyncio.create_subprocess_exec(
            *prepared.command(1), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        console = asyncio.create_task(child.communicate())
        try:
            prepared.record_started(1, child.pid)
            await prepared.wait_ready(timeout_s=30, returncode=lambda _: child.returncode)
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await console

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", prepared.node(1).port))
        listener.listen()
        with pytest.raises(PortInUseError, match="Address already in use"):
            await start()
    meta = prepared.node(1).storage / "meta.properties"
    good = meta.read_text()
    meta.unlink()
    with pytest.raises(CorruptStorageError, match=r"meta\.properties"):
        await start()
    with pytest.raises(CorruptStorageError, match="move"):
        prepare(kafka_options(tmp_path))
    meta.write_text(good)
    assert prepare(kafka_options(tmp_path)).bootstrap_servers == prepared.bootstrap_servers
    await start()


RUNNER = """\
import os, pathlib, sys, threading
from compose.embedded.kafka import EmbeddedKafka
from tests.support.kafka import kafka_options
kafka = EmbeddedKafka(kafka_options(pathlib.Path(sys.argv[1])), die_with_parent=sys.argv[2] == "yes")
starter = threading.Thread(target=kafka.start)
starter.start()
starter.join()
print(kafka.pids[1], flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def runner(data_dir: Path, die_with_parent: str):
    """Another process which starts a broker from a thread that ends; gives (runner, the broker's pid)."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(data_dir), die_with_parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def wait_until(condition, timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.02)
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_broker_dies_with_its_parent_but_not_with_the_thread_that_started_it(tmp_path):
    """With die_with_parent a killed runner leaves nothing behind, and a broker outlives the thread of its start."""
    with runner(tmp_path, "yes") as (process, broker_pid):
        assert start_mark(broker_pid) is not None
        process.kill()
        assert wait_until(lambda: start_mark(broker_pid) is None)


def test_the_next_start_takes_over_from_a_dead_runner(tmp_path):
    """A broker whose runner was killed is ended by the next start on its directory, which keeps port and cluster."""
    with runner(tmp_path, "no") as (process, broker_pid):
        with pytest.raises(DataDirInUseError, match=f"Process {process.pid} runs"):
            prepare(kafka_options(tmp_path))
        process.kill()
        process.wait(5)
        assert start_mark(broker_pid) is not None
        with EmbeddedKafka(kafka_options(tmp_path), die_with_parent=True) as kafka:
            assert start_mark(broker_pid) is None
            assert kafka.prepared.is_ready()


async def test_three_nodes_keep_acknowledging_without_one_and_stop_together(tmp_path):
    """With one of three brokers killed, acks=all goes on; it comes back; a frozen one cannot hold up the stop for ever."""
    kafka = EmbeddedKafka(kafka_options(tmp_path, nodes=3), die_with_parent=True)
    await asyncio.to_thread(kafka.start)
    try:
        await create_topic(kafka.bootstrap_servers, replicas=3)
        async with producer_of(kafka.bootstrap_servers) as producer:
            values = [str(n).encode() for n in range(60)]
            for value in values[:30]:
                await producer.send_and_wait(TOPIC, value)
            kafka.kill(2)
            for value in values[30:]:
                await producer.send_and_wait(TOPIC, value)
        await asyncio.to_thread(kafka.restart, 2)
        assert sorted(kafka.pids) == [1, 2, 3]
        assert await read_all(kafka.bootstrap_servers) == values
        os.kill(kafka.pids[3], signal.SIGSTOP)
    finally:
        await asyncio.to_thread(kafka.stop)
    assert kafka.pids == {}
