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
import time
from pathlib import Path

import pytest
from crashing import EVENTS, word
from tokentrail_client import Store
from tokentrail_client.frames import seq_of

KILLS = 6
WITHIN_S = 30


class Process:
    """The process that is killed again and again; its output and its store remain."""

    def __init__(self, folder, kind):
        self.store, self.output, self._kind = folder / "store.db", folder / "output.txt", kind
        self.output.touch()

    @property
    def lines(self):
        return [line.split("\t") for line in self.output.read_text().splitlines()]

    def run(self, until_lines=None):
        """Run it to its end, or until it has written so many lines: then kill it."""
        here = Path(__file__).parent
        environ = {**os.environ, "PYTHONPATH": f"{here}:{here.parent}"}
        command = [sys.executable, str(here / "crashing.py"), str(self.store), str(self.output), self._kind]
        child = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE)
        try:
            deadline_s = time.monotonic() + WITHIN_S
            while child.poll() is None and (until_lines is None or len(self.lines) < until_lines):
                assert time.monotonic() < deadline_s
                time.sleep(0.0005)  # a file cannot be awaited
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
        finally:
            child.kill()
            _, said = child.communicate()
        assert child.returncode in (0, -signal.SIGKILL), said.decode()
        return child.returncode


def test_an_iterator_that_is_killed_repeats_and_loses_nothing(tmp_path):
    """Killed at random points and opened again by its name: the output of all its lives together is the stream, once."""
    process, random_ = Process(tmp_path, "iterator"), random.Random(11)
    for kill in range(KILLS):
        code = process.run(random_.randint(1, EVENTS // KILLS // 2) + kill * EVENTS // KILLS)
        assert (code, len(process.lines) <= EVENTS) == (-signal.SIGKILL, True)
        with Store(process.store) as store:
            journal = [frame.seq for frame in store.events("one")]
            session = store.get("one")
        handed = [seq_of(cursor) for cursor, _ in process.lines]
        assert journal == list(range(len(journal)))
        assert handed == list(range(1, len(handed) + 1))
        assert len(journal) > len(handed)
        assert seq_of(session.last_event_id) == journal[-1]
    assert process.run() == 0
    assert [text for _, text in process.lines] == [
        *(word(seq).rstrip("\n") for seq in range(1, EVENTS + 1)),
        "end",
    ]


@pytest.mark.parametrize("seed", [3, 5])
def test_under_an_sdk_the_store_is_never_behind(tmp_path, seed):
    """Killed at a random point: the stored position is that of the last frame handed up, or of one behind it."""
    process = Process(tmp_path, "transport")
    assert process.run(random.Random(seed).randint(1, EVENTS - 500)) == -signal.SIGKILL
    with Store(process.store) as store:
        (session,) = store.sessions()
    handed = [seq_of(cursor) for cursor, _ in process.lines]
    assert handed == list(range(1, len(handed) + 1))
    assert seq_of(session.last_event_id) >= handed[-1]
