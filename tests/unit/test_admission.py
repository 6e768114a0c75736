"""Who may begin: limits that hold, a queue that is fair, and a slot that is given back once whatever happens."""

import asyncio
import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.admission.gate import ProviderFull, TenantFull, WaitedTooLong
from edge.admission.queueing import Ask, Bounds, Full, Queue, Rules, Stand
from edge.app import build_app
from edge.log import LogAway
from edge.provider.health import ProvidersAway
from schemas.events import Kind
from schemas.settings import ApiKey, Provider
from tests.support.asgi import post
from tests.support.once import call
from tests.support.running import BODY, OWNER, RunningEdge, edge_with
from tests.support.upstream import DONE, HANG, Script, ScriptedUpstream, chunk, finish
from tests.support.virtual import clock_of, virtually
from tests.support.waiting import until

SECOND_US = 1_000_000
OTHER = ApiKey(id="key-2", tenant="umbrella", sha256="1" * 64)
FIRST = ApiKey(id="key-3", tenant="initech", sha256="2" * 64, allow=frozenset({"priority"}))
KEYED = ApiKey(id="key-1", tenant="acme", sha256=hashlib.sha256(b"acme").hexdigest())
WHOLE = Script(chunk("a"), finish(), DONE)
STUCK = Script(chunk("a"), HANG)
REFUSED = Script(b"{}", status=400, content_type="application/json")
BROKEN = Script(b"{}", status=500, content_type="application/json")
ONE_AT_ONCE = {"tenant_generations": 1}


def rules(
    tenant=None, tenant_per_s=None, one=None, one_per_s=None, waiting=1_000, waiting_tenant=1_000, age=0
):
    """Give limits of the tenants and of the provider ``one``."""
    providers = {"one": Bounds(one, one_per_s), "two": Bounds()}
    return Rules(Bounds(tenant, tenant_per_s), providers, waiting, waiting_tenant, age)


def test_turns_go_round_the_tenants_and_priority_before_them():
    """One tenant's long queue keeps no other from its turn; a higher priority goes first; a tenant's own keep order."""
    queue = Queue(rules(one=1))
    running = queue.enter(Ask("a", ("one",)), 0)
    asked = [("a", 1), ("a", 1), ("a", 1), ("b", 1), ("c", 2), ("b", 0), ("b", 1)]
    places = [queue.enter(Ask(tenant, ("one",), rank), 0) for tenant, rank in asked]
    order = []
    while running is not None:
        queue.leave(running)
        (running,) = queue.turn(0) or [None]
        order += [] if running is None else [places.index(running)]
    assert order == [5, 0, 3, 1, 6, 2, 4]


def test_a_flood_of_urgent_calls_keeps_nobody_out_for_good():
    """Who has waited long enough is as urgent as any: behind an endless queue of high priority the low ones have turns."""
    queue = Queue(rules(one=1, age=2 * SECOND_US))
    running = queue.enter(Ask("urgent", ("one",), 0), 0)
    low, normal = queue.enter(Ask("b", ("one",), 2), 0), queue.enter(Ask("c", ("one",), 1), 0)
    began_s = {}
    for now_s in range(10):
        while queue.waiting < 50:
            queue.enter(Ask("urgent", ("one",), 0), now_s * SECOND_US)
        queue.leave(running)
        (running,) = queue.turn(now_s * SECOND_US)
        began_s[running] = now_s
    assert (began_s[normal], began_s[low]) == (2, 4)


def test_a_rate_lets_a_second_come_at_once_and_then_one_by_one():
    """Three a second: three at once, then one every third of a second, and the queue says when."""
    queue = Queue(rules(tenant_per_s=3))
    places = [queue.enter(Ask("a", ("one",)), SECOND_US) for _ in range(6)]
    assert [place.stand for place in places] == [Stand.ADMITTED] * 3 + [Stand.WAITING] * 3
    wakes = []
    while (wake_us := queue.wake_us()) is not None:
        assert queue.turn(wake_us - 1) == []
        assert len(queue.turn(wake_us)) == 1
        wakes.append(wake_us - SECOND_US)
    assert wakes == [333_334, 666_668, 1_000_002]


