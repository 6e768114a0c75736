"""Hedging: a second attempt beside a silent one; the first to deliver is the answer, the other leaves only its own end."""

import asyncio

import pytest

from schemas.events import CancelRequested, EndedBy, Kind, Outcome, UsageSource
from schemas.settings import ApiKey
from tests.support.edge import turns
from tests.support.running import ONE_ROUTE, edge_with, ends_of, run, starts_of
from tests.support.upstream import DONE, HANG, Script, chunk, finish, usage
from tests.support.virtual import RunningEdge, ScriptedUpstream, clock_of, over, run_virtually, virtually
from tests.support.waiting import until

HEDGE = {"hedge": {"after_s": 2, "stall_after_s": 3}}
WHOLE = {"stream": False}
OK = Script(chunk("b"), finish(), usage(), DONE)


def texts(records):
    return "".join(part.text for event in records for part in event.canonical)


def reasons(records):
    return [start.reason for start in starts_of(records)]


def test_a_silent_attempt_is_raced():
    """After its time another provider is asked too; that one answers first and is all that the client is given."""
    records, edge = run_virtually(Script(HANG), OK, **HEDGE)
    assert reasons(records) == ["first", "hedge_ttft"]
    assert [start.provider for start in starts_of(records)] == ["one", "two"]
    assert texts(records) == "b"
    assert 2 <= records[-1].elapsed_us / 1e6 < 2.1
    loser, winner = ends_of(records)
    assert (loser.outcome, loser.committed, loser.content_events) == (Outcome.CANCELLED, False, 0)
    assert (winner.outcome, winner.committed) == (Outcome.OK, True)
    assert edge.upstream.calls[0].closed
    assert records[-1].message_end.attempts == 2


def test_the_first_may_still_win():
    """The hedge is cancelled at its socket when the first attempt speaks before it."""
    records, edge = run_virtually(Script(3, chunk("a"), finish(), DONE), Script(HANG), **HEDGE)
    assert texts(records) == "a"
    first, hedge = sorted(ends_of(records), key=lambda end: end.provider)
    assert (first.committed, hedge.committed, hedge.outcome) == (True, False, Outcome.CANCELLED)
    assert edge.upstream.calls[1].closed


def test_both_at_once_is_still_one():
    """Two that speak in the same moment: one is committed, no text is mixed, there is one terminal."""
    twice = Script(2, chunk("b"), chunk("b"), finish(), DONE)
    records, _ = run_virtually(Script(4, chunk("a"), chunk("a"), finish(), DONE), twice, **HEDGE)
    assert texts(records) in ("aa", "bb")
    assert [end.committed for end in ends_of(records)].count(True) == 1


def test_what_was_delivered_is_never_raced():
    """A committed attempt that falls silent goes to the watchdog, however long it is silent."""
    records, edge = run_virtually(Script(chunk("a"), HANG), OK, stream={"stall_timeout_s": 60}, **HEDGE)
    assert len(edge.upstream.calls) == 1
    assert records[-1].error.code == "stall_timeout"


def test_a_whole_answer_is_held_and_raced():
    """Nobody reads a non-streaming call before its end: content that stalls is no answer; the hedge's whole one is."""
    stalls = Script(chunk("first"), chunk(" half"), HANG)
    records, edge = run_virtually(stalls, OK, body=WHOLE, **HEDGE)
    assert reasons(records) == ["first", "hedge_stall"]
    assert texts(records) == "b"
    loser, winner = ends_of(records)
    assert (loser.outcome, loser.content_events, loser.committed) == (Outcome.CANCELLED, 2, False)
    (gap,) = loser.gaps
    assert (gap.ended_by, round(gap.length_us / 1e6), gap.seq) == (EndedBy.HEDGE, 3, None)
    assert loser.usage.source is UsageSource.ESTIMATED
    assert loser.usage.output == 3  # "first half": ten bytes of its own
    assert loser.possibly_billed
    assert winner.usage.source is UsageSource.REPORTED
    assert edge.upstream.calls[0].closed


def test_a_whole_answer_keeps_its_times():
    """What was held is published with the instants at which it was captured, in one order, under consecutive seqs."""
    slow = Script(chunk("a"), 1, chunk("b"), 1, chunk("c"), finish(), DONE)
    records, _ = run_virtually(slow, body=WHOLE, **HEDGE)
    deltas = [event for event in records if event.kind is Kind.DELTA]
    assert [round(event.elapsed_us / 1e6) for event in deltas] == [0, 1, 2]
    assert [event.seq for event in deltas] == [1, 2, 3]


def test_a_long_hold_is_no_outage_of_the_log():
    """What was captured half a minute ago was sent just now: nobody is told that the log is away."""
    drip = [piece for _ in range(60) for piece in (chunk("a"), 1)]
    records, edge = run_virtually(Script(*drip, finish(), DONE), body=WHOLE, **HEDGE)
    assert records[-1].kind is Kind.MESSAGE_END
    assert not edge.entry.generation.on_log


def test_without_hedge_a_whole_answer_is_published_as_it_comes():
    """Nothing could better it, so nothing is held."""
    records, _ = run_virtually(Script(chunk("a"), HANG), body=WHOLE, stream={"stall_timeout_s": 60})
    assert texts(records) == "a"
    assert records[-1].error.code == "stall_timeout"


