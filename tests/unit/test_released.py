"""What a generation gave back at its end, each with its time: after a cancel, a time-out, a deadline, a failure alike."""

import asyncio

import pytest

from edge.admission.holdings import CLAIM_US
from schemas.events import CancelRequested, Kind
from tests.support.once import call, ended, two_on_one
from tests.support.running import edge_with, ends_of
from tests.support.upstream import CUT, DONE, HANG, Script, chunk, finish
from tests.support.virtual import RunningEdge, ScriptedUpstream, clock_of, virtually
from tests.support.waiting import until

GRACE_US = 30_000_000
LIMITED = {"admission": {"tenant_generations": 1}}
ONCE = {"retry": {"max_attempts": 1}}
CANCEL = CancelRequested(mode="hard", reason="user_abort", source="api", requested_by="key-1")
ENDINGS = {
    "a cancel": (Script(chunk("a"), HANG), {}, None),
    "a cancel before content": (Script(HANG), {}, None),
    "a stall": (Script(chunk("a"), HANG), {}, "stall_timeout"),
    "no first token": (Script(HANG), {}, "ttft_timeout"),
    "a deadline": (Script(chunk("a"), HANG), {"x-deadline-ms": "3000"}, "timeout"),
    "a deadline before content": (Script(HANG), {"x-deadline-ms": "3000"}, "timeout"),
    "a broken answer": (Script(chunk("a"), CUT), {}, "incomplete_upstream"),
    "a proper end": (Script(chunk("a"), finish(), DONE), {}, "stop"),
}


def run_to_its_end(script, headers, code):
    """Run one generation with an Idempotency-Key, in virtual time: its records, and how many slots are held behind it."""

    async def work():
        edge = RunningEdge(
            ScriptedUpstream(script),
            clock_of(asyncio.get_running_loop()),
            stream={"ttft_timeout_s": 20, "stall_timeout_s": 10},
            **LIMITED | ONCE,
        )
        async with edge:
            generation_id, again = await call(edge, headers=headers)
            assert not again
            entry = edge.service.registry.entry(generation_id)
            if code is None:
                await asyncio.sleep(2)
                held = edge.service.admission.queue.held("acme")
                edge.service.registry.cancel(generation_id, CANCEL)
                assert held == 1
            return await edge.over(entry, 100), edge.service.admission.queue.held("acme")

    return virtually(work)


@pytest.mark.parametrize(("script", "headers", "code"), ENDINGS.values(), ids=ENDINGS)
def test_every_ending_says_what_was_given_back(script, headers, code):
    """Slot, socket and KV cache by the terminal; the window for the grace time; a claim with its day, or void at once."""
    records, held = run_to_its_end(script, headers, code)
    terminal = records[-1]
    said = terminal.message_end or terminal.error
    assert code in (None, "stop", terminal.error and terminal.error.code)
    released, (attempt,) = said.released, ends_of(records)
    assert released.admission_slot_us == terminal.elapsed_us
    assert held == 0
    assert {one.resource: one.at_us for one in attempt.released} == {
        "upstream_socket": released.upstream_socket_us,
        "kv_cache": released.kv_cache_us,
    }
    assert released.upstream_socket_us <= terminal.elapsed_us
    assert released.memory_window_us == terminal.elapsed_us + GRACE_US
    assert released.budget_reservation_us is None
    void = terminal.kind is Kind.ERROR and not any(event.has_content for event in records)
    if void:
        assert released.claim_us == terminal.elapsed_us
    else:
        assert CLAIM_US <= released.claim_us < CLAIM_US + 1_000_000


async def test_what_there_was_none_of_is_null():
    """Nothing limited, no key, and cancelled before any call: only the window was held."""
    async with edge_with(Script(HANG)) as edge:
        edge.log.hold()
        beginning = asyncio.ensure_future(edge.begin())
        await until(edge.service.registry.running)
        (entry,) = edge.service.registry.running()
        edge.service.registry.cancel(entry.generation.id, CANCEL)
        edge.log.release()
        await beginning
        end = (await edge.over(entry))[-1].message_end.released
    assert end.memory_window_us is not None
    assert {
        end.admission_slot_us,
        end.upstream_socket_us,
        end.kv_cache_us,
        end.budget_reservation_us,
        end.claim_us,
    } == {None}


async def test_a_loser_of_a_claim_gives_back_its_slot():
    """It called nobody: no socket, a slot that somebody else has at once, and a claim that counts no more."""
    first, second = two_on_one(Script(chunk("a"), finish(), DONE), **LIMITED)
    async with first, second:
        (won, _), (again, _) = await asyncio.gather(call(first), call(second))
        assert won == again
        ids = [next(iter(edge.service.registry._entries)) for edge in (first, second)]
        (edge, lost), *_ = [
            (edge, entry)
            for edge, id_ in zip((first, second), ids, strict=True)
            if (entry := edge.service.registry.entry(id_)).generation.id != won
        ]
        terminal = (await ended(edge, lost.generation.id))[-1]
        await until(lambda: not first.service.admission.queue.held("acme"))
        assert not second.service.admission.queue.held("acme")
    released = terminal.error.released
    assert terminal.error.code == "superseded"
    assert released.claim_us == released.admission_slot_us == terminal.elapsed_us
    assert released.upstream_socket_us is released.kv_cache_us is None


@pytest.mark.parametrize("reads", [(HANG,), (CUT,), (finish(), DONE)], ids=["cancelled", "broken", "whole"])
async def test_what_lies_before_the_terminal_counts_as_delivered(reads):
    """Also what the log had not acknowledged when the terminal was written: no reader is given less."""
    async with edge_with(Script(chunk("one two three four"), *reads), **ONCE) as edge:
        entry = await edge.begin()
        edge.log.hold()
        await until(lambda: Kind.DELTA in edge.kinds())
        edge.service.registry.cancel(entry.generation.id, CANCEL)
        await until(lambda: edge.records(entry)[-1].is_terminal)
        edge.log.release()
        records = await edge.over(entry)
    end, (attempt,) = records[-1].message_end or records[-1].error, ends_of(records)
    there = sum(part.tokens_estimate or 0 for event in records for part in event.canonical)
    assert end.tokens_delivered == attempt.tokens_delivered_estimate == there > 0


async def test_what_the_log_refused_was_not_delivered():
    """The terminal that stands in the end counts what was acknowledged alone."""
    async with edge_with(Script(chunk("one two"), chunk(" three four"), HANG), **ONCE) as edge:
        entry = await edge.begin()
        await until(lambda: entry.driver.recorder.tokens_acked)
        acked = entry.driver.recorder.tokens_acked
        edge.log.fail_next()
        edge.service.registry.cancel(entry.generation.id, CANCEL)
        records = await edge.over(entry)
    assert records[-1].error.code == "log_unavailable"
    there = sum(p.tokens_estimate or 0 for e in records for p in e.canonical)
    assert acked <= records[-1].error.tokens_delivered == there
