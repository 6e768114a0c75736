"""What the embedded broker's directory holds, what brokers are told, and how their state and end are read."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from compose.embedded.kafka import (
    BrokerExitedError,
    ClusterShapeError,
    CorruptStorageError,
    DataDirInUseError,
    PortInUseError,
    probe,
    process,
)
from compose.embedded.kafka.jars import KafkaJars
from compose.embedded.kafka.java import Java
from compose.embedded.kafka.layout import (
    Cluster,
    check_storage,
    load_cluster,
    new_cluster_id,
    plan_cluster,
    port_is_free,
    render_properties,
    save_cluster,
)
from compose.embedded.kafka.node import Runtime, command, explain_exit, write_files


def plan(data_dir: Path, nodes: int = 1, port: int = 0, controller_port: int = 0) -> Cluster:
    return plan_cluster(data_dir, load_cluster(data_dir), nodes, port, controller_port)


def properties_of(cluster: Cluster, node_id: int = 1) -> dict[str, str]:
    text = render_properties(cluster, cluster.nodes[node_id - 1])
    return dict(line.split("=", 1) for line in text.splitlines())


def test_ports_and_cluster_id_stay_once_chosen(tmp_path):
    """A second start on the same directory has the same addresses, since clients have them too."""
    first = plan(tmp_path, nodes=3)
    save_cluster(first)
    assert plan(tmp_path, nodes=3) == first
    ports = [p for n in first.nodes for p in (n.port, n.controller_port)]
    assert len(set(ports)) == 6


def test_chosen_ports_are_outside_the_range_of_outgoing_connections(tmp_path):
    """A client that retries a dead broker's port can never be given that port as its own."""
    lowest_outgoing = 32_768  # Linux; macOS and IANA begin at 49,152
    assert all(20_000 <= node.port < lowest_outgoing for node in plan(tmp_path, nodes=3).nodes)


def test_given_ports_count_on_from_node_1(tmp_path):
    """`port` and `controller_port` are those of the first of three nodes."""
    nodes = plan(tmp_path, nodes=3, port=9092, controller_port=9192).nodes
    assert [(n.port, n.controller_port) for n in nodes] == [(9092, 9192), (9093, 9193), (9094, 9194)]


def test_ports_that_meet_are_refused(tmp_path):
    """A controller port inside the brokers' range is said before anything starts."""
    with pytest.raises(ClusterShapeError, match="9093 would be used twice"):
        plan(tmp_path, nodes=3, port=9092, controller_port=9093)


def test_another_number_of_nodes_is_refused(tmp_path):
    """A one-node directory is not silently made into a cluster of three."""
    save_cluster(plan(tmp_path))
    with pytest.raises(ClusterShapeError, match="made for 1 node"):
        plan(tmp_path, nodes=3)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"cluster_id": "x"}', '{"cluster_id":"x","nodes":[1],"formatted":[]}']
)
def test_a_garbled_cluster_file_is_corrupt_storage(tmp_path, content):
    """A cluster.json that cannot be read is an error with a way out, never a new cluster over the old one."""
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(CorruptStorageError, match="move"):
        load_cluster(tmp_path)


def test_strange_storage_is_not_taken_over(tmp_path):
    """Kafka storage without our cluster.json is somebody else's."""
    (tmp_path / "node-1" / "log").mkdir(parents=True)
    (tmp_path / "node-1" / "log" / "meta.properties").write_text("cluster.id=x\n")
    with pytest.raises(CorruptStorageError, match=r"no cluster\.json"):
        load_cluster(tmp_path)


def formatted_cluster(tmp_path: Path, meta: str | None) -> Cluster:
    cluster = plan(tmp_path)
    save_cluster(cluster)
    content = json.loads((tmp_path / "cluster.json").read_text())
    content["formatted"] = [1]
    (tmp_path / "cluster.json").write_text(json.dumps(content))
    cluster.nodes[0].storage.mkdir(parents=True)
    if meta is not None:
        text = meta.replace("CLUSTER", cluster.cluster_id)
        (cluster.nodes[0].storage / "meta.properties").write_text(text)
    return plan(tmp_path)


