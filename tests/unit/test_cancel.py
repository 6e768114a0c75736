"""A cancel, whenever and from wherever it comes: one terminal, what it met is on record, asking again changes nothing."""

import asyncio

import pytest

from edge.routes.generations import end
from schemas.events import CancelRequested, Kind, Outcome, Stage
from schemas.outcomes import finish_reason_of
from tests.support.edge import turns
from tests.support.once import two_on_one
from tests.support.running import OWNER, edge_with, ends_of
from tests.support.upstream import DONE, HANG, Script, chunk, finish
from tests.support.waiting import until

REASONS = ("user_abort", "client_disconnect", "policy_violation")
TURNS = 36
"""More than a proper end takes from the provider's last bytes to the log."""


def asked_for(mode="hard", reason="user_abort"):
    """A cancel call as the route makes it."""
    return CancelRequested(mode=mode, reason=reason, source="api", requested_by="key-1")


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("stage", [Stage.QUEUED, Stage.PREFILL, Stage.DECODE])
async def test_what_a_cancel_meets_is_on_record(mode, reason, stage):
    """Before the call, before the first token, in the middle: mode, reason, who, the stage, tokens, the socket's close."""
    script = Script(chunk("one two three"), HANG) if stage is Stage.DECODE else Script(HANG)
    async with edge_with(script) as edge:
        if stage is Stage.QUEUED:
            edge.log.hold()
        beginning = asyncio.ensure_future(edge.begin())
        await until(edge.service.registry.running)
        (entry,) = edge.service.registry.running()
        if stage is Stage.DECODE:
            await until(lambda: Kind.DELTA in edge.kinds())
        elif stage is Stage.PREFILL:
            await until(lambda: edge.upstream.calls)
        for again in (asked_for(mode, reason), asked_for("hard"), asked_for("soft", "policy_violation")):
            assert edge.service.registry.cancel(entry.generation.id, again)
        edge.log.release()
        await beginning
        records = await edge.over(entry)
    (noted,) = [event for event in records if event.kind is Kind.CANCEL_REQUESTED]
    ended, (attempt,) = records[-1].message_end, ends_of(records)
    assert ended.finish_reason == "cancelled"
    for cancel in (noted.cancel, ended.cancel):
        assert (cancel.mode, cancel.reason, cancel.source, cancel.requested_by) == (
            mode,
            reason,
            "api",
            "key-1",
        )
        assert (cancel.stage, cancel.policy) == (stage, "grace")
    assert (attempt.outcome, attempt.error_code) == (Outcome.CANCELLED, "cancelled")
    assert (ended.tokens_generated > 0) == (ended.tokens_delivered > 0) == (stage is Stage.DECODE)
    assert len(edge.upstream.calls) == (stage is not Stage.QUEUED)
    assert all(call.closed for call in edge.upstream.calls)
    closed_us = [one.at_us for one in attempt.released]
    assert [one.resource for one in attempt.released] == (
        [] if stage is Stage.QUEUED else ["upstream_socket", "kv_cache"]
    )
    assert all(noted.elapsed_us <= at_us <= records[-1].elapsed_us for at_us in closed_us)
    assert ended.released.upstream_socket_us == ended.released.kv_cache_us == max(closed_us, default=None)
    assert records[-1].raw_event is None
    assert "cancelled" in records[-1].raw


@pytest.mark.parametrize("from_other_edge", [False, True])
@pytest.mark.parametrize("mode", ["soft", "hard"])
async def test_a_cancel_in_the_same_moment_as_the_end(from_other_edge, mode):
    """However near: one terminal, whichever came first in the log, and every answer to a cancel is that one."""
    seen = set()
    for delay in range(TURNS):
        last = asyncio.Event()
        first, second = two_on_one(Script(chunk("a"), last, finish(), DONE), cancel={"soft_ms": 5})
        async with first, second:
            entry = await first.begin()
            await until(lambda edge=first: Kind.DELTA in edge.kinds())
            asked_at = second if from_other_edge else first
            last.set()
            await turns(delay)
            said = await end(asked_at.service, OWNER, entry.generation.id, asked_for(mode))
            again = await end(second.service, OWNER, entry.generation.id, asked_for("hard"))
            records = await first.over(entry)
        (terminal,) = [event for event in records if event.is_terminal]
        assert said.message_end == again.message_end == terminal.message_end
        reason = terminal.message_end.finish_reason
        assert reason in ("cancelled", finish_reason_of("stop"))
        asked = [event for event in records if event.kind is Kind.CANCEL_REQUESTED]
        assert len(asked) <= 1
        assert (terminal.message_end.cancel is not None) == bool(asked)
        assert asked or reason == "stop"
        seen.add(reason)
    assert "stop" in seen
    assert from_other_edge or mode == "soft" or "cancelled" in seen


async def test_a_cancel_of_what_has_ended_is_answered_with_its_end():
    """Nothing is written any more; and what runs nowhere is not found."""
    first, second = two_on_one(Script(chunk("a"), finish(), DONE))
    async with first, second:
        entry = await first.begin()
        before = await first.over(entry)
        for edge in (first, second):
            said = await end(edge.service, OWNER, entry.generation.id, asked_for())
            assert said.message_end.finish_reason == "stop"
        await turns(20)
        assert first.records(entry) == before
        unknown = entry.generation.id[:-4] + "0000"
        assert (await end(second.service, OWNER, unknown, asked_for())).status == 404