def test_a_client_may_let_us_hold_back():
    """X-Tokentrail-Hold-Ms: content that stalls within it is raced and never seen; the hedge's is given on at once."""
    stalls = Script(chunk("gone"), HANG)
    records, _ = run_virtually(stalls, OK, headers={"x-tokentrail-hold-ms": "8000"}, **HEDGE)
    assert reasons(records) == ["first", "hedge_stall"]
    assert texts(records) == "b"


def test_a_hold_ends():
    """What goes on within the hold is delivered when it is over, and from then on as it comes."""
    drip = Script(chunk("a"), 1, chunk("b"), 2.5, chunk("c"), finish(), DONE)
    seen = []

    async def work():
        edge = RunningEdge(ScriptedUpstream(drip), clock_of(loop := asyncio.get_running_loop()), **HEDGE)
        async with edge:
            entry = await edge.begin({"x-tokentrail-hold-ms": "2000"})
            for _ in range(3):
                await entry.generation.news()
                seen.append((loop.time(), len(entry.generation.window)))
            return await over(edge, entry)

    records = virtually(work)
    assert texts(records) == "abc"
    assert seen[0][0] == pytest.approx(2.0, abs=0.01)


def test_a_break_within_the_hold_is_tried_again():
    """Nothing was delivered, so nothing is spliced."""
    broken = Script(chunk("half"), b"")
    records, _ = run_virtually(broken, OK, headers={"x-tokentrail-hold-ms": "8000"}, **HEDGE)
    assert reasons(records) == ["first", "fallback"]
    assert texts(records) == "b"
    assert ends_of(records)[0].error_code == "incomplete_upstream"


@pytest.mark.parametrize(("attempts", "calls"), [(1, 1), (2, 2), (3, 3)])
def test_hedges_count_as_attempts(attempts, calls):
    """``retry.max_attempts`` covers them."""
    sections = {"hedge": {"after_s": 2, "max_in_flight": 4}, "retry": {"max_attempts": attempts}}
    records, edge = run_virtually(Script(HANG), timeout={"queue_s": 30}, stream={"ttft_timeout_s": 20}, default_route=ONE_ROUTE, **sections)  # fmt: skip
    assert len(edge.upstream.calls) == calls
    assert records[-1].error.code == "ttft_timeout"


def test_all_of_them_fail():
    """One terminal, with the last failure's code, and an end for each."""
    records, _ = run_virtually(Script(5, b""), Script(9, b""), retry={"max_attempts": 2}, **HEDGE)
    assert [end.error_code for end in ends_of(records)] == ["incomplete_upstream"] * 2
    assert records[-1].error.code == "incomplete_upstream"


def test_a_cancel_ends_both():
    """Both sockets are closed, both ends written, then one terminal."""

    async def work():
        edge = RunningEdge(ScriptedUpstream(Script(HANG)), clock_of(asyncio.get_running_loop()), **HEDGE)
        async with edge:
            entry = await edge.begin()
            await until(lambda: len(edge.upstream.calls) == 2)
            entry.driver.request_cancel(CancelRequested(mode="hard"))
            return await over(edge, entry), edge

    records, edge = virtually(work)
    assert all(call.closed for call in edge.upstream.calls)
    assert [end.outcome for end in ends_of(records)] == [Outcome.CANCELLED] * 2
    assert records[-1].message_end.finish_reason == "cancelled"


async def test_a_hedge_is_announced_before_its_call():
    """Its attempt_start is acknowledged first; where the first attempt speaks meanwhile, nobody is called at all."""
    speaks = asyncio.Event()
    hedge = {"hedge": {"after_s": 0.05}}
    async with edge_with(Script(speaks, chunk("a"), finish(), DONE), OK, **hedge) as edge:
        entry = await edge.begin()
        edge.log.hold()
        await until(lambda: edge.kinds().count(Kind.ATTEMPT_START) == 2)
        await turns(20)
        assert len(edge.upstream.calls) == 1
        speaks.set()
        await turns(20)
        edge.log.release()
        records = await edge.over(entry)
    assert len(edge.upstream.calls) == 1
    assert texts(records) == "a"
    assert not ends_of(records)[0].possibly_billed or ends_of(records)[0].dispatched_us is not None


@pytest.mark.parametrize(
    ("models", "allow", "hedged"),
    [((), (), False), (("gpt-x",), (), True), (("other",), (), False), ((), ("hedge",), True)],
)
def test_who_is_hedged(models, allow, hedged):
    """A model that is named, or a key that allows it; nobody else."""
    key = ApiKey(id="key-1", tenant="acme", sha256="0" * 64, allow=allow)
    sections = {"hedge": HEDGE["hedge"] | {"models": models}}
    records, _ = run_virtually(Script(5, chunk("a"), finish(), DONE), OK, caller=key, **sections)
    assert ("hedge_ttft" in reasons(records)) == hedged


async def test_hedges_are_off():
    """Without a time there is none."""
    records, _ = await run(Script(0.1, chunk("a"), finish(), DONE))
    assert reasons(records) == ["first"]
