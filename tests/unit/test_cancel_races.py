"""A cancel that races what an edge would do next: nobody is called behind it, and one terminal says that it was taken."""

import asyncio

import pytest

from edge.admission.holdings import CLAIM_US
from schemas.events import CancelRequested, Kind, Outcome
from schemas.settings import ApiKey
from tests.support.once import call
from tests.support.running import ONE_ROUTE, edge_with, ends_of
from tests.support.upstream import CUT, DONE, HANG, Script, chunk, finish
from tests.support.virtual import RunningEdge, ScriptedUpstream, clock_of, virtually
from tests.support.waiting import until

SOFT = CancelRequested(mode="soft", reason="user_abort", source="api", requested_by="key-1")
HARD = CancelRequested(mode="hard", reason="policy_violation", source="api", requested_by="key-2")
CAREFUL = ApiKey(id="key-1", tenant="acme", sha256="0" * 64, allow={"repair"})
OK = Script(chunk("ok"), finish(), DONE)
BAD_JSON = Script(0.05, chunk("{oops") + finish() + DONE)
JSON_CALL = {"stream": False, "response_format": {"type": "json_object"}}
SOFT_S = 0.2
LONG_BACKOFF = {"retry": {"backoff_ms": 5_000}, "default_route": ONE_ROUTE}


def race(script, *cancels, second=OK, headers=None, body=None, hold_at_s=None, release_at_s=None, **sections):
    """Run a generation and cancel it at its instants: its records, the edge, and the records of a successor."""

    async def work():
        loop = asyncio.get_running_loop()
        upstream = ScriptedUpstream(script, second)
        edge = RunningEdge(upstream, clock_of(loop), **{"cancel": {"soft_ms": int(SOFT_S * 1e3)}} | sections)
        async with edge:
            entry = await edge.begin(headers, caller=CAREFUL, **(body or {}))
            for at_s, what in (
                *((at_s, cancel) for at_s, cancel in cancels),
                (hold_at_s, edge.log.hold),
                (release_at_s, edge.log.release),
            ):
                if at_s is None:
                    continue
                if callable(what):
                    loop.call_at(at_s, what)
                else:
                    loop.call_at(at_s, edge.service.registry.cancel, entry.generation.id, what)
            await until(lambda: entry.finished and not edge.service._tasks, 100)
            others = [e for e in edge.service.registry._entries.values() if e is not entry]
            return edge.records(entry), edge, [edge.records(other) for other in others]

    return virtually(work)


def held_to_a_cancel(records, edge, *, calls=1):
    """Check that a cancel was taken once and ended it, and give the terminal."""
    (terminal,) = [event for event in records if event.is_terminal]
    assert [event.kind for event in records].count(Kind.CANCEL_REQUESTED) == 1
    assert terminal.message_end.finish_reason == "cancelled"
    assert len(edge.upstream.calls) == calls
    assert all(call.closed for call in edge.upstream.calls)
    started = [event.kind for event in records].count(Kind.ATTEMPT_START)
    assert len(ends_of(records)) == started
    return terminal


def test_an_attempt_that_fails_within_a_soft_cancel_is_not_tried_again():
    """Its read in progress may end; what would follow its failure does not."""
    records, edge, _ = race(Script(0.1, CUT), (0.05, SOFT))
    terminal = held_to_a_cancel(records, edge)
    assert terminal.elapsed_us == pytest.approx(100_000, abs=2_000)


def test_a_cancel_between_two_attempts():
    """Nobody is read, so a soft one does not wait either; the terminal has the time of the socket that was."""
    records, edge, _ = race(Script(0.1, CUT), (2, SOFT), **LONG_BACKOFF)
    terminal = held_to_a_cancel(records, edge)
    assert terminal.elapsed_us == pytest.approx(2_000_000, abs=2_000)
    released = terminal.message_end.released
    assert released.upstream_socket_us == pytest.approx(100_000, abs=2_000)
    assert ends_of(records)[0].outcome is Outcome.FAILED


def test_no_hedge_begins_within_a_soft_cancel():
    """What the silence would have started is not started any more."""
    records, edge, _ = race(Script(HANG), (0.95, SOFT), hedge={"after_s": 1})
    terminal = held_to_a_cancel(records, edge)
    assert terminal.elapsed_us == pytest.approx(1_150_000, abs=5_000)


