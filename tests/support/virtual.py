"""Time that passes at once: an event loop whose clock jumps to the next timer, and an edge that lives by it.

Nothing waits: where every task waits for a timer, the clock is moved to the next one. Where nothing will ever happen the
test fails instead of hanging.
"""

import asyncio
import functools
import selectors

from edge.clock import Clock
from tests.support.edge import T0_US
from tests.support.running import RunningEdge, check
from tests.support.upstream import ScriptedUpstream
from tests.support.waiting import until

OVER_WITHIN_S = 20_000
"""Virtual: far beyond every time-out, so that a generation without an end fails its test instead of hanging it."""


class _Jumping(selectors.DefaultSelector):
    """Moves the clock by what it was asked to wait."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout=None):
        """Give what is ready now; a wait is a jump."""
        if timeout is None:
            ready = super().select(0)
            assert ready, "nothing will ever happen: every task waits for something that nobody does"
            return ready
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self):
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self):
        """Give the virtual seconds."""
        return self._jumping.now_s

    async def be_busy(self, from_s, to_s):
        """Between these times every turn of the loop takes a quarter of a second, as where far too much runs on it."""
        await asyncio.sleep(from_s - self.time())
        while self.time() < to_s:
            self._jumping.now_s += 0.25
            await asyncio.sleep(0)


def clock_of(loop, jitter=lambda: 0.5):
    """Give a clock that shows the loop's time; ``jitter``: where chance comes from."""
    drawn = iter(range(1 << 62))

    def now_us():
        return round(loop.time() * 1e6)

    return Clock(now_us, lambda: T0_US + now_us(), lambda count: next(drawn) % (1 << count), jitter)


def virtually(work):
    """Run a coroutine function's work in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work())


def in_virtual_time(test):
    """Decorate a test whose subject is time: it lives through it without waiting, and no load of the machine can bend it."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        return virtually(lambda: test(*args, **kwargs))

    return run


def run_virtually(*scripts, headers=None, body=None, caller=None, busy_s=None, **sections):
    """Run one generation to its end in virtual time: its records and the edge; without a script, the edge's own HTTP.

    ``busy_s``: between which seconds the edge's event loop is far too busy.
    """

    async def work():
        loop = asyncio.get_running_loop()
        edge = RunningEdge(ScriptedUpstream(*scripts) if scripts else None, clock_of(loop), **sections)
        neighbour = loop.create_task(loop.be_busy(*busy_s or (0, 0)))
        async with edge:
            chosen = {} if caller is None else {"caller": caller}
            entry = await edge.begin(headers, **chosen, **(body or {}))
            edge.entry = entry
            records = await over(edge, entry)
        neighbour.cancel()
        return records, edge

    return virtually(work)


async def over(edge, entry):
    """Wait for the end of a generation; its records, held to the rules."""
    async with asyncio.timeout(OVER_WITHIN_S):
        await entry.generation.ended.wait()
    await until(lambda: entry.finished)
    records = edge.records(entry)
    check(records)
    return records
