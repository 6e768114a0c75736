"""What a data directory holds and what each broker is told: ports, cluster id, `server.properties`. No processes here.

    data_dir/cluster.json                 cluster id, nodes, their ports, which are formatted
    data_dir/node-1/server.properties     written at every start from the options: edit the options, not the file
    data_dir/node-1/jvm.args              the java command line (`java @jvm.args`)
    data_dir/node-1/kafka.log             this run's log; kafka.log.1 … of runs before
    data_dir/node-1/kafka.pid             which process runs it, and on whose behalf
    data_dir/node-1/log/                  Kafka's own storage

Invariants: ports and cluster id, once chosen, stay, so that a broker that was killed comes back under the address its
clients know; `cluster.json` exists before anything is formatted, so storage without it is not ours.
Before this file: the options of `cluster.py`. After it: `node.py`, which formats and starts what is described here.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compose.embedded.kafka.errors import ClusterShapeError, CorruptStorageError, PortInUseError

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
CLUSTER_FILE = "cluster.json"

# Below every system's range of ports for outgoing connections: from inside that range a client that retries a dead
# broker's port can be given that very port as its own, connect to itself, and keep the broker from ever coming back.
_PORT_RANGE = range(20_000, 32_000)
_PORT_TRIES = 200


@dataclass(frozen=True, slots=True)
class Node:
    """One broker: its id (from 1), the folder it lives in, its ports on 127.0.0.1."""

    node_id: int
    folder: Path
    port: int
    controller_port: int

    @property
    def storage(self) -> Path:
        """Kafka's log.dirs."""
        return self.folder / "log"

    @property
    def properties(self) -> Path:
        """Kafka's own configuration file."""
        return self.folder / "server.properties"

    @property
    def jvm_args(self) -> Path:
        """The arguments of `java @file`."""
        return self.folder / "jvm.args"

    @property
    def log_file(self) -> Path:
        """The log of the current run; those of older runs are beside it."""
        return self.folder / "kafka.log"

    @property
    def console_file(self) -> Path:
        """What the JVM itself says, when `service.py` starts it."""
        return self.folder / "console.log"

    @property
    def pid_file(self) -> Path:
        """Who runs this node (process.PidRecord)."""
        return self.folder / "kafka.pid"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster of one data directory."""

    data_dir: Path
    cluster_id: str
    nodes: tuple[Node, ...]
    formatted: frozenset[int] = frozenset()

    @property
    def bootstrap_servers(self) -> str:
        """Give what Kafka clients call bootstrap.servers."""
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)


def new_cluster_id() -> str:
    """Make a Kafka uuid: 22 characters of URL-safe base64, not starting with '-' (it would read as an option)."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def load_cluster(data_dir: Path) -> Cluster | None:
    """Read cluster.json; None if the directory is new. Raises CorruptStorageError."""
    path = data_dir / CLUSTER_FILE
    if not path.exists():
        strangers = sorted(str(p.parent) for p in data_dir.glob("**/meta.properties"))
        if strangers:
            raise CorruptStorageError(
                f"{data_dir} holds Kafka storage ({strangers[0]}) but no {CLUSTER_FILE}. Choose another directory, "
                f"or move this one away."
            )
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        nodes = tuple(
            Node(
                int(n["node_id"]),
                data_dir / f"node-{int(n['node_id'])}",
                int(n["port"]),
                int(n["controller_port"]),
            )
            for n in found["nodes"]
        )
        return Cluster(data_dir, str(found["cluster_id"]), nodes, frozenset(map(int, found["formatted"])))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptStorageError(
            f"{path} cannot be read ({type(error).__name__}: {error}). Restore it, or move {data_dir} away to start "
            "with an empty log."
        ) from error


def save_cluster(cluster: Cluster) -> None:
    """Write cluster.json, whole or not at all."""
    cluster.data_dir.mkdir(parents=True, exist_ok=True)
    content = {
        "cluster_id": cluster.cluster_id,
        "nodes": [
            {"node_id": node.node_id, "port": node.port, "controller_port": node.controller_port}
            for node in cluster.nodes
        ],
        "formatted": sorted(cluster.formatted),
    }
    temporary = cluster.data_dir / f".{CLUSTER_FILE}.{secrets.token_hex(4)}"
    temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    temporary.replace(cluster.data_dir / CLUSTER_FILE)