@pytest.mark.parametrize("cancel", [SOFT, HARD], ids=["soft", "hard"])
def test_a_cancel_of_both_that_race(cancel):
    """Each attempt's end has its own socket's time, the terminal the last."""
    records, edge, _ = race(Script(HANG), (2, cancel), second=Script(HANG), hedge={"after_s": 1})
    terminal = held_to_a_cancel(records, edge, calls=2)
    closed_us = [one.at_us for end in ends_of(records) for one in end.released]
    assert terminal.message_end.released.upstream_socket_us == max(closed_us)
    assert [end.outcome for end in ends_of(records)] == [Outcome.CANCELLED] * 2


def test_broken_json_within_a_soft_cancel_is_not_repaired():
    """The answer that came is on its own end; no second one is asked for."""
    records, edge, _ = race(BAD_JSON, (0.02, SOFT), body=JSON_CALL)
    held_to_a_cancel(records, edge)
    (end,) = ends_of(records)
    assert (end.outcome, end.content_events) == (Outcome.OK, 1)


def test_an_announced_attempt_is_not_called_behind_a_cancel():
    """Its attempt_start waits for the log when the cancel comes: it ends without a call."""
    records, edge, _ = race(
        Script(0.1, CUT),
        (0.3, SOFT),
        hold_at_s=0.09,
        release_at_s=0.35,
        retry={"backoff_ms": 1},
    )
    held_to_a_cancel(records, edge)
    _, second = ends_of(records)
    assert second.dispatched_us is None
    assert second.released == []


@pytest.mark.parametrize("kind", ["restart", "continue"])
@pytest.mark.parametrize("cancel", [SOFT, HARD], ids=["soft", "hard"])
def test_a_cancel_while_a_successor_begins(kind, cancel):
    """The cancel is of what the client sees, the successor with it: nobody is called, and nothing follows."""
    records, edge, others = race(
        Script(chunk("one"), HANG),
        (6.2, cancel),
        headers={"x-tokentrail-on-stall": kind},
        hold_at_s=4.9,
        release_at_s=6.4,
        stream={"stall_timeout_s": 5, "ttft_timeout_s": 5},
    )
    terminal = held_to_a_cancel(records, edge)
    assert "successor" not in terminal.raw
    assert ends_of(records)[0].error_code == "stall_timeout"
    for other in others:
        assert other[-1].message_end.cancel.requested_by == cancel.requested_by


@pytest.mark.parametrize("second", [HARD, SOFT], ids=["hard", "soft"])
def test_a_second_cancel_of_another_mode(second):
    """The first is on record; a hard one behind a soft one does not wait, a soft one changes nothing."""
    records, edge, _ = race(Script(HANG), (1, SOFT), (1.05, second), (1.06, SOFT))
    terminal = held_to_a_cancel(records, edge)
    assert terminal.message_end.cancel.mode == "soft"
    assert terminal.message_end.cancel.requested_by == "key-1"
    ended_s = 1.05 if second is HARD else 1 + SOFT_S
    assert terminal.elapsed_us == pytest.approx(ended_s * 1e6, abs=2_000)


def test_a_soft_cancel_keeps_an_answer_that_ends_in_time():
    """Its last read was in progress: it is whole, and says that a cancel was taken."""
    records, _, _ = race(Script(chunk("a"), 0.1, finish() + DONE), (0.05, SOFT))
    end = records[-1].message_end
    assert (end.finish_reason, end.cancel.requested_by) == ("stop", "key-1")


async def test_a_cancel_while_its_claim_is_decided(monkeypatch):
    """The Idempotency-Key is claimed, the claim not read back yet: nobody is called, and the claim stands for its day."""
    async with edge_with(OK) as edge:
        claimed, whole = asyncio.Event(), edge.log.claim

        async def claim(key, value):
            await claimed.wait()
            return await whole(key, value)

        monkeypatch.setattr(edge.log, "claim", claim)
        calling = asyncio.ensure_future(call(edge))
        await until(lambda: Kind.MESSAGE_START in edge.kinds())
        (entry,) = edge.service.registry.running()
        edge.service.registry.cancel(entry.generation.id, SOFT)
        claimed.set()
        await calling
        records = await edge.over(entry)
        assert await call(edge) == (entry.generation.id, True)
    terminal = held_to_a_cancel(records, edge, calls=0)
    released = terminal.message_end.released
    assert released.upstream_socket_us is None
    assert released.claim_us > CLAIM_US
