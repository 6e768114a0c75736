"""From options to brokers that can be started: find, verify, lay out, format; then tell when they are ready.

Order of `prepare` (each step may raise its own error of errors.py, and all may be repeated):
  1. Java and jars are found and verified;
  2. the directory's cluster is read or planned: ports and cluster id;
  3. brokers left behind by a dead runner are ended; a living one is an error, as is a taken port;
  4. the files of the command are written; storage is checked, and formatted where it never was.
Before this file: the caller's options. After it: a supervisor which runs `PreparedKafka.command`, or `service.py`.
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compose.embedded.kafka import node as broker
from compose.embedded.kafka import probe, process
from compose.embedded.kafka.errors import (
    DataDirInUseError,
    DataDirUnusableError,
    EmbeddedKafkaError,
    PortInUseError,
    StartTimeoutError,
)
from compose.embedded.kafka.jars import find_jars
from compose.embedded.kafka.java import find_java
from compose.embedded.kafka.layout import (
    HOST,
    Cluster,
    Node,
    check_storage,
    load_cluster,
    plan_cluster,
    port_is_free,
    save_cluster,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DEFAULT_HEAP_MIB = 160  # 170 MiB resident per broker; 128 serves as well, 32 does not start
READY_TIMEOUT_S = 60.0  # one node: 1-3 s, three: 4-10 s; a loaded machine may take several times that
STOP_GRACE_S = (
    15.0  # three nodes stopped at once are gone in 5.5 s; later than this they wait for a quorum in vain
)

_LEFTOVER_GRACE_S = 5.0
_PROBE_TIMEOUT_S = 1.0
_NOT_IN_LOG_DIRS = ",\n\r"
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """What the caller decides.

    `port` and `controller_port` are node 1's (the next nodes count on from there); 0 means: those of the last
    time, or free ones. `environ` is read for JAVA_HOME, KAFKA_HOME and HOME only.
    """

    data_dir: Path
    cache_dir: Path
    environ: Mapping[str, str]
    port: int = 0
    controller_port: int = 0
    nodes: Literal[1, 3] = 1
    heap_mib: int = DEFAULT_HEAP_MIB


@dataclass(frozen=True, slots=True)
class PreparedKafka:
    """Brokers that can be started, any number of times, by whoever supervises them."""

    cluster: Cluster
    runtime: broker.Runtime

    @property
    def bootstrap_servers(self) -> str:
        """Give what Kafka clients call bootstrap.servers."""
        return self.cluster.bootstrap_servers

    @property
    def version(self) -> str:
        """Give the version of Apache Kafka, such as 4.4.0."""
        return self.runtime.jars.version

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Give the ids of the nodes, from 1."""
        return tuple(node.node_id for node in self.cluster.nodes)

    def node(self, node_id: int) -> Node:
        """Give a node's folder, ports and files."""
        return self.cluster.nodes[self.node_ids.index(node_id)]

    def command(self, node_id: int) -> list[str]:
        """Give the command that runs this node in the foreground.

        SIGTERM stops it. Stop all nodes at once: the last of three waits for a quorum that is gone, so SIGKILL
        whatever still runs after STOP_GRACE_S.
        """
        return broker.command(self.node(node_id), self.runtime)

    def record_started(self, node_id: int, pid: int) -> None:
        """Note that this process started the node as `pid`: the next `prepare` ends it, should this process die."""
        process.write_pid_file(self.node(node_id).pid_file, pid)

    def is_ready(self, node_ids: Sequence[int] | None = None) -> bool:
        """Tell whether each of these nodes (default: all) serves, and knows that the others of them do."""
        wanted = self.node_ids if node_ids is None else tuple(node_ids)
        for node_id in wanted:
            view = probe.ask(HOST, self.node(node_id).port, _PROBE_TIMEOUT_S)
            if (
                view is None
                or view.cluster_id != self.cluster.cluster_id
                or not view.node_ids.issuperset(wanted)
            ):
                return False
        return True

    def explain_exit(self, node_id: int, returncode: int, console: str = "") -> EmbeddedKafkaError:
        """Give the error that tells why a node ended by itself.

        `console` is what the process wrote to its standard output and error; default: the node's console file.
        """
        return broker.explain_exit(self.node(node_id), returncode, console)

    async def wait_ready(
        self,
        timeout_s: float = READY_TIMEOUT_S,
        node_ids: Sequence[int] | None = None,
        returncode: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        """Return when these nodes (default: all) are ready.

        Raises StartTimeoutError, or `explain_exit`'s error as soon as `returncode(node_id)` says that one ended.
        """
        wanted = self.node_ids if node_ids is None else tuple(node_ids)
        deadline = time.monotonic() + timeout_s
        while not await asyncio.to_thread(self.is_ready, wanted):
            self._raise_if_hopeless(wanted, timeout_s, deadline, returncode)
            await asyncio.sleep(_POLL_S)

    def wait_ready_blocking(
        self,
        timeout_s: float = READY_TIMEOUT_S,
        node_ids: Sequence[int] | None = None,
        returncode: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        """Do as `wait_ready`, for callers without an event loop."""
        wanted = self.node_ids if node_ids is None else tuple(node_ids)
        deadline = time.monotonic() + timeout_s
        while not self.is_ready(wanted):
            self._raise_if_hopeless(wanted, timeout_s, deadline, returncode)
            time.sleep(_POLL_S)

    def _raise_if_hopeless(
        self,
        wanted: tuple[int, ...],
        timeout_s: float,
        deadline: float,
        returncode: Callable[[int], int | None],
    ) -> None:
        for node_id in wanted:
            code = returncode(node_id)
            if code is not None:
                raise self.explain_exit(node_id, code)
        if time.monotonic() > deadline:
            logs = ", ".join(str(self.node(node_id).log_file) for node_id in wanted)
            raise StartTimeoutError(
                f"Kafka was not ready within {timeout_s:.0f} s. See {logs}; a busy machine may only need more time."
            )


def prepare(options: KafkaOptions) -> PreparedKafka:
    """Make the brokers startable. Blocks (a first time: downloads of 43 MB, and 1-2 s per node to format)."""
    jars = find_jars(options.environ, options.cache_dir.absolute())
    runtime = broker.Runtime(find_java(options.environ), jars, options.heap_mib)
    data_dir = options.data_dir.absolute()  # a supervisor's child may run in another folder
    with _one_at_a_time(data_dir):
        cluster = plan_cluster(
            data_dir, load_cluster(data_dir), options.nodes, options.port, options.controller_port
        )
        _end_leftovers(cluster)
        for node in cluster.nodes:
            broker.refuse_foreign_holder(node)
            _require_free_ports(node)
        save_cluster(cluster)
        for node in cluster.nodes:
            broker.write_files(cluster, node, runtime)
            check_storage(cluster, node)
        return PreparedKafka(_formatted(cluster, runtime), runtime)


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """Give where downloads are kept for all of this user's projects: TOKENTRAIL_CACHE, else below the XDG cache."""
    explicit = environ.get("TOKENTRAIL_CACHE")
    if explicit:
        return Path(explicit)
    cache_home = environ.get("XDG_CACHE_HOME")
    return (
        Path(cache_home) if cache_home else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    ) / "tokentrail"


def _formatted(cluster: Cluster, runtime: broker.Runtime) -> Cluster:
    fresh = [node for node in cluster.nodes if node.node_id not in cluster.formatted]
    if not fresh:
        return cluster
    with ThreadPoolExecutor(len(fresh)) as pool:
        for _ in pool.map(lambda node: broker.format_storage(cluster, node, runtime), fresh):
            pass
    done = replace(cluster, formatted=frozenset(node.node_id for node in cluster.nodes))
    save_cluster(done)
    return done


def _end_leftovers(cluster: Cluster) -> None:
    leftovers = []
    for node in cluster.nodes:
        record = process.read_pid_file(node.pid_file)
        if record is None or not record.runs:
            continue
        if not record.is_leftover:
            raise DataDirInUseError(
                f"Process {record.owner_pid} runs a broker (process {record.pid}) on {node.folder}. Use that one, "
                "end it first, or choose another directory."
            )
        leftovers.append(record)
    process.terminate(leftovers, _LEFTOVER_GRACE_S)


def _require_free_ports(node: Node) -> None:
    for what, port in (("the broker", node.port), ("the controller", node.controller_port)):
        if not port_is_free(port):
            raise PortInUseError(
                f"Port {port} of {HOST}, meant for {what} of node {node.node_id}, is in use. End the process that "
                f"listens there (`ss -ltnp 'sport = :{port}'` names it), or choose another port."
            )


@contextmanager
def _one_at_a_time(data_dir: Path) -> Iterator[None]:
    """Let one process at a time prepare a directory; the other one then meets what the first has made."""
    if set(str(data_dir)) & set(_NOT_IN_LOG_DIRS):
        raise DataDirUnusableError(
            f"{str(data_dir)!r} cannot be Kafka's directory: its log.dirs is a list separated by commas. Choose another."
        )
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        file = (data_dir / "prepare.lock").open("w")
    except OSError as error:
        raise DataDirUnusableError(
            f"{data_dir} cannot be written to ({error.strerror}). Make it writable, or choose another directory."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
