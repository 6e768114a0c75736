"""Hedges that learn when to start: from what a provider's recent answers took."""

import asyncio

import pytest

from edge.provider.latencies import KEPT_MAX, LEAST, TURN, Latencies
from tests.support.running import ends_of, starts_of
from tests.support.upstream import DONE, HANG, Script, chunk, finish
from tests.support.virtual import RunningEdge, ScriptedUpstream, clock_of, over, virtually

MS = 1_000


def test_a_quantile_of_recent_answers():
    """Within one percent, once enough are known; old ones are forgotten."""
    known = Latencies()
    for i in range(LEAST - 1):
        known.add("one", "m", i * MS)
    assert known.quantile_us("one", "m", 0.9) is None
    assert known.quantile_us("two", "m", 0.9) is None
    for i in range(LEAST, 101):
        known.add("one", "m", i * MS)
    assert known.quantile_us("one", "m", 0.9) == pytest.approx(90 * MS, rel=0.03)
    for _ in range(2 * TURN):
        known.add("one", "m", 10 * MS)
    assert known.quantile_us("one", "m", 0.9) == pytest.approx(10 * MS, rel=0.03)


def test_clients_cannot_make_it_grow():
    """The least used pair is forgotten."""
    known = Latencies()
    for i in range(KEPT_MAX + 10):
        known.add("one", f"model-{i}", MS)
    assert len(known._recent) == KEPT_MAX


def test_a_hedge_learns_its_time():
    """Fifty answers in about 100 ms each: the next silence is raced after that, and not after the setting's time."""
    quick = Script(0.1, chunk("a"), finish(), DONE)

    async def work():
        scripts = [*[quick] * LEAST, Script(HANG), quick, Script(HANG), quick]
        sections = {"hedge": {"after_s": 5, "quantile": 0.9}}
        edge = RunningEdge(ScriptedUpstream(*scripts), clock_of(asyncio.get_running_loop()), **sections)
        async with edge:
            for _ in range(LEAST):
                await over(edge, await edge.begin())
            return [await over(edge, await edge.begin()) for _ in range(2)]

    for records in virtually(work):
        assert [start.reason for start in starts_of(records)] == ["first", "hedge_ttft"]
        hedge = max(ends_of(records), key=lambda end: end.dispatched_us)
        assert hedge.dispatched_us == pytest.approx(100 * MS, rel=0.05)
