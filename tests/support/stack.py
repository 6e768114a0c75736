"""A whole stack for a test, by `tokentrail up` itself; stopped at the end, whatever became of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compose.state import Folder, StackState

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 90


@contextlib.contextmanager
def supervised(
    folder: Folder, *options: str, environ: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tokentrail up` on this folder in a process of its own; its output goes to `up.txt` beside the folder."""
    with (folder.path.parent / "up.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "compose.cli", "up", "--dir", str(folder.path), "--port", "0", *options],
            cwd=folder.path.parent,
            env={**os.environ, **environ},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(STOP_TIMEOUT_S)


def ready_state(folder: Folder, process: subprocess.Popen[bytes]) -> StackState:
    """Wait until this supervisor's stack is ready; its state."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, (folder.path.parent / "up.txt").read_text()[-3000:]
        state = folder.read_state()
        if state is not None and state.ready and state.supervisor_pid == process.pid:
            return state
        time.sleep(0.1)
    raise AssertionError(f"not ready in time: {(folder.path.parent / 'up.txt').read_text()[-3000:]}")
