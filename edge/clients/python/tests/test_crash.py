"""Kill -9 between receiving and storing, storing and handing over, or anywhere else: nothing repeated, nothing lost.

The guarantee of the iterator: the store is a prefix of the stream without a hole, whatever was handed over is in it, and
who gives the cursor of the last item that it took is handed exactly what follows. Under an SDK: the stored position is
never behind what was handed up.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from crashing import EVENTS, word
from tokentrail_client import Store
from tokentrail_client.frames import seq_of

CALLS_MAX = {"iterator": 150_000, "async": 250_000}
"""A life that is not ended is two or three times as long."""


class Process:
    """The process that is killed again and again; its output and its store remain."""

    def __init__(self, folder, kind):
        self.store, self.output, self._kind = folder / "store.db", folder / "output.txt", kind
        self.output.touch()

    @property
    def lines(self):
        """Give what it was handed: cursor and text."""
        return [line.split("\t") for line in self.output.read_text().splitlines()]

    def run(self, calls):
        """Run it until it has made so many calls; whether it was killed."""
        here = Path(__file__).parent
        environ = {**os.environ, "PYTHONPATH": f"{here}:{here.parent}"}
        command = [sys.executable, here / "crashing.py", self.store, self.output, self._kind, str(calls)]
        done = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        return done.returncode != 0


@pytest.mark.parametrize("kind", ["iterator", "async"])
def test_an_iterator_that_is_killed_repeats_and_loses_nothing(tmp_path, kind):
    """Killed at random points and opened again by its name: the output of all its lives together is the stream, once."""
    process, random_, kills = Process(tmp_path, kind), random.Random(11), 0
    while process.run(random_.randint(1, CALLS_MAX[kind])):
        kills += 1
        assert kills < 100
        with Store(process.store) as store:
            journal = [frame.seq for frame in store.events("one")]
            session = store.get("one")
        handed = [seq_of(cursor) for cursor, _ in process.lines]
        assert journal == list(range(len(journal)))
        assert handed == list(range(1, len(handed) + 1))
        assert len(journal) > len(handed) or not journal
        assert seq_of(session and session.last_event_id) == (journal[-1] if journal else None)
    assert kills >= 2
    assert [text for _, text in process.lines] == [*(word(seq) for seq in range(1, EVENTS + 1)), "end"]


@pytest.mark.parametrize("calls", [20_001, 50_002])
def test_under_an_sdk_the_store_is_never_behind(tmp_path, calls):
    """Killed at some point: the stored position is that of the last frame handed up, or of one behind it."""
    process = Process(tmp_path, "transport")
    assert process.run(calls)
    with Store(process.store) as store:
        (session,) = store.sessions()
    handed = [seq_of(cursor) for cursor, _ in process.lines]
    assert handed == list(range(1, len(handed) + 1))
    assert len(handed) > 10
    assert seq_of(session.last_event_id) >= handed[-1]
