"""Time that passes at once: an event loop whose clock jumps to the next timer, and an edge that lives by it.

Nothing waits: where every task waits for a timer, the clock is moved to the next one. Where nothing will ever happen the
test fails instead of hanging.
"""

import asyncio
import selectors

from edge.clock import Clock
from tests.support.edge import T0_US
from tests.support.running import RunningEdge, check
from tests.support.upstream import ScriptedUpstream
from tests.support.waiting import until


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


def run_virtually(*scripts, headers=None, body=None, caller=None, **sections):
    """Run one generation to its end in virtual time: its records and the edge."""

    async def work():
        clock = clock_of(asyncio.get_running_loop())
        edge = RunningEdge(ScriptedUpstream(*scripts), clock, **sections)
        async with edge:
            chosen = {} if caller is None else {"caller": caller}
            entry = await edge.begin(headers, **chosen, **(body or {}))
            edge.entry = entry
            records = await over(edge, entry)
        return records, edge

    return virtually(work)


async def over(edge, entry):
    """Wait for the end of a generation; its records, held to the rules."""
    await entry.generation.ended.wait()
    await until(lambda: entry.finished)
    records = edge.records(entry)
    check(records)
    return records