def test_the_first_provider_with_room_is_taken():
    """A provider at its limit sends its callers to the next route; of its own it has never more."""
    queue = Queue(rules(one=1))
    asks = [queue.enter(Ask("a", ("one", "two")), 0) for _ in range(3)]
    assert [place.provider for place in asks] == ["one", "two", "two"]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("enter"),
            st.sampled_from("abc"),
            st.sampled_from([("one",), ("one", "two"), ("two",)]),
            st.integers(0, 2),
        ),
        st.tuples(st.just("leave"), st.integers(0, 30), st.just(None), st.just(None)),
        st.tuples(st.just("time"), st.integers(0, SECOND_US), st.just(None), st.just(None)),
    ),
    max_size=60,
)
LIMITS = st.builds(
    rules,
    tenant=st.none() | st.integers(1, 3),
    tenant_per_s=st.none() | st.floats(0.5, 20),
    one=st.none() | st.integers(1, 3),
    one_per_s=st.none() | st.floats(0.5, 20),
    waiting=st.integers(0, 8),
    waiting_tenant=st.integers(0, 4),
)


@given(LIMITS, STEPS)
def test_no_limit_is_ever_passed_and_nobody_waits_who_could_begin(limits, steps):
    """Over any history: places held are those admitted and not left, each limit holds, and no free place stays empty."""
    queue, places, now_us, starts = Queue(limits), [], 0, []
    for what, which, providers, rank in steps:
        if what == "enter":
            before = queue.waiting
            try:
                places.append(queue.enter(Ask(which, providers, rank), now_us))
            except Full:
                own = sum(p.stand is Stand.WAITING and p.ask.tenant == which for p in places)
                assert before >= limits.waiting_max or own >= limits.waiting_tenant_max
            else:
                starts += [(places[-1], now_us)] if places[-1].stand is Stand.ADMITTED else []
        elif what == "leave" and places:
            queue.leave(places[which % len(places)])
        elif what == "time":
            now_us += which
        starts += [(place, now_us) for place in queue.turn(now_us)]
        running = [place for place in places if place.stand is Stand.ADMITTED]
        held = Counter(place.ask.tenant for place in running)
        assert all(queue.held(tenant) == held[tenant] for tenant in "abc")
        assert limits.tenant.at_once is None or max(held.values(), default=0) <= limits.tenant.at_once
        at_one = sum(place.provider == "one" for place in running)
        assert limits.providers["one"].at_once is None or at_one <= limits.providers["one"].at_once
        waiting = [place for place in places if place.stand is Stand.WAITING]
        assert queue.waiting == len(waiting) <= limits.waiting_max
        wake_us = queue.wake_us()
        assert wake_us is None or wake_us > now_us
    for tenant in "abc":
        times = [at_us for place, at_us in starts if place.ask.tenant == tenant]
        _within(times, limits.tenant.per_s)
    _within([at_us for place, at_us in starts if place.provider == "one"], limits.providers["one"].per_s)
    for place in places:
        queue.leave(place)
        queue.leave(place)
        queue.turn(now_us)
    assert not any(queue.held(tenant) for tenant in "abc")


def _within(times, per_s):
    """Hold the starts of every span of time to the rate and a second's worth at once."""
    if per_s is None:
        return
    for i, from_us in enumerate(times):
        for j in range(i, len(times)):
            most = (times[j] - from_us) / SECOND_US * per_s + max(1, per_s) + 0.01
            assert j - i + 1 <= most


