"""The folder of one stack (``.tokentrail/``): what runs, on which ports, with which keys. Files, no processes.

    stack.json        what runs now, each process as pid and start mark; gone after a clean stop
    up.lock           held by the living supervisor: the kernel lets go of it when that dies, however it dies
    ports.json        ports, kept over restarts so that clients find everything where it was
    keys.json         development API keys in the clear, readable by their owner only
    tokentrail.toml   the configuration, written once when there is none
    logs/             one file per process
    kafka/ clickhouse/ faust/   the services' own data

Invariants: a file is written whole or not at all; a process is only ever meant as the pair (pid, start mark).
Before this file: nothing. After it: ``stack`` (what to run), ``supervisor`` (runs it), ``target`` (finds it).
"""

import fcntl
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import msgspec

from compose.embedded.kafka.layout import free_port, port_is_free
from compose.embedded.kafka.process import start_mark
from schemas.errors import TokentrailError

DEFAULT_FOLDER = ".tokentrail"
PORT_MAX = 65_535
T = TypeVar("T")


class StateError(TokentrailError):
    """A file of the folder cannot be used; the message names it and says what to do."""


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where Kafka or ClickHouse is. ``kind``: embedded or external; ``version`` as it says itself, if known."""

    address: str
    kind: str
    version: str = ""


class RunningProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One child. ``tier`` is the order of stopping: the highest first. ``url`` where it has one."""

    name: str
    pid: int
    mark: str
    tier: int
    stop_grace_s: float
    url: str = ""
    starts: int = 1

    @property
    def runs(self) -> bool:
        """Whether this very process still runs."""
        return start_mark(self.pid) == self.mark


class StackState(msgspec.Struct, frozen=True, kw_only=True):
    """``stack.json``: everything that a second terminal needs to find its way."""

    supervisor_pid: int
    supervisor_mark: str
    started_us: int
    config: str  # the tokentrail.toml in force
    kafka: ServerInfo
    clickhouse: ServerInfo
    edges: list[str] = []
    model: str = ""  # a model that this stack serves
    ready: bool = False
    processes: list[RunningProcess] = []

    @property
    def supervisor_runs(self) -> bool:
        """Whether the supervisor that wrote this still runs."""
        return start_mark(self.supervisor_pid) == self.supervisor_mark


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths of one stack's folder, and its small files."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration written by ``up``."""
        return self.path / "tokentrail.toml"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.path / "logs"

    @property
    def stack_file(self) -> Path:
        """What runs now."""
        return self.path / "stack.json"

    def read_state(self) -> StackState | None:
        """The last state; None where nothing was started, or all of it was stopped in order."""
        return _read(self.stack_file, StackState)

    def write_state(self, state: StackState) -> None:
        """Replace the state."""
        _write(self.stack_file, state, mode=0o644)

    def forget_state(self) -> None:
        """Say that nothing runs any more."""
        try:
            self.stack_file.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self.stack_file, error) from error

    def read_keys(self) -> dict[str, str]:
        """Tenant → development key; empty where the configuration is not ours."""
        return _read(self.path / "keys.json", dict[str, str]) or {}

    def write_keys(self, keys: Mapping[str, str]) -> None:
        """Keep the development keys, for their owner's eyes."""
        _write(self.path / "keys.json", dict(keys), mode=0o600)

    def ports(self, wanted: Mapping[str, int], demanded: Collection[str] = ()) -> dict[str, int]:
        """Name → port on 127.0.0.1 for each wanted one, kept for the next time.

        ``wanted`` gives the port that is preferred, 0 for any. The preferred one comes first, then that of
        the last time, then any: whichever is free.
        Who is ``demanded`` gets the one that is wanted, or StateError.
        """
        kept = _read(self.path / "ports.json", dict[str, int]) or {}
        taken: set[int] = set()
        chosen: dict[str, int] = {}
        for name, preferred in wanted.items():
            candidates = (preferred, kept.get(name, 0))
            usable = (port for port in candidates if port and port not in taken and port_is_free(port))
            if name in demanded:
                _check_free(name, preferred, taken)
                chosen[name] = preferred
            else:
                chosen[name] = next(usable, 0) or free_port(taken)
            taken.add(chosen[name])
        _write(self.path / "ports.json", kept | chosen, mode=0o644)
        return chosen

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether we hold the folder: true for one process at a time, until it leaves or dies."""
        with self._lock_file() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _lock_file(self) -> TextIO:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return (self.path / "up.lock").open("w")
        except OSError as error:
            raise _unwritable(self.path, error) from error


def _check_free(name: str, port: int, taken: Collection[int]) -> None:
    if port > PORT_MAX:
        raise StateError(f"there is no port {port} for {name}: give a lower one.")
    if port in taken or not port_is_free(port):
        raise StateError(
            f"port {port}, wanted for {name}, is in use. End the process that listens there "
            f"(`ss -ltnp 'sport = :{port}'` names it), or choose another port (0: any free one)."
        )


def _unwritable(path: Path, error: OSError) -> StateError:
    return StateError(
        f"{path} cannot be written ({error.strerror}). Make room or give yourself the right to, or take another folder "
        "with --dir."
    )


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StateError(
            f"{path} cannot be read ({error}). Remove it, and run `tokentrail up` again."
        ) from error


def _write(path: Path, value: Any, *, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(mode=mode)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _unwritable(path, error) from error
