"""Child processes and their pid files: start one, recognise one again, find what a dead runner left behind.

Invariant: a process is only ever signalled as the pair (pid, start mark), so that a pid which the system has given to
somebody else since is left alone. Before this file: `node.py`, which knows what to start. After it: the system.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_POLL_S = 0.02
_KILL_WAIT_S = 5.0  # the kernel needs milliseconds, unless the process waits for a disk

# Run by a small Python which then becomes the child: asks the kernel to kill it when its parent thread ends, and ends
# at once if the parent was gone before the request. (prctl 1 = PR_SET_PDEATHSIG, Linux only.)
_DIE_WITH_PARENT = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class PidRecord:
    """Who runs a broker: the broker's process and the process that started it, each with its start mark."""

    pid: int
    mark: str
    owner_pid: int
    owner_mark: str

    @property
    def runs(self) -> bool:
        """Tell whether the broker's process is still the one recorded."""
        return start_mark(self.pid) == self.mark

    @property
    def is_leftover(self) -> bool:
        """Tell whether the broker runs although the process that started it is gone."""
        return self.runs and start_mark(self.owner_pid) != self.owner_mark


def start_mark(pid: int) -> str | None:
    """Give a text that tells this process from any other with the same pid; None if it is gone or a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        try:
            # The name in parentheses may itself hold spaces and parentheses: count from the last one
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        state, started_ticks = fields[0], fields[19]
        return None if state in "ZX" else started_ticks
    listing = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return None if not listing or listing[0].startswith("Z") else listing[1].strip()


def record_of(pid: int) -> PidRecord | None:
    """Give the record of a process which this process has started; None if it is gone already."""
    mark, owner_mark = start_mark(pid), start_mark(os.getpid())
    return None if mark is None or owner_mark is None else PidRecord(pid, mark, os.getpid(), owner_mark)


def write_pid_file(path: Path, pid: int) -> None:
    """Record that this process started the broker `pid`. A process that is gone already leaves no record."""
    record = record_of(pid)
    if record is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(json.dumps(asdict(record)), encoding="utf-8")


def read_pid_file(path: Path) -> PidRecord | None:
    """Read a pid file; None if there is none or it cannot be read (a crash while writing it)."""
    try:
        return PidRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def terminate(records: Iterable[PidRecord], grace_s: float) -> None:
    """End these processes, all at once: SIGTERM, then SIGKILL for those that still run after `grace_s`."""
    left = [record for record in records if record.runs]
    for signal_number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_WAIT_S)):
        for record in left:
            _send(record, signal_number)
            _send(record, signal.SIGCONT)  # a frozen process ends only after it thawed
        deadline = time.monotonic() + wait_s
        while left and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            left = [record for record in left if record.runs]


def _send(record: PidRecord, signal_number: int) -> None:
    if record.runs:
        try:
            os.kill(record.pid, signal_number)
        except ProcessLookupError:
            return


class Spawner:
    """Starts child processes from one thread that lives as long as this object.

    The kernel's "die with the parent" means the parent *thread*: a child started from a worker thread would be killed
    when that thread ends. Hence one thread for all of them, which `close` ends after the children are gone.
    """

    def __init__(self, *, die_with_parent: bool) -> None:
        self._die_with_parent = die_with_parent and sys.platform == "linux"
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedded-kafka-spawner")

    def start(self, command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        """Start a child in a session of its own (a terminal's Ctrl-C is not for it), its output in a file."""
        return self._thread.submit(self._start, list(command), output).result()

    def close(self) -> None:
        """End the thread; with `die_with_parent`, whatever it started and still runs is killed by the kernel."""
        self._thread.shutdown()

    def _start(self, command: list[str], output: Path) -> subprocess.Popen[bytes]:
        if self._die_with_parent:
            command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
        with output.open("wb") as file:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