class Held:
    """A generation's slot for a property: what was done to it, counted at the queue."""

    def __init__(self, edge):
        self.queue = edge.service.admission.queue
        self.gave = Counter()
        leave = self.queue.leave

        def counted(place):
            was = place.stand
            leave(place)
            self.gave[place.number] += was is Stand.ADMITTED

        self.queue.leave = counted


@given(
    st.lists(
        st.tuples(
            st.sampled_from([OWNER, OTHER, FIRST]),
            st.sampled_from([WHOLE, STUCK, REFUSED, BROKEN]),
            st.integers(0, 3_000),
            st.sampled_from(["nothing", "cancel", "abandon"]),
            st.sampled_from([{}, {"x-deadline-ms": "300"}, {"x-priority": "high"}]),
        ),
        max_size=8,
    )
)
def test_whatever_happens_a_slot_is_given_back_once(calls):
    """Answers, errors, cancels, callers that go while they wait, deadlines: at the end nothing is held, nor given twice."""

    async def work():
        clock = clock_of(asyncio.get_running_loop())
        scripts = [script for _, script, *_ in calls for _ in range(5)]
        edge = RunningEdge(
            ScriptedUpstream(*scripts),
            clock,
            admission={"tenant_generations": 1, "tenant_starts_per_s": 2, "waiting_max": 3, "wait_s": 2},
            providers={
                "one": Provider(base_url="http://127.0.0.1:1/v1", generations=2),
                "two": Provider(base_url="http://127.0.0.1:1/v1", generations=1),
            },
        )
        held = Held(edge)
        async with edge:
            tasks = [asyncio.ensure_future(one(edge, *said)) for said in calls]
            await asyncio.gather(*tasks)
            await until(lambda: not edge.service._tasks)
        assert not any(held.queue.held(key.tenant) for key in (OWNER, OTHER, FIRST))
        assert not held.queue.waiting
        assert all(count <= 1 for count in held.gave.values())

    virtually(work)


async def one(edge, caller, script, delay_ms, then, headers):
    """Make one call, and end it in some way at some time."""
    del script
    await asyncio.sleep(delay_ms / 1000)  # virtual: the call's own time
    beginning = asyncio.ensure_future(edge.begin(headers, caller))
    if then == "abandon":
        await asyncio.sleep(0.1)  # virtual: the caller's patience
        beginning.cancel()
    await asyncio.wait([beginning])
    if beginning.cancelled() or beginning.exception() is not None:
        refused = (TenantFull, ProviderFull, WaitedTooLong, LogAway, ProvidersAway, type(None))
        assert beginning.cancelled() or isinstance(beginning.exception(), refused)
        return
    entry = beginning.result()
    if then == "cancel":
        edge.service.registry.erase(entry.generation.id)
    await entry.generation.ended.wait()


def test_the_waiting_is_the_queue_of_the_latency_breakdown():
    """A call that waited for another's end says for how long, and its parts still add up."""

    async def work():
        clock = clock_of(asyncio.get_running_loop())
        async with RunningEdge(ScriptedUpstream(STUCK, WHOLE), clock, admission=ONE_AT_ONCE) as edge:
            first = await edge.begin()
            second = asyncio.ensure_future(edge.begin())
            await asyncio.sleep(1.5)  # virtual
            assert not second.done()
            edge.service.registry.erase(first.generation.id)
            entry = await second
            await entry.generation.ended.wait()
            latency = edge.records(entry)[-1].message_end.latency
        parts = (latency.gateway_us, latency.prefill_us, latency.decode_us, latency.postprocess_us)
        assert 1_500_000 <= latency.queue_us < 1_600_000
        assert sum(p or 0 for p in parts) + latency.queue_us + latency.unattributed_us == latency.total_us
        assert edge.records(entry)[0].elapsed_us == latency.queue_us

    virtually(work)


