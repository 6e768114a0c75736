"""Twenty generations are told the same at once: each waits as long as it was told, and they do not come back together."""

import asyncio
import random

from schemas.events import Kind, Outcome
from tests.support.running import ONE_ROUTE, ends_of
from tests.support.upstream import DONE, Script, chunk, finish
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
