"""Many generations meet the same fate at once: each lives by its own times, and they do not come back together."""

import asyncio
import random

from schemas.events import EndedBy, Kind, Outcome
from tests.support.running import ONE_ROUTE, ends_of
from tests.support.upstream import DONE, HANG, Script, chunk, finish
from tests.support.virtual import RunningEdge, ScriptedUpstream, clock_of, over, virtually

MANY = 20
LATER = Script(b"{}", status=429, content_type="application/json", headers={"retry-after": "2"})
OK = Script(chunk("a"), finish(), DONE)


def test_a_herd_that_was_sent_away_does_not_come_back_as_one():
    """No second attempt before its two seconds, not all within 50 ms, and all of them end well."""

    async def work():
        chance = random.Random(3)
        clock = clock_of(asyncio.get_running_loop(), chance.random)
        upstream = ScriptedUpstream(*[LATER] * MANY, OK)
        async with RunningEdge(upstream, clock, default_route=ONE_ROUTE) as edge:
            entries = await asyncio.gather(*[edge.begin() for _ in range(MANY)])
            return [await over(edge, entry) for entry in entries]

    second_us = []
    for records in virtually(work):
        first, second = ends_of(records)
        assert (first.outcome, first.error_code) == (Outcome.FAILED, "rate_limited")
        assert second.outcome is Outcome.OK
        assert records[-1].kind is Kind.MESSAGE_END
        second_us.append(second.dispatched_us)
        assert second.dispatched_us - (first.dispatched_us + first.elapsed_us) >= 2_000_000
    assert max(second_us) - min(second_us) > 50_000


def test_three_that_fall_silent_together_end_each_by_itself():
    """Each has its content, its own stall time-out from its own last word, its stall, its terminal; no socket is used again."""
    gaps_s = (1, 2, 3)

    async def work():
        scripts = [Script(chunk("a"), gap_s, chunk("b"), HANG) for gap_s in gaps_s]
        sections = {
            "default_route": ONE_ROUTE,
            "stream": {"stall_timeout_s": 180, "stall_threshold_ms": 2000},
        }
        upstream = ScriptedUpstream(*scripts, Script(chunk("next"), finish(), DONE))
        async with RunningEdge(upstream, clock_of(asyncio.get_running_loop()), **sections) as edge:
            entries = [await edge.begin() for _ in gaps_s]
            told = await asyncio.gather(*[over(edge, entry) for entry in entries])
            after = await over(edge, await edge.begin())
            return told, after, [call.closed for call in upstream.calls[: len(gaps_s)]]

    told, after, closed = virtually(work)
    for records, gap_s in zip(told, gaps_s, strict=True):
        (end,) = ends_of(records)
        assert (records[-1].error.code, end.gaps[-1].ended_by) == ("stall_timeout", EndedBy.WATCHDOG)
        assert round(end.elapsed_us / 1e6) == gap_s + 180
    assert closed == [True, True, True]
    assert after[-1].kind is Kind.MESSAGE_END