@pytest.mark.parametrize(
    ("sections", "refused"),
    [
        ({"admission": {"tenant_generations": 1, "waiting_max": 0}}, TenantFull),
        (
            {
                "admission": {"waiting_tenant_max": 0},
                "providers": {
                    name: Provider(base_url="http://127.0.0.1:1/v1", generations=1) for name in ("one", "two")
                },
            },
            ProviderFull,
        ),
    ],
)
async def test_a_full_queue_refuses_at_once(sections, refused):
    """The tenant's own limit is its 429, the providers' is a 503; nothing of the call is in the log."""
    async with edge_with(STUCK, STUCK, STUCK, **sections) as edge:
        begun = [await edge.begin() for _ in range(1 if refused is TenantFull else 2)]
        with pytest.raises(refused):
            await edge.begin()
        assert edge.kinds(begun[0])[0] is Kind.MESSAGE_START
        assert len({record[2] for _, record in edge.log.all_records()}) == len(begun)
        for entry in begun:
            edge.service.registry.erase(entry.generation.id)
        await asyncio.gather(*(edge.over(entry) for entry in begun))


async def test_no_room_in_time():
    """A call waits as long as its deadline lets it, and an edge that stops lets nobody wait."""
    async with edge_with(STUCK, admission=ONE_AT_ONCE) as edge:
        entry = await edge.begin()
        with pytest.raises(WaitedTooLong):
            await edge.begin({"x-deadline-ms": "20"})
        waiting = asyncio.ensure_future(edge.begin())
        await until(lambda: b"tokentrail_admission_waiting 1.0" in edge.service.metrics.render())
        await edge.service.wind_up()
        with pytest.raises(LogAway):
            await waiting
        assert entry.finished


async def test_a_slot_that_is_given_back_is_room_on_the_edge_too():
    """Whose terminal is on its way to the log holds nobody up: who waited for its slot is not told that the edge is full."""
    async with edge_with(STUCK, admission=ONE_AT_ONCE, limit={"generations": 2}) as edge:
        first = await edge.begin()
        waiting = asyncio.ensure_future(edge.begin())
        await until(lambda: edge.service.admission.queue.waiting == 1)
        beside = await edge.begin(caller=OTHER)
        edge.log.hold()
        edge.service.registry.erase(first.generation.id)
        await until(lambda: len(edge.service.registry) == 3 or waiting.done())
        edge.log.release()
        entries = [first, beside, await waiting]
        for entry in entries[1:]:
            edge.service.registry.erase(entry.generation.id)
        await asyncio.gather(*(edge.over(entry) for entry in entries))


async def test_a_repeated_key_takes_no_slot():
    """The second call of an Idempotency-Key is given the first one's generation although no more may run."""
    async with edge_with(STUCK, admission=ONE_AT_ONCE) as edge:
        first, again = await call(edge)
        assert not again
        assert await call(edge) == (first, True)
        edge.service.registry.erase(first)


async def test_a_full_queue_and_a_wait_in_vain_as_a_client_sees_them():
    """429 of the tenant's own limit and 503 of the providers' say when to come again; waiting in vain is a 504."""
    provider = {"base_url": "http://127.0.0.1:1/v1", "generations": 1}
    for sections, status in (
        ({"admission": {"tenant_generations": 1, "waiting_max": 0}}, 429),
        ({"admission": {"waiting_max": 0}, "providers": {"one": provider, "two": provider}}, 503),
        ({"admission": {"tenant_generations": 1, "wait_s": 0.02}}, 504),
    ):
        async with edge_with(STUCK, STUCK, keys=(KEYED,), **sections) as edge:
            app = build_app(edge.service)
            begun = [await edge.begin(caller=KEYED) for _ in range(2 if status == 503 else 1)]
            answer = await post(app, "/v1/chat/completions", BODY, {"x-api-key": "acme"}).done()
            assert answer.status == status
            assert ("retry-after" in answer.headers) is (status != 504)
            assert answer.headers["x-should-retry"] == ("false" if status == 504 else "true")
            for entry in begun:
                edge.service.registry.erase(entry.generation.id)
