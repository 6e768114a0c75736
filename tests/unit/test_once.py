"""Idempotency-Key on two edges and one log: one generation a key, whoever asks where and when."""

import asyncio
import contextlib

import pytest

from edge.clock import Clock, system_clock
from edge.dialects import BadRequest
from edge.idempotency.claims import key_of
from edge.idempotency.once import KEY_CHARS_MAX, Conflict, asked_of
from edge.log import LogAway
from edge.log.memory import MemoryLog
from schemas.events import CancelRequested, ErrorEnd, Kind, LogEvent
from schemas.ids import uuid7
from schemas.records import ClaimRecord
from schemas.settings import ApiKey
from schemas.topics import DAY_MS
from tests.support.edge import CODEC, turns
from tests.support.once import DIALECT, call, ended, generations, kinds, two_on_one
from tests.support.running import BODY, edge_settings
from tests.support.upstream import HANG, OK, Script, chunk
from tests.support.waiting import until

REFUSED = Script(b'{"error": {"message": "no"}}', status=400, content_type="application/json")
RUNS = Script(chunk("a"), HANG)
SILENT = Script(HANG)
OTHER = ApiKey(id="key-2", tenant="rival", sha256="1" * 64)
UNBEGUN = [Kind.MESSAGE_START, Kind.ERROR]


@contextlib.asynccontextmanager
async def started(*scripts, **sections):
    """Two started edges in front of one provider of scripts."""
    first, second = two_on_one(*scripts, **sections)
    async with first, second:
        await until(lambda: first.log.claims_read)
        yield first, second


async def test_the_second_call_is_the_first_ones():
    """While it runs, and when it has ended, on either edge: one generation, one call of the provider."""
    async with started(OK) as (first, second):
        generation_id, again = await call(first)
        assert not again
        assert await call(second) == (generation_id, True)
        await ended(first, generation_id)
        assert await call(first) == (generation_id, True)
        assert await call(second) == (generation_id, True)
        assert len(first.upstream.calls) == 1
        assert list(generations(first.log)) == [generation_id]


async def test_keys_are_a_tenants_own_and_bodies_are_their_own():
    """Another key and another tenant's same key begin anew; the same key with another body is a conflict."""
    async with started(RUNS) as (first, second):
        found = [
            await call(first),
            await call(second, key="other"),
            await call(second, caller=OTHER),
        ]
        assert len({generation_id for generation_id, _ in found}) == 3
        assert not any(again for _, again in found)
        for edge in (first, second):
            with pytest.raises(Conflict):
                await call(edge, temperature=1)
        await call(first)
        shown = first.service.metrics.render().decode().splitlines()
        for said in (
            'total{answer="begun"} 1.0',
            'total{answer="conflict"} 1.0',
            'total{answer="replayed"} 1.0',
        ):
            assert f"tokentrail_once_{said}" in shown
        assert {"tokentrail_claims 3.0", "tokentrail_claims_forgotten_total 0.0"} <= set(shown)


async def test_two_edges_race():
    """Claims that cross: the first in the log runs; the other's generation ends superseded, before any attempt."""
    async with started(OK) as (first, second):
        found = await asyncio.gather(*(call(edge) for edge in (first, second, second, first)))
        (winner,) = {generation_id for generation_id, _ in found}
        assert [again for _, again in found].count(False) == 1
        seen = generations(first.log)
        (loser,) = seen.keys() - {winner}
        assert kinds(seen[loser]) == UNBEGUN
        error = seen[loser][-1].error
        assert (error.code, error.attempts, error.successor) == ("superseded", 0, winner)
        assert winner in error.message
        starts = [events[0].message_start for events in seen.values()]
        assert [start.idempotency_key_hash for start in starts] == [key_of("acme", "k")] * 2
        await until(lambda: kinds(generations(first.log)[winner])[-1] is Kind.MESSAGE_END)
        assert len(first.upstream.calls) == 1
        await until(lambda: not first.service.registry.running() and not second.service.registry.running())


async def test_a_race_with_another_body_is_a_conflict():
    """The loser's body is another one: its own generation ends superseded all the same, and its call is a conflict."""
    async with started(RUNS) as (first, second):
        found = await asyncio.gather(call(first), call(second, temperature=1), return_exceptions=True)
        assert sorted(type(one).__name__ for one in found) == ["Conflict", "tuple"]
        assert UNBEGUN in map(kinds, generations(first.log).values())


