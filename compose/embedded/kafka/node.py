"""One broker: its command line, formatting its storage, and why it ended.

Invariants: the command is the same at every start (same ports, same storage), so that whoever supervises the process
may start it again after a kill -9 without asking anybody; storage is formatted once and never again.
Before this file: `layout.py` (where and what), `java.py` and `jars.py` (with what). After it: `cluster.py`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compose.embedded.kafka.errors import (
    BrokerExitedError,
    CorruptStorageError,
    DataDirInUseError,
    EmbeddedKafkaError,
    FormatError,
    PortInUseError,
)
from compose.embedded.kafka.layout import Cluster, Node, render_properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compose.embedded.kafka.jars import KafkaJars
    from compose.embedded.kafka.java import Java

LOG_CONFIG = Path(__file__).with_name("log4j2.yaml")

_FORMAT_HEAP_MIB = 64
_FORMAT_TIMEOUT_S = 60  # 0.5-1.5 s measured on two busy cores
_QUIET_FROM_JAVA = 24  # from here on the JVM warns about what Kafka and its codecs do by design
_LOG_TAIL_BYTES = 256 * 1024  # a failed start logs less than this
_SHOWN_LINES = 4

# What a broker logs before it gives up, the error it means, and what to do about it.
_REASONS: tuple[tuple[re.Pattern[str], type[EmbeddedKafkaError], str], ...] = (
    (
        re.compile(r"Address already in use|Socket server failed to bind"),
        PortInUseError,
        "Another process has taken one of its ports. End that process, or choose another port.",
    ),
    (
        re.compile(r"Failed to acquire lock on file \.lock"),
        DataDirInUseError,
        "Another process runs a broker on this directory. End that process, or choose another directory.",
    ),
    (
        re.compile(
            r"No readable meta\.properties|InconsistentClusterId|Invalid cluster\.id|Stored node id|"
            r"meta\.properties files?.*(?:invalid|error)|CorruptRecordException|CorruptSnapshotException"
        ),
        CorruptStorageError,
        "Its storage is damaged. Restore it from a copy, or move the data directory away to start with an empty log.",
    ),
)


_NO_JVM = re.compile(
    r"initialization of VM|create the Java Virtual Machine|(?:find or|could not) load main class"
)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What every broker of the cluster is run with."""

    java: Java
    jars: KafkaJars
    heap_mib: int


def write_files(cluster: Cluster, node: Node, runtime: Runtime) -> None:
    """Write what the command refers to: server.properties and jvm.args."""
    node.folder.mkdir(parents=True, exist_ok=True)
    node.properties.write_text(render_properties(cluster, node), encoding="ascii")
    arguments = [
        *_jvm_arguments(runtime, runtime.heap_mib, node.log_file),
        "kafka.Kafka",
        str(node.properties),
    ]
    node.jvm_args.write_text("".join(f"{_quoted(argument)}\n" for argument in arguments), encoding="utf-8")


def command(node: Node, runtime: Runtime) -> list[str]:
    """Give the command that runs this broker in the foreground; SIGTERM stops it cleanly (exit code 143)."""
    return [str(runtime.java.executable), f"@{node.jvm_args}"]


def format_storage(cluster: Cluster, node: Node, runtime: Runtime) -> None:
    """Format a node's storage, which must never have been used. Raises FormatError."""
    if node.storage.exists():
        shutil.rmtree(
            node.storage
        )  # a format that did not come to its end; cluster.json does not count it as done
    finished = subprocess.run(
        [
            str(runtime.java.executable),
            *_jvm_arguments(runtime, _FORMAT_HEAP_MIB, node.folder / "format.log"),
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster.cluster_id}",
            f"--config={node.properties}",
        ],
        capture_output=True,
        text=True,
        timeout=_FORMAT_TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if finished.returncode != 0:
        said = _last_lines(finished.stdout + finished.stderr)
        raise FormatError(
            f"Kafka's storage tool could not format {node.storage} (exit code {finished.returncode}): {said}. "
            "Check that the folder can be written to and that the disk has room, or choose another directory."
        )


def refuse_foreign_holder(node: Node) -> None:
    """Raise DataDirInUseError if a process that we know nothing of holds the storage's lock."""
    path = node.storage / ".lock"
    if not path.exists():
        return
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataDirInUseError(
                f"Another process runs a broker on {node.storage}. End that process (`fuser {path}` names it), or "
                "choose another directory."
            ) from error


def explain_exit(node: Node, returncode: int, console: str = "") -> EmbeddedKafkaError:
    """Give the error that tells why a broker ended by itself, read off its log and what it wrote to the console."""
    console = console or _tail(node.console_file)
    if _NO_JVM.search(console):  # it never came to its log, which is then of an older run
        return BrokerExitedError(
            f"Broker {node.node_id} could not start a JVM: {_last_lines(console)}. Check the heap size and the Java."
        )
    text = _tail(node.log_file) + "\n" + console
    what = f"Broker {node.node_id} (ports {node.port} and {node.controller_port}, {node.folder}) ended"
    for pattern, error, advice in _REASONS:
        found = pattern.search(text)
        if found:
            line = _line_around(text, found.start())
            return error(f"{what}: {line}. {advice}")
    said = _last_lines(console or text)
    return BrokerExitedError(f"{what} with exit code {returncode}: {said}. Its log is {node.log_file}.")


def _jvm_arguments(runtime: Runtime, heap_mib: int, log_file: Path) -> Iterable[str]:
    quiet = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")
    return (
        *(quiet if runtime.java.major >= _QUIET_FROM_JAVA else ()),
        f"-Xmx{heap_mib}m",
        "-XX:+UseSerialGC",  # the smallest footprint at this heap
        "-XX:TieredStopAtLevel=1",  # C1 only: 1 s faster to start, enough for what one machine produces
        "-XX:+ExitOnOutOfMemoryError",  # a broker without memory is to be started again, not to limp
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={LOG_CONFIG}",
        f"-Dkafka.log.file={log_file}",
        "-cp",
        os.pathsep.join(str(path) for path in runtime.jars.paths),
    )


def _quoted(argument: str) -> str:
    """Quote one argument for a `java @file`."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tail(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")


def _line_around(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 :].splitlines()[0].strip()


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_SHOWN_LINES:]) or "it said nothing"
