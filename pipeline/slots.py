"""A stable name for this worker among those that share its data folder.

A restart that comes back under the same name takes its partitions over at once; under a new one they idle until the old
session ends. The name is the first numbered lock file that no living worker holds; the kernel lets go of it whatever
the worker dies of. Before: ``__main__``. After: ``app``.
"""

import fcntl
import os
import socket
from pathlib import Path
from typing import NamedTuple

WORKERS_PER_FOLDER_MAX = 64


class Slot(NamedTuple):
    """A name, and the open lock file that keeps it: hold it as long as the process lives."""

    name: str
    descriptor: int


def take_slot(folder: Path) -> Slot:
    """The first free slot of the folder, which is made where it is missing. RuntimeError when all are taken."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(WORKERS_PER_FOLDER_MAX):
        descriptor = os.open(folder / f"worker-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        place = folder.stat()
        return Slot(f"{socket.gethostname()}-{place.st_dev}-{place.st_ino}-{number}", descriptor)
    raise RuntimeError(
        f"{WORKERS_PER_FOLDER_MAX} workers use {folder} already: give this one its own data_dir"
    )
