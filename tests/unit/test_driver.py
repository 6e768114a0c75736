"""The driver: whatever interrupts a generation, it ends exactly once, its attempts before it, its provider let go.

What the log does to it is in ``test_driver_log``.
"""

import asyncio

import pytest

from schemas.events import CancelRequested, Dispatch, Kind, Outcome
from tests.support.edge import turns
from tests.support.running import ONE_ROUTE, SHORT, check, edge_with, ends_of, run
from tests.support.upstream import CUT, DONE, HANG, OK, Script, chunk, finish
from tests.support.waiting import until

HARD = CancelRequested(mode="hard", reason="user_abort", source="api", requested_by="key-1")
SOFT = CancelRequested(mode="soft", reason="user_abort", source="api")


async def test_a_proper_stream_from_start_to_end():
    """Start, attempt, each event as it came, the attempt's end, the terminal with the protocol's own mark."""
    records, edge = await run(OK)
    assert edge.kinds() == [
        Kind.MESSAGE_START,
        Kind.ATTEMPT_START,
        Kind.DELTA,
        Kind.DELTA,
        Kind.FRAME,
        Kind.USAGE,
        Kind.ATTEMPT_END,
        Kind.MESSAGE_END,
    ]
    assert records[-1].raw == "[DONE]"
    assert records[-1].message_end.finish_reason == "stop"
    (end,) = ends_of(records)
    assert (end.outcome, end.committed, end.usage.output) == (Outcome.OK, True, 2)
    assert edge.upstream.calls[0].drained


async def test_nobody_is_called_before_the_start_is_in_the_log():
    """message_start and attempt_start are acknowledged first; then, and only then, the provider is called."""
    async with edge_with(OK) as edge:
        edge.log.hold()
        beginning = asyncio.ensure_future(edge.begin())
        await until(lambda: len(edge.log.all_records()) == 2)
        await turns(20)
        assert edge.upstream.calls == []
        assert edge.kinds() == [Kind.MESSAGE_START, Kind.ATTEMPT_START]
        edge.log.release()
        await edge.over(await beginning)
        assert len(edge.upstream.calls) == 1


@pytest.mark.parametrize("end", [CUT, b""])
async def test_a_provider_that_breaks_off_is_an_error(end):
    """A truncated stream is never ``stop``: the partial output is kept, the terminal says what happened."""
    records, _ = await run(Script(chunk("a"), end))
    assert records[-1].error.code == "incomplete_upstream"
    (attempt,) = ends_of(records)
    assert (attempt.outcome, attempt.error_code) == (Outcome.FAILED, "incomplete_upstream")
    assert attempt.possibly_billed


async def test_a_hard_cancel_closes_the_socket_at_once():
    """It does not wait for the provider; the record says who asked, and the end is a message_end ``cancelled``."""
    async with edge_with(Script(chunk("a"), HANG)) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        entry.driver.request_cancel(HARD)
        entry.driver.request_cancel(SOFT)
        records = await edge.over(entry)
    assert edge.upstream.calls[0].closed
    assert edge.kinds()[-3:] == [Kind.CANCEL_REQUESTED, Kind.ATTEMPT_END, Kind.MESSAGE_END]
    assert records[-1].message_end.finish_reason == "cancelled"
    assert records[-1].message_end.cancel == HARD
    assert ends_of(records)[0].outcome is Outcome.CANCELLED


async def test_a_soft_cancel_lets_the_read_in_progress_finish():
    """What the provider is just sending is kept; then its socket is closed."""
    more = asyncio.Event()
    async with edge_with(Script(chunk("a"), more, chunk("b"), chunk("c"), HANG)) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        entry.driver.request_cancel(SOFT)
        more.set()
        records = await edge.over(entry)
    assert [part.text for event in records for part in event.canonical] == ["a", "b"]
    assert records[-1].message_end.finish_reason == "cancelled"


async def test_a_soft_cancel_of_a_silent_provider_waits_a_moment_at_the_most():
    """A provider that sends nothing is let go after ``cancel.soft_ms``."""
    async with edge_with(Script(chunk("a"), HANG)) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        entry.driver.request_cancel(SOFT)
        records = await edge.over(entry, within_s=5)
    assert records[-1].message_end.finish_reason == "cancelled"
    assert edge.upstream.calls[0].closed


