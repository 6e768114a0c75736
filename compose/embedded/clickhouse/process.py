"""Starts and stops the embedded ClickHouse as a child process: what supervisors and tests call.

Purpose: one way to spell the command, one way to wait for readiness, one object for tests. Invariants: ready means
that ``/ping`` of *this* child answered; an end before that is an error with the child's own words; ``stop`` loses
nothing, ``kill`` is what a power cut of the process would be.

Before it in the flow: the supervisor, ``tests/support``. After it: ``__main__``, in the child.
"""

import asyncio
import http.client
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from compose.embedded.clickhouse.errors import DirectoryBusyError, PortBusyError, StartError
from compose.embedded.clickhouse.holder import read_record

# Measured: 0.7-1.6 s to the first answer on two busy cores; the rest is for a machine that does ten other things.
READY_TIMEOUT_S = 30.0
# Queries end after three seconds, their answers after ten more (`serving`); then the engine closes in a second or two.
STOP_LIMIT_S = 18.0
STOP_TIMEOUT_S = STOP_LIMIT_S + 2.0
_POLL_S = 0.02
_PING_TIMEOUT_S = 2.0
LOG_NAME = "server.log"


def command(
    path: Path, port: int, *, owner_pid: int | None = None, die_with_owner: bool = False
) -> list[str]:
    """Return the command line of a server for ``path``; ``owner_pid`` defaults to the calling process.

    A server whose owner is gone is stopped by the next start on the same path; one with a living owner makes that
    start fail (exit code 3). ``die_with_owner`` has the kernel end it with the starting thread (Linux, for tests).
    """
    owner = os.getpid() if owner_pid is None else owner_pid
    words = [sys.executable, "-m", "compose.embedded.clickhouse"]
    words += ["--path", str(path), "--port", str(port), "--owner", str(owner)]
    return [*words, "--die-with-owner"] if die_with_owner else words


def environment(path: Path) -> dict[str, str]:
    """What the process must have in its environment from its beginning.

    The engine has no configuration for its zone: the process's decides. And when it is imported it opens a throw-away
    engine in the temporary folder, which must be one that the sandbox leaves in reach.
    """
    return {"TZ": "UTC", "TMPDIR": str(path.resolve() / "tmp")}


async def wait_ready(url: str, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Return when ``/ping`` answers; raise TimeoutError where it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not await asyncio.to_thread(answers, url):  # noqa: ASYNC110 - the event is in another process
            await asyncio.sleep(_POLL_S)


def answers(url: str) -> bool:
    """Return whether a ClickHouse (embedded or real) says Ok at ``url``."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=_PING_TIMEOUT_S)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().read() == b"Ok.\n"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class EmbeddedClickHouse:
    """A server as a child process, for tests and tools; a context manager that starts and stops it."""

    def __init__(self, path: Path, port: int = 0, *, die_with_parent: bool = True) -> None:
        self.path = path
        self.url = ""
        self._port = port
        self._die_with_parent = die_with_parent
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the child's pid; raise RuntimeError where none runs."""
        return self._running().pid

    def start(self) -> Self:
        """Start the child and wait until it answers; raise `StartError` (or its kind) in its own words."""
        if self._child is not None:
            raise RuntimeError("already started")
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOG_NAME).open("ab") as log:
            log_start = log.tell()
            self._child = subprocess.Popen(
                command(self.path, self._port, die_with_owner=self._die_with_parent),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment(self.path)},
            )
        try:
            self.url = self._wait_until_ready(log_start)
        except BaseException:
            self.kill()
            raise
        # A restart comes back where clients look for it.
        self._port = urlsplit(self.url).port or self._port
        return self

    def stop(self) -> int:
        """Ask the child to stop, wait for its end, return its exit code (0); kill it where it does not listen."""
        child = self._running()
        child.terminate()
        try:
            code = child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL
        self._child = None
        return code

    def kill(self) -> None:
        """Kill the child with SIGKILL and wait for its end; nothing where none runs."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise RuntimeError("not started")
        return self._child

    def _wait_until_ready(self, log_start: int) -> str:
        child = self._running()
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            record = read_record(self.path)
            if record is not None and record.pid == child.pid and record.url and answers(record.url):
                return record.url
            # The condition is polled: the child's end wakes us at once.
            with suppress(subprocess.TimeoutExpired):
                raise self._failure(child.wait(_POLL_S), log_start)
        raise StartError(
            f"The embedded ClickHouse did not answer within {READY_TIMEOUT_S:.0f} s; see {self.path / LOG_NAME}"
        )

    def _failure(self, code: int, log_start: int) -> StartError:
        words = (self.path / LOG_NAME).read_bytes()[log_start:].decode(errors="replace").strip()
        kinds = {kind.exit_code: kind for kind in (DirectoryBusyError, PortBusyError)}
        return kinds.get(code, StartError)(words or f"The embedded ClickHouse ended with exit code {code}")