@pytest.mark.parametrize(
    "meta",
    [
        None,
        "",
        "\x00\x01garbage",
        "cluster.id=another\nnode.id=1\nversion=1\n",
        "cluster.id=CLUSTER\nnode.id=2\n",
    ],
)
def test_storage_that_is_not_this_nodes_is_corrupt(tmp_path, meta):
    """Formatted storage whose meta.properties is gone, garbled or of another cluster or node stops the start."""
    cluster = formatted_cluster(tmp_path, meta)
    with pytest.raises(CorruptStorageError, match="move"):
        check_storage(cluster, cluster.nodes[0])


def test_good_storage_passes(tmp_path):
    """What Kafka's storage tool writes is accepted."""
    cluster = formatted_cluster(
        tmp_path, "#\n#Sun Nov 29\ncluster.id=CLUSTER\ndirectory.id=x\nnode.id=1\nversion=1\n"
    )
    check_storage(cluster, cluster.nodes[0])


def test_cluster_ids_are_what_kafka_takes():
    """22 characters of URL-safe base64 which the storage tool does not read as an option."""
    ids = [new_cluster_id() for _ in range(300)]
    assert {len(i) for i in ids} == {22}
    assert not any(i.startswith("-") for i in ids)


def test_one_node_is_told_to_recover_fast_and_to_make_no_topics(tmp_path):
    """The settings that decide outage time and safety are in what a single broker reads."""
    properties = properties_of(plan(tmp_path, port=9092, controller_port=9192))
    assert properties["broker.session.timeout.ms"] == "1000"
    assert properties["auto.create.topics.enable"] == "false"
    assert properties["min.insync.replicas"] == properties["default.replication.factor"] == "1"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:9192"


def test_three_nodes_acknowledge_on_two(tmp_path):
    """Three brokers replicate to all and acknowledge when two have a record."""
    cluster = plan(tmp_path, nodes=3)
    properties = properties_of(cluster, 2)
    assert properties["node.id"] == "2"
    assert (properties["default.replication.factor"], properties["min.insync.replicas"]) == ("3", "2")
    assert properties["broker.session.timeout.ms"] == "3000"
    assert len(properties["controller.quorum.voters"].split(",")) == 3


def test_any_path_can_be_written_into_properties(tmp_path):
    """A folder with a backslash or a letter beyond ASCII survives Java's ISO 8859-1 properties format."""
    properties = properties_of(plan(tmp_path / "a\\b é𝄞"))
    assert properties["log.dirs"].endswith("a\\u005cb \\u00e9\\ud834\\udd1e/node-1/log")


def test_the_command_is_java_and_a_file_that_holds_every_argument(tmp_path):
    """Whoever supervises the broker starts it with two words; jars and quoting are in the file."""
    cluster = plan(tmp_path / 'with "quotes" and spaces')
    node = cluster.nodes[0]
    runtime = Runtime(
        Java(Path("/jdk/bin/java"), 17, "x"), KafkaJars((Path("/a.jar"), Path("/b.jar")), "4", "x"), 160
    )
    write_files(cluster, node, runtime)
    assert command(node, runtime) == ["/jdk/bin/java", f"@{node.jvm_args}"]
    lines = node.jvm_args.read_text().splitlines()
    assert '"-Xmx160m"' in lines
    assert '"/a.jar:/b.jar"' in lines
    assert lines[-2:] == ['"kafka.Kafka"', '"' + str(node.properties).replace('"', '\\"') + '"']


