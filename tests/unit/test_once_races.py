"""Idempotency-Key as a property over interleavings: edges, calls, failures and the pace of the log are drawn."""

import asyncio
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.clock import system_clock
from edge.log.memory import MemoryLog
from schemas.events import Kind, LogEvent
from tests.support.edge import CODEC, turns
from tests.support.once import PARTITIONS, call, edges_on
from tests.support.upstream import OK, Script, ScriptedUpstream
from tests.support.waiting import until

EDGES = 3
REFUSED = b'{"error": {"message": "no"}}'
ROUNDS = st.lists(
    st.lists(st.tuples(st.integers(0, EDGES - 1), st.integers(0, 30)), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
)
PACE = st.lists(st.integers(0, 12), min_size=1, max_size=20)


class SlowLog(MemoryLog):
    """A log that takes, answers and tells at a drawn pace, each partition in its order; ``order`` is that of everything."""

    def __init__(self, pace):
        super().__init__(lambda: system_clock().wall_us() // 1000, PARTITIONS)
        self.order = []
        self._pace = deque(pace)
        self._lanes = [asyncio.Queue() for _ in range(PARTITIONS)]
        self._working = [asyncio.ensure_future(self._work(lane)) for lane in self._lanes]

    async def _wait(self):
        self._pace.rotate(-1)
        await turns(self._pace[0])

    async def _work(self, lane):
        while True:
            partition, key, values, on_ack, on_fail = await lane.get()
            await self._wait()
            super().append(partition, key, values, on_ack, on_fail)
            await self._wait()
            self.release()
            lane.task_done()

    def append(self, partition, key, values, on_ack, on_fail):
        """See EventLog."""
        self.hold()
        self._lanes[partition].put_nowait((partition, key, values, on_ack, on_fail))

    def put(self, partition, key, value, offset=None):
        """See MemoryLog."""
        self.order.append(CODEC.decode(value, LogEvent))
        return super().put(partition, key, value, offset)

    async def claim(self, key, value):
        """See EventLog."""
        await self._wait()
        place = await super().claim(key, value)
        await self._wait()
        return place

    async def claims(self):
        """See EventLog."""
        async for placed in super().claims():
            await self._wait()
            yield placed

    async def stop(self):
        """See EventLog."""
        for lane in self._lanes:
            await lane.join()

    def end(self):
        """Let nothing run on."""
        for working in self._working:
            working.cancel()


def held(order, upstream, found):
    """Hold what is in the log, and what calls were given, to the promise."""
    alive, served, attempted, failed = None, None, [], set()
    for event in order:
        generation_id = event.generation_id
        if event.kind is Kind.ATTEMPT_START:
            assert alive is None, "two attempts of one key at a time"
            assert served is None, "an attempt although the key is served"
            alive = generation_id
            attempted.append(generation_id)
        elif event.has_content:
            assert alive == generation_id
            served = generation_id
        elif event.is_terminal and alive == generation_id:
            alive = None
            failed |= {generation_id} - {served}
        elif event.kind is Kind.ERROR:
            assert event.error.code == "superseded"
            assert generation_id not in attempted
    assert len(upstream.calls) == len(attempted)
    assert {generation_id for generation_id, _ in found} <= set(attempted)
    assert sorted(g for g, again in found if not again) == sorted(attempted)


@settings(max_examples=100)
@given(rounds=ROUNDS, refused=st.integers(0, 2), slow=st.integers(0, 3), pace=PACE)
def test_of_one_key_one_generation_runs(rounds, refused, slow, pace):
    """However calls cross: one attempt at a time, none after content, and every call is given a generation that ran."""

    async def run():
        log = SlowLog(pace)
        refusal = Script(REFUSED, status=400, content_type="application/json", head=slow / 2000)
        upstream = ScriptedUpstream(*[refusal] * refused, OK)
        edges = edges_on(log, *[upstream] * EDGES)
        found = []
        for edge in edges:
            await edge.service.start()

        async def one(number, delay):
            await turns(delay)
            found.append(await call(edges[number]))

        try:
            for calls in rounds:
                await asyncio.wait_for(asyncio.gather(*(one(*c) for c in calls)), 10)
                await until(lambda: not any(edge.service.registry.running() for edge in edges))
        finally:
            for edge in edges:
                await edge.service.stop()
            log.end()
        held(log.order, upstream, found)
        assert len(upstream.calls) >= min(len(rounds), refused + 1), "a key that was free was not taken"

    asyncio.run(run())