async def test_a_cancel_before_anything_was_sent():
    """Cancelled while queued: nobody is called, the announced attempt has its end."""
    async with edge_with(OK) as edge:
        edge.log.hold()
        beginning = asyncio.ensure_future(edge.begin())
        await until(edge.service.registry.running)
        (entry,) = edge.service.registry.running()
        entry.driver.request_cancel(HARD)
        edge.log.release()
        await beginning
        records = await edge.over(entry)
    assert edge.upstream.calls == []
    assert ends_of(records)[0].dispatch is Dispatch.NOT_CONNECTED
    assert not ends_of(records)[0].possibly_billed
    assert records[-1].message_end.finish_reason == "cancelled"


async def test_a_cancel_during_the_backoff_ends_the_chain():
    """Between two attempts there is nothing to close: the terminal follows, and no attempt is announced."""
    busy = Script(b"{}", status=503, content_type="application/json")
    async with edge_with(busy, OK, retry={"backoff_ms": 5_000}, default_route=ONE_ROUTE) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.ATTEMPT_END in edge.kinds())
        entry.driver.request_cancel(HARD)
        records = await edge.over(entry, within_s=3)
    assert len(edge.upstream.calls) == 1
    assert records[-1].message_end.finish_reason == "cancelled"


async def test_after_a_cancel_nothing_is_tried_again():
    """An attempt that fails while a soft cancel waits for it is the last one; its failure stands on it."""
    fails = asyncio.Event()
    busy = Script(b"{}", status=503, content_type="application/json", head=fails)
    async with edge_with(busy, OK) as edge:
        entry = await edge.begin()
        await until(lambda: edge.upstream.calls)
        entry.driver.request_cancel(SOFT)
        fails.set()
        records = await edge.over(entry)
    assert len(edge.upstream.calls) == 1
    assert ends_of(records)[0].error_code == "overloaded"
    assert records[-1].message_end.finish_reason == "cancelled"


async def test_a_stop_on_purpose_ends_what_still_runs():
    """After the drain time the rest ends as ``edge_lost``, by this edge itself, before it disconnects."""
    async with edge_with(Script(chunk("a"), HANG)) as edge:
        await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
    records = edge.records()
    check(records)
    assert records[-1].error.code == "edge_lost"
    assert ends_of(records)[0].outcome is Outcome.LOST


async def test_a_stop_does_not_try_again():
    """Ending on purpose is no failure of a provider: no other route is called any more."""
    async with edge_with(Script(HANG), OK) as edge:
        await edge.begin()
        await until(lambda: edge.upstream.calls)
    check(edge.records())
    assert len(edge.upstream.calls) == 1
    assert edge.records()[-1].error.code == "edge_lost"


@pytest.mark.parametrize("failing", [0, 1], ids=["first attempt", "second attempt"])
async def test_a_bug_of_ours_ends_the_generation_once(failing, caplog):
    """Whatever is raised inside, the attempt that was open has its end and the generation exactly one terminal."""
    bug = Script(chunk("a"), RuntimeError("a bug"))
    busy = Script(b"{}", status=503, content_type="application/json")
    async with edge_with(*[busy] * failing, bug) as edge:
        entry = await edge.begin()
        records = await edge.over(entry)
    assert records[-1].error.code == "edge_lost"
    assert [end.outcome for end in ends_of(records)] == [*[Outcome.FAILED] * failing, Outcome.LOST]


async def test_heartbeats_stand_in_the_log_while_it_runs():
    """The liveness that the orphan finder watches: from the start, at their interval, none behind the end."""
    sections = {"stream": SHORT | {"heartbeat_s": 0.02}}
    records, _ = await run(Script(0.15, chunk("a"), finish(), DONE), **sections)
    beats = [event for event in records if event.kind is Kind.HEARTBEAT]
    assert len(beats) >= 3
    assert {beat.heartbeat.stage.value for beat in beats} <= {"queued", "prefill", "decode"}
    assert records[-1].kind is Kind.MESSAGE_END