def plan_cluster(
    data_dir: Path, known: Cluster | None, node_count: int, port: int, controller_port: int
) -> Cluster:
    """Give the cluster to run: the known one under its ports, or a new one.

    `port` and `controller_port` are those of node 1 (node 2 has the next, and so on); 0 keeps the stored ports, or
    chooses free ones for a new cluster. Raises ClusterShapeError.
    """
    if known is not None and len(known.nodes) != node_count:
        raise ClusterShapeError(
            f"{data_dir} was made for {len(known.nodes)} node(s), not for {node_count}. Start it with "
            f"{len(known.nodes)}, or choose another directory."
        )
    stored = {node.node_id: node for node in known.nodes} if known else {}
    taken: set[int] = set()

    def choose(asked: int, node_id: int, kept: int | None) -> int:
        chosen = asked + node_id - 1 if asked else kept or free_port(taken)
        if chosen in taken:
            raise ClusterShapeError(
                f"Port {chosen} would be used twice: give broker and controller distinct ports."
            )
        taken.add(chosen)
        return chosen

    nodes = []
    for node_id in range(1, node_count + 1):
        old = stored.get(node_id)
        broker = choose(port, node_id, old.port if old else None)
        controller = choose(controller_port, node_id, old.controller_port if old else None)
        nodes.append(Node(node_id, data_dir / f"node-{node_id}", broker, controller))
    if known is None:
        return Cluster(data_dir, new_cluster_id(), tuple(nodes))
    return Cluster(data_dir, known.cluster_id, tuple(nodes), known.formatted)


def free_port(taken: set[int]) -> int:
    """Give a port on 127.0.0.1 that nobody listens on now and that is not in `taken`."""
    for _ in range(_PORT_TRIES):
        port = _PORT_RANGE.start + secrets.randbelow(len(_PORT_RANGE))
        if port not in taken and port_is_free(port):
            return port
    raise PortInUseError(
        f"No free port between {_PORT_RANGE.start} and {_PORT_RANGE.stop}. Give one explicitly."
    )


def port_is_free(port: int) -> bool:
    """Tell whether a broker could listen on this port of 127.0.0.1, as a JVM would (SO_REUSEADDR)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def render_properties(cluster: Cluster, node: Node) -> str:
    """Give the text of one node's server.properties.

    Static voters even for one node: then ports are configuration only, never part of the stored metadata.
    """
    many = len(cluster.nodes) > 1
    replicas, min_isr = (3, 2) if many else (1, 1)
    voters = ",".join(f"{n.node_id}@{HOST}:{n.controller_port}" for n in cluster.nodes)
    settings = {
        "process.roles": "broker,controller",
        "node.id": node.node_id,
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": voters,
        "log.dirs": node.storage,
        "auto.create.topics.enable": "false",  # topics are made by `topics apply`, with their settings, or not at all
        "default.replication.factor": replicas,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,  # a handful of groups on one machine
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,  # nobody else is about to join
        "num.network.threads": 2,
        "num.io.threads": 2,
        "log.cleaner.dedupe.buffer.size": 4_194_304,  # the default 128 MiB does not fit the heap
        "log.cleaner.threads": 1,
        # A broker that was killed cannot register again before its old session has ended: at the default of 9 s that
        # wait is most of an outage. Three nodes get more, since they compete for the same cores.
        "broker.session.timeout.ms": 3000 if many else 1000,
        "broker.heartbeat.interval.ms": 500 if many else 200,
    }
    if many:
        settings |= {
            "controller.quorum.fetch.timeout.ms": 1500,
            "controller.quorum.election.timeout.ms": 600,
            "controller.quorum.election.backoff.max.ms": 500,
            "replica.lag.time.max.ms": 5000,
        }
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in settings.items())


def check_storage(cluster: Cluster, node: Node) -> None:
    """Check that a node's folder holds this cluster's storage, or nothing yet. Raises CorruptStorageError."""
    way_out = (
        f"Restore {node.storage} from a copy, or move {cluster.data_dir} away to start with an empty log."
    )
    if node.node_id not in cluster.formatted:
        return
    meta = node.storage / "meta.properties"
    try:
        lines = meta.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise CorruptStorageError(f"{meta} cannot be read ({error.strerror}). {way_out}") from error
    found = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    expected = {"cluster.id": cluster.cluster_id, "node.id": str(node.node_id)}
    for name, value in expected.items():
        if found.get(name) != value:
            raise CorruptStorageError(
                f"{meta} says {name}={found.get(name, '(nothing)')!r}, this cluster's is {value!r}. {way_out}"
            )


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file, which is read as ISO 8859-1."""
    return "".join(
        char if char.isascii() and char != "\\" else "".join(f"\\u{unit:04x}" for unit in _utf16(char))
        for char in value
    )


def _utf16(char: str) -> list[int]:
    encoded = char.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(encoded[i : i + 2], "big") for i in range(0, len(encoded), 2)]
