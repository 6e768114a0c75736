"""`EmbeddedKafka`: brokers as an object with start, stop, kill and restart, for tests and for short programs.

Invariants: after `stop` (or the end of the `with` block) none of its processes runs; `restart` brings a node back under
the same ports on the same storage. A process that wants to supervise the brokers itself uses `prepare` instead.
Before this file: `cluster.py`. After it: test fixtures, the demo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from compose.embedded.kafka.cluster import READY_TIMEOUT_S, STOP_GRACE_S, KafkaOptions, PreparedKafka, prepare
from compose.embedded.kafka.process import Spawner, record_of, terminate

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from types import TracebackType

_REAP_TIMEOUT_S = 5.0


class EmbeddedKafka:
    """One or three real brokers that live as long as this object is started. All methods block; none is async.

    `die_with_parent`: the brokers are killed by the kernel if this process dies without stopping them (Linux only;
    elsewhere the next start on the same directory ends them).
    """

    def __init__(self, options: KafkaOptions, *, die_with_parent: bool = False) -> None:
        self._options = options
        self._die_with_parent = die_with_parent
        self._prepared: PreparedKafka | None = None
        self._spawner: Spawner | None = None
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def prepared(self) -> PreparedKafka:
        """What is running: ports, folders, version. Raises RuntimeError before the first start."""
        if self._prepared is None:
            raise RuntimeError("start the embedded Kafka first")
        return self._prepared

    @property
    def bootstrap_servers(self) -> str:
        """Give what Kafka clients call bootstrap.servers."""
        return self.prepared.bootstrap_servers

    @property
    def version(self) -> str:
        """Give the version of Apache Kafka, such as 4.4.0."""
        return self.prepared.version

    @property
    def pids(self) -> dict[int, int]:
        """Give node id -> pid of the nodes that run."""
        return {node_id: child.pid for node_id, child in self._children.items() if child.poll() is None}

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> Self:
        """Prepare, start all nodes at once and return when they serve. Raises EmbeddedKafkaError; then none runs."""
        self._prepared = prepare(self._options)
        self._spawner = Spawner(die_with_parent=self._die_with_parent)
        try:
            for node_id in self._prepared.node_ids:
                self._spawn(node_id)
            self._wait(self._prepared.node_ids, timeout_s)
        except BaseException:
            self.stop(grace_s=0)
            raise
        return self

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Stop all nodes at once, cleanly if they manage within `grace_s`. Does nothing if none runs."""
        running = (record_of(pid) for pid in self.pids.values())
        terminate([record for record in running if record is not None], grace_s)
        for node_id, child in self._children.items():
            child.wait(_REAP_TIMEOUT_S)
            self.prepared.node(node_id).pid_file.unlink(missing_ok=True)
        self._children.clear()
        if self._spawner is not None:
            self._spawner.close()
            self._spawner = None

    def kill(self, node_id: int = 1) -> None:
        """End a node by SIGKILL and return when it is gone."""
        child = self._children[node_id]
        child.kill()
        child.wait(_REAP_TIMEOUT_S)

    def restart(self, node_id: int = 1, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start a node again that was killed or ended, and return when it serves."""
        if node_id in self.pids:
            raise RuntimeError(f"node {node_id} still runs")
        self._spawn(node_id)
        self._wait((node_id,), timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _spawn(self, node_id: int) -> None:
        if self._spawner is None:
            raise RuntimeError("start the embedded Kafka first")
        node = self.prepared.node(node_id)
        child = self._spawner.start(self.prepared.command(node_id), node.console_file)
        self._children[node_id] = child
        self.prepared.record_started(node_id, child.pid)

    def _wait(self, node_ids: Sequence[int], timeout_s: float) -> None:
        self.prepared.wait_ready_blocking(timeout_s, node_ids, lambda node_id: self._children[node_id].poll())
