"""Who holds a data folder: a lock that dies with its process, and a record that says which process it is.

Purpose: one process per folder, a clear refusal for the second, and no leftovers. Invariants: the kernel's lock
decides, the record only explains; a process is named by pid *and* start time, so a pid that was used again is never
taken for it; only a holder whose owner is gone (a server left over from a killed supervisor) is ever stopped.

Before it in the flow: ``__main__``. After it: nothing; ``process`` reads the record from the outside.
"""

import ctypes
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from compose.embedded.clickhouse.errors import DirectoryBusyError, StartError

LOCK_NAME, RECORD_NAME = "server.lock", "server.json"
_PR_SET_PDEATHSIG = 1
# A stopping server finishes its requests; then it is killed, which loses nothing that was acknowledged.
_LEFTOVER_STOP_S = 15.0
_LEFTOVER_KILL_S = 5.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Record:
    """The holder of a folder. Start times are in clock ticks since boot (None where /proc is absent)."""

    pid: int
    start_ticks: int | None
    owner_pid: int | None = None
    owner_start_ticks: int | None = None
    url: str = ""

    @property
    def runs(self) -> bool:
        """Return whether the holder is that very process and alive."""
        return runs(self.pid, self.start_ticks)

    @property
    def is_leftover(self) -> bool:
        """Return whether the holder outlived the process that started it."""
        return self.owner_pid is not None and not runs(self.owner_pid, self.owner_start_ticks)


class Held:
    """A folder that this process holds."""

    def __init__(self, folder: Path, record: Record) -> None:
        self._path = folder / RECORD_NAME
        self._record = record
        self._write()

    def publish(self, url: str) -> None:
        """Say where the holder answers: it is ready from now on."""
        self._record = replace(self._record, url=url)
        self._write()

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self._record)))
        fresh.replace(self._path)


@contextmanager
def held(folder: Path, owner_pid: int | None) -> Iterator[Held]:
    """Hold ``folder`` for the body; stop a leftover holder first; raise `DirectoryBusyError` where one has an owner."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(
            f"{folder} cannot be used: {error.strerror}. Give a folder that you may write to."
        ) from error
    try:
        if not _locks(lock):
            _make_way(folder)
            if not _locks(lock):
                raise _busy(folder, read_record(folder))
        owner_ticks = start_ticks(owner_pid) if owner_pid is not None else None
        yield Held(folder, Record(os.getpid(), start_ticks(os.getpid()), owner_pid, owner_ticks))
        (folder / RECORD_NAME).unlink(missing_ok=True)
    finally:
        os.close(lock)


def read_record(folder: Path) -> Record | None:
    """Return the record of a folder, None where there is none that can be read."""
    try:
        return Record(**json.loads((folder / RECORD_NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def start_ticks(pid: int) -> int | None:
    """Return when a process started (field 22 of /proc/PID/stat); None for no such process, or no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state_and_on = text.rpartition(")")[2].split()
    return None if state_and_on[0] in {"Z", "X"} else int(state_and_on[19])


def runs(pid: int, ticks: int | None) -> bool:
    """Return whether process ``pid``, started at ``ticks``, is alive; without /proc the pid alone decides."""
    if Path("/proc/self/stat").exists():
        return ticks is not None and start_ticks(pid) == ticks
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def die_with_parent(parent_pid: int | None) -> None:
    """Have the kernel kill this process when the *thread* that started it ends (Linux); exit where it already has."""
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise StartError("The kernel refuses PR_SET_PDEATHSIG; start without --die-with-owner.")
    if parent_pid is not None and os.getppid() != parent_pid:
        raise StartError("The process that started this one is gone.")


def _locks(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_way(folder: Path) -> None:
    """Stop the holder where it is a leftover; raise `DirectoryBusyError` where it is not."""
    record = read_record(folder)
    if record is None or not record.runs or not record.is_leftover:
        raise _busy(folder, record)
    for number, patience_s in ((signal.SIGTERM, _LEFTOVER_STOP_S), (signal.SIGKILL, _LEFTOVER_KILL_S)):
        if _ends(record, number, patience_s):
            return
    raise _busy(folder, record)


def _ends(record: Record, number: signal.Signals, patience_s: float) -> bool:
    """Send a signal and wait for the end of a process that is not our child."""
    with suppress(ProcessLookupError):
        os.kill(record.pid, number)
    deadline_s = time.monotonic() + patience_s
    while record.runs:
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _busy(folder: Path, record: Record | None) -> DirectoryBusyError:
    if record is None or not record.runs:
        return DirectoryBusyError(
            f"{folder} is in use by another process. Find it with `fuser {folder / LOCK_NAME}`, or give another --path."
        )
    where = f" ({record.url})" if record.url else ""
    return DirectoryBusyError(
        f"{folder} is in use by process {record.pid}{where}. Use that server, stop it with `kill {record.pid}`, "
        "or give another --path."
    )