@pytest.mark.parametrize(
    ("logged", "error", "advice"),
    [
        (
            "ERROR x: Socket server failed to bind to 127.0.0.1:29411: Address already in use.",
            PortInUseError,
            "another port",
        ),
        (
            "KafkaException: Failed to acquire lock on file .lock in /d. A Kafka instance is using it.",
            DataDirInUseError,
            "another directory",
        ),
        ("RuntimeException: No readable meta.properties files found.", CorruptStorageError, "empty log"),
        ("something that nobody has seen before", BrokerExitedError, "exit code 1"),
    ],
)
def test_the_end_of_a_broker_is_explained_from_its_log(tmp_path, logged, error, advice):
    """What a broker logged before it gave up becomes a typed error which quotes the line and says what to do."""
    node = plan(tmp_path).nodes[0]
    node.folder.mkdir()
    node.log_file.write_text(f"INFO starting\n{logged}\nINFO App info\n")
    explained = explain_exit(node, 1)
    assert type(explained) is error
    assert logged.rstrip(".") in str(explained)
    assert advice in str(explained)


def test_a_jvm_that_never_started_is_not_explained_from_an_older_log(tmp_path):
    """What an older run logged is no reason for a start that did not come to its log."""
    node = plan(tmp_path).nodes[0]
    node.folder.mkdir()
    node.log_file.write_text("Address already in use\n")
    explained = explain_exit(node, 1, "Error occurred during initialization of VM\nToo small maximum heap\n")
    assert type(explained) is BrokerExitedError
    assert "Too small maximum heap" in str(explained)


def test_a_port_with_a_listener_is_not_free():
    """A port is free exactly when nobody listens on it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.listen()
        assert not port_is_free(port)
    assert port_is_free(port)


def metadata_answer(cluster_id: bytes) -> bytes:
    brokers = b"".join(
        struct.pack(">ih9sih", node_id, 9, b"127.0.0.1", 9000 + node_id, -1) for node_id in (1, 3)
    )
    return (
        struct.pack(">iii", 1, 0, 2) + brokers + struct.pack(">h", len(cluster_id)) + cluster_id + b"\0" * 8
    )


def test_a_metadata_answer_is_read():
    """The cluster's id and the ids of its brokers come out of the bytes of Kafka's protocol."""
    assert probe.decode_answer(metadata_answer(b"abc")) == probe.ClusterView("abc", frozenset({1, 3}))


def test_a_truncated_answer_is_an_error_not_a_guess():
    """Cut anywhere before the end of the cluster's id, an answer does not parse."""
    answer = metadata_answer(b"abc")[:-8]
    for size in range(len(answer)):
        with pytest.raises((struct.error, UnicodeDecodeError)):
            probe.decode_answer(answer[:size])


def test_a_port_of_somebody_else_is_not_ready():
    """A listener that never answers is not taken for a broker."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert probe.ask("127.0.0.1", listener.getsockname()[1], 0.05) is None


def test_a_process_is_recognised_by_more_than_its_pid(tmp_path):
    """A pid that was given to another process since is neither 'running' nor signalled."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process.write_pid_file(tmp_path / "pid", child.pid)
        record = process.read_pid_file(tmp_path / "pid")
        assert record is not None
        assert record.runs
        assert record.owner_pid == os.getpid()
        assert not record.is_leftover
        reused = process.PidRecord(child.pid, "another start", record.owner_pid, record.owner_mark)
        assert not reused.runs
        process.terminate([reused], grace_s=0.05)
        assert child.poll() is None
        orphan = process.PidRecord(child.pid, record.mark, record.owner_pid, "another start")
        assert orphan.is_leftover
        process.terminate([orphan], grace_s=5)
        assert child.wait(5) != 0
        assert not record.runs
    finally:
        child.kill()
        child.communicate()


def test_a_half_written_pid_file_is_no_record(tmp_path):
    """A crash while the pid file was written leaves a start that works."""
    (tmp_path / "pid").write_text('{"pid": 1')
    assert process.read_pid_file(tmp_path / "pid") is None
