"""How a process ends: the deadline, closings that misbehave, threads that hang, and the order of a worker's stop."""

import asyncio
import signal
import subprocess
import sys
import threading

import pytest
import structlog

from pipeline.ending import EXIT_HALTED, Ending, Part
from schemas.stopping import EXIT_CUT, Deadline, closed, in_thread, to_the_end
from tests.support.edge import settings_of

NEVER_ENDS = """
import asyncio, os, signal, sys, time
from schemas.stopping import Deadline, on_signal

async def main():
    deadline = Deadline(0.2, lambda: print("cut", flush=True))
    on_signal(lambda: (deadline.begin(), {after}))
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def ended(after, first, *more):
    """What a process says and ends with that is asked to end, and does ``after`` then."""
    code = NEVER_ENDS.format(after=after)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        for number in (first, *more):
            process.send_signal(number)
        return process.stdout.read(), process.wait(30)


def test_the_deadline_ends_a_process_whose_event_loop_stands_still():
    """A stop that hangs, even in a blocking call, ends with the deadline's words and code; a second signal is nothing."""
    assert ended("time.sleep(60)", signal.SIGTERM) == ("cut\n", EXIT_CUT)
    assert ended("None", signal.SIGINT, signal.SIGINT, signal.SIGTERM) == ("cut\n", EXIT_CUT)


def test_a_deadline_begins_once():
    """The first call begins it, later ones say that they did not, and it comes once."""
    codes, told = [], []
    come = threading.Event()
    deadline = Deadline(0.01, lambda: told.append(1), lambda code: (codes.append(code), come.set()))
    assert [deadline.begin(), deadline.begin()] == [True, False]
    assert come.wait(30)
    assert (told, codes) == ([1], [EXIT_CUT])


async def test_a_closing_does_to_its_caller_nothing():
    """One that ends, breaks, cancels itself, or never ends: in words, and whoever waited goes on."""

    async def breaks():
        raise OSError("no route")

    async def cancels_itself():
        sleeping = asyncio.ensure_future(asyncio.sleep(60))
        sleeping.cancel()
        await sleeping

    async def keeps_a_cancellation():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.05)
                return

    assert await closed(asyncio.sleep(0), 30) is None
    assert await closed(breaks(), 30) == "OSError('no route')"
    assert await closed(cancels_itself(), 30) == "its closing was cancelled half-way"
    assert await closed(keeps_a_cancellation(), 0.01) == "not closed within 0.01 s"
    assert asyncio.current_task().cancelling() == 0


async def test_a_cancellation_that_nobody_asked_for_is_an_error():
    """What cancels itself inside of a task fails it loudly; a task that is cancelled is cancelled."""

    async def cancels_itself():
        sleeping = asyncio.ensure_future(asyncio.sleep(60))
        sleeping.cancel()
        await sleeping

    async def both(made):
        async with asyncio.TaskGroup() as tasks:
            made += [tasks.create_task(to_the_end(work)) for work in (cancels_itself(), asyncio.sleep(60))]

    tasks = []

    with pytest.raises(ExceptionGroup) as failed:
        await both(tasks)
    assert [task.cancelled() for task in tasks] == [False, True]
    (error,) = failed.value.exceptions
    assert str(error) == "cancelled, and nobody of ours has asked for it"
    assert await to_the_end(asyncio.sleep(0, 1)) == 1


async def test_a_call_in_a_thread_is_left_running():
    """Its value or error comes back; who is cancelled meanwhile does not wait for it."""
    assert await in_thread(lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)
    hold = threading.Event()
    waiting = asyncio.create_task(in_thread(hold.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    hold.set()


class Reading:
    """A part of a worker that settles or does not."""

    def __init__(self, left=None):
        self.left_words = left
        self.stopping = asyncio.Event()

    async def settled(self):
        """Return once asked to stop, unless something is left."""
        await self.stopping.wait()
        if self.left_words is not None:
            await asyncio.Event().wait()

    def part(self, name):
        """Give it as the ending sees it."""
        return Part(name, self.stopping.set, self.settled, lambda: self.left_words)


@pytest.mark.parametrize(
    ("asked", "begun", "left", "code", "said"),
    [
        (True, True, None, 0, "stopped, everything that was read is settled and committed"),
        (True, True, "not committed", 0, "stopped with something left: the next start reads it again"),
        (False, True, None, EXIT_HALTED, "stopped, everything that was read is settled and committed"),
        (True, False, "not committed", 0, "stopped before anything was read"),
    ],
)
async def test_a_worker_settles_says_and_leaves(asked, begun, left, code, said):
    """Whatever hangs is left after ``stop.settle_s``, by name; a crash keeps its own code; unread there is nothing to do."""
    codes = []
    parts = [Reading().part("billing"), Reading(left).part("fold")]
    ending = Ending(settings_of(stop={"settle_s": 0.05, "close_s": 60}), lambda: begun, parts, codes.append)
    with structlog.testing.capture_logs() as lines:
        if asked:
            ending.ask()
            ending.ask()
        await ending.settle()
    assert codes == [code]
    assert [line["event"] for line in lines] == ["stopping"] * asked + [said]
    assert lines[-1].get("fold") == (left if begun else None)