async def test_an_error_before_any_content_frees_the_key():
    """Nothing was given to anybody: the next call with the key begins anew, also with another body, on either edge."""
    async with started(REFUSED, REFUSED, RUNS) as (first, second):
        failed, _ = await call(first)
        assert (await ended(first, failed))[-1].error.code == "bad_request"
        other, again = await call(second, temperature=1)
        assert not again
        assert (await ended(second, other))[-1].error.code == "bad_request"
        third, again = await call(first)
        assert not again
        assert len({failed, other, third}) == 3
        assert await call(second) == (third, True)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_gave_content_or_was_cancelled_stands(cancelled):
    """An error behind content is the key's answer, and so is an end on request before any."""
    async with started(SILENT if cancelled else Script(chunk("a"), b"")) as (first, second):
        generation_id, _ = await call(first)
        if cancelled:
            first.service.registry.cancel(generation_id, CancelRequested(mode="hard"))
        last = (await ended(first, generation_id))[-1]
        assert last.kind is (Kind.MESSAGE_END if cancelled else Kind.ERROR)
        assert await call(second) == (generation_id, True)


async def test_a_claim_is_void_after_a_day_by_the_logs_clock():
    """Within a day, exactly, it stands; a millisecond later it does not, whatever the edge's own clock says."""
    real, moved_ms = system_clock(), [0]
    log = MemoryLog(lambda: real.wall_us() // 1000 // DAY_MS * DAY_MS + moved_ms[0], 4)
    async with started(RUNS, event_log=log) as (first, second):
        generation_id, _ = await call(first)
        clock = second.clock
        ahead = Clock(
            clock.now_us, lambda: clock.wall_us() + 2 * DAY_MS * 1000, clock.random_bits, clock.jitter
        )
        second.service.clock = ahead  # it goes by the log alone
        second.service.desk._clock = clock
        moved_ms[0] = DAY_MS
        assert await call(second) == (generation_id, True)
        moved_ms[0] = DAY_MS + 1
        other, again = await call(second)
        assert (other != generation_id, again) == (True, False)


async def test_an_edge_that_froze_before_its_first_attempt():
    """Its claim is waited for within a bound and refused with "later"; once the finder has ended it the key is free.

    When it wakes it has been taken for dead: it calls no provider.
    """
    short = {"pipeline": {"orphan_after_s": 0.8}, "stream": {"heartbeat_s": 0.2}, "log": {"delivery_s": 0.3}}
    async with started(RUNS) as (first, second):
        first.service.settings = edge_settings(**short)  # the other one has all the time that it needs
        frozen, woken = freeze(first)
        sleeping = asyncio.ensure_future(call(first))
        await asyncio.wait_for(frozen.wait(), 5)
        (dead,) = generations(first.log)
        second.service.once.bound_s = 0.1
        with pytest.raises(LogAway, match="only beginning"):
            await call(second)
        second.service.once.bound_s = 10
        end_as_lost(first, dead)
        found, again = await call(second)
        assert (found != dead, again) == (True, False)
        began_us = first.service.registry.get(dead).accepted_us
        await until(lambda: first.clock.now_us() - began_us > 600_000)  # well beyond half of the orphan time
        woken.set()
        with pytest.raises(LogAway):
            await sleeping
        await until(lambda: not first.service.registry.running())
        assert len(first.upstream.calls) == 1


def freeze(edge):
    """Let an edge fall asleep when it has won its claim; (it sleeps, wake it)."""
    frozen, woken, once = asyncio.Event(), asyncio.Event(), edge.service.once
    claimed, once.bound_s = once._claimed, 10

    async def slow(entry, asked):
        found = await claimed(entry, asked)
        frozen.set()
        await woken.wait()
        return found

    once._claimed = slow
    return frozen, woken


def end_as_lost(edge, generation_id):
    """Write what the finder writes of a generation without an attempt."""
    (start,) = generations(edge.log)[generation_id]
    terminal = LogEvent(
        generation_id=generation_id,
        tenant=start.tenant,
        key_id=start.key_id,
        dialect=start.dialect,
        kind=Kind.ERROR,
        seq=1,
        wall_us=start.wall_us,
        edge_id="finder",
        error=ErrorEnd(code="edge_lost", message="lost", attempts=0),
    )
    edge.log.put(
        edge.service.registry.get(generation_id).identity.partition,
        generation_id.encode(),
        CODEC.encode(terminal),
    )


@pytest.mark.parametrize("how", ["never there", "taken away"])
async def test_a_claim_whose_generation_is_not_in_the_log(how):
    """Nobody can say that it never ran: the call is refused with "later", rather than made a second time."""
    async with started(RUNS) as (first, second):
        if how == "taken away":
            generation_id, _ = await call(first)
            partition = first.service.registry.get(generation_id).identity.partition
            await until(lambda: Kind.DELTA in kinds(generations(first.log)[generation_id]))
            first.log.drop(partition, lambda record: record is not None)
        else:
            asked = asked_of(["k"], "acme", DIALECT, BODY)
            record = ClaimRecord(
                claim_key=asked.key,
                tenant="acme",
                generation_id=uuid7(first.clock.wall_us() // 1000, 7),
                body_hash=asked.body_hash,
                edge_id="edge-9",
                wall_us=0,
            )
            place = await first.log.claim(asked.key.encode(), CODEC.encode(record))
            await second.service.once.claims.reached(*place)
        calls = len(first.upstream.calls)
        for edge in (second, first):
            with pytest.raises(LogAway):
                await call(edge)
        assert len(first.upstream.calls) == calls


async def test_an_edge_that_died_in_its_first_attempt():
    """Its claim stands while nobody has said that it is dead; without content the finder's word frees the key."""
    async with started(SILENT) as (first, second):
        generation_id, _ = await call(first)
        assert await call(second) == (generation_id, True)
        entry = first.service.registry._entries[generation_id]
        entry.driver.interrupt("edge_lost")  # the record is the finder's
        await ended(first, generation_id)
        other, again = await call(second)
        assert (other != generation_id, again) == (True, False)


@pytest.mark.parametrize("at", ["start", "claim", "attempt"])
async def test_a_log_that_takes_nothing_leaves_the_key_free(at):
    """Whatever the log refuses of the beginning, the call is refused with "later", and the next one begins anew."""
    async with started(OK) as (first, second):
        if at == "claim":
            first.log.claim = _refuse
        elif at == "start":
            first.log.fail_next()
        else:
            taken = first.service.launch

            async def launch(entry):
                first.log.fail_next()
                await taken(entry)

            first.service.launch = launch
        with pytest.raises(LogAway):
            await call(first)
        assert not first.upstream.calls
        await until(lambda: not first.service.registry.running())
        with contextlib.suppress(AttributeError):
            del first.log.claim
        generation_id, again = await call(second)
        assert not again
        assert (await ended(second, generation_id))[-1].kind is Kind.MESSAGE_END


async def _refuse(key, value):
    raise LogAway("told to refuse")


async def test_a_call_that_is_given_up_while_it_claims():
    """Whoever gives up in the middle leaves an end behind, and the key to others."""
    async with started(OK) as (first, second):
        frozen, _ = freeze(first)
        calling = asyncio.ensure_future(call(first))
        await asyncio.wait_for(frozen.wait(), 5)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await until(lambda: not first.service.registry.running())
        (left,) = generations(first.log).values()
        assert kinds(left) == UNBEGUN
        assert (await call(second))[1] is False
        assert not first.service.once._locks


@pytest.mark.parametrize("given", [[""], ["a", "b"], ["x" * (KEY_CHARS_MAX + 1)]])
def test_a_key_that_cannot_be_taken(given):
    """None, one too long, or several are refused before anything begins."""
    with pytest.raises(BadRequest):
        asked_of(given, "acme", "openai.chat", {})


def test_what_makes_two_calls_the_same():
    """The order of a body's members does not count; each value, the dialect, the tenant and the key do."""
    asked = asked_of(["k"], "acme", "openai.chat", {"a": 1, "b": [1, 2]})
    assert asked == asked_of(["k"], "acme", "openai.chat", {"b": [1, 2], "a": 1})
    assert asked_of([], "acme", "openai.chat", {}) is None
    for key, tenant, dialect, body in (
        ("k", "acme", "openai.chat", {"a": 1, "b": [2, 1]}),
        ("k", "acme", "anthropic.messages", {"a": 1, "b": [1, 2]}),
    ):
        other = asked_of([key], tenant, dialect, body)
        assert (other.key == asked.key, other.body_hash == asked.body_hash) == (True, False)
    assert key_of("a", "bc") != key_of("ab", "c")
    assert "k" * 20 not in key_of("acme", "k" * 20)


async def test_calls_that_wait_behind_one_another_wait_once():
    """Many retries of a key that is not decided yet: all are refused within the bound, not one bound after the other."""
    async with started(OK) as (first, second):
        frozen, woken = freeze(first)
        sleeping = asyncio.ensure_future(call(first))
        await asyncio.wait_for(frozen.wait(), 5)
        second.service.once.bound_s = first.service.once.bound_s = 0.2
        waiting = [call(edge) for edge in (first, second) for _ in range(10)]
        refused = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 2)
        assert {type(one) for one in refused} == {LogAway}
        woken.set()
        generation_id, again = await sleeping
        assert not again
        assert await call(second) == (generation_id, True)
        assert not first.service.once._locks


async def test_a_call_without_the_header_touches_no_claims():
    """What nobody asked for costs nothing: no claim is written, looked up or waited for."""
    async with started(OK) as (first, _):
        first.log.claim = first.service.once.claims.standing = _refuse
        entry = await first.begin()
        await first.over(entry)
        assert not first.log._claims.held
        await turns()
