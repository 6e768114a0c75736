"""What an edge knows of its providers: what feeds it, what it allows, and when that comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.policy.breaker import Breaker
from edge.policy.budgets import Bucket
from edge.policy.routes import in_order
from edge.provider.health import PUSH_BACK_US_MAX, Health, Outcome, ProvidersAway
from schemas.events import Kind
from schemas.settings import Route
from tests.support.running import edge_settings, edge_with, ends_of, run, starts_of
from tests.support.upstream import CUT, DONE, HANG, OK, Script, chunk, finish
from tests.support.waiting import until

S = 1_000_000
FAILED, WELL = Outcome("overloaded", content=False), Outcome(None, content=True)
BUSY = Script(b"{}", status=503, content_type="application/json")
FEW = {"breaker": {"failures": 3, "open_s": 5}, "retry": {"max_attempts": 1}}


def health(**sections):
    return Health(edge_settings(**(FEW | sections)))


def is_open(record, now_us=0):
    return not record.of("one").breaker.lets_through(now_us)


@given(st.lists(st.sampled_from(["pay", "success", "failure"])))
def test_a_bucket_never_pays_what_it_has_not(moves):
    """Whatever happens, tokens stay between nothing and its capacity, and only a whole one is paid."""
    bucket, paid, earned = Bucket(3, 0.1, failure_cost=0.5), 0, 3.0
    for move in moves:
        if move == "pay":
            paid += bucket.can_pay()
            if bucket.can_pay():
                bucket.pay()
        else:
            getattr(bucket, move)()
            earned += 0.1 * (move == "success")
        assert 0 <= bucket.tokens <= 3
        assert paid <= earned + 1e-9


def test_ten_tenths_are_one():
    """Decimal shares add up: the success that completes a token pays for it, and the one before it does not."""
    bucket = Bucket(1, 0.1)
    bucket.pay()
    for _ in range(9):
        bucket.success()
    assert not bucket.can_pay()
    bucket.success()
    assert bucket.can_pay()


def test_a_hedge_budget_shrinks_under_failure():
    """Hedges end while half of the tokens are left: long before retries do, and successes bring them back."""
    known = health(breaker={"failures": 1_000})
    while known.world(["one"], 0, 0, 0.0).hedge_paid:
        known.ended("one", FAILED, 0, 0)
    assert known.hedges.tokens == pytest.approx(9)
    assert known.world(["one"], 0, 0, 0.0).paid
    for _ in range(11):
        known.ended("two", WELL, 0, 0)
    assert known.world(["one"], 0, 0, 0.0).hedge_paid, "all successes pay, whoever is asked by the hedge"


def test_a_breaker_opens_and_is_probed():
    """After its failures no call; after its time one call; its failure opens it again, its success closes it."""
    breaker = Breaker(least=3, share=0.5, window_us=30 * S, open_us=5 * S)
    for at_s in range(3):
        assert breaker.lets_through(at_s * S)
        breaker.ended(at_s * S, at_s * S, failed=True)
    assert not breaker.lets_through(6_999_999)
    assert breaker.opens_in_us(3 * S) == 4 * S
    assert breaker.lets_through(7 * S)
    breaker.called(7 * S)
    assert not breaker.lets_through(7 * S)
    breaker.ended(8 * S, 7 * S, failed=True)
    assert not breaker.lets_through(12 * S)
    assert breaker.lets_through(13 * S)
    breaker.called(13 * S)
    breaker.let_go(13 * S)
    assert breaker.lets_through(13 * S)
    breaker.called(13 * S)
    assert not breaker.lets_through(17 * S)
    assert breaker.lets_through(18 * S), "a probe that is silent keeps nobody out for ever"
    breaker.ended(19 * S, 13 * S, failed=False)
    assert breaker.lets_through(19 * S)


@pytest.mark.parametrize("failed", [True, False])
def test_a_breaker_that_opened_hears_its_probes_only(failed):
    """A stream that began before says nothing of new calls: its end neither closes the breaker nor frees the probe's place."""
    breaker = Breaker(least=3, share=0.5, window_us=30 * S, open_us=5 * S)
    for _ in range(3):
        breaker.ended(2 * S, S, failed=True)
    breaker.ended(3 * S, S, failed=failed)
    assert not breaker.lets_through(3 * S)
    assert breaker.lets_through(7 * S), "nor is it put off"
    breaker.called(7 * S)
    breaker.let_go(S)
    breaker.ended(8 * S, S, failed=failed)
    assert not breaker.lets_through(8 * S), "one probe at a time"
    breaker.ended(9 * S, 7 * S, failed=False)
    assert breaker.lets_through(9 * S)


@pytest.mark.parametrize(
    ("outcomes", "opens"),
    [
        ([(0, True), (1, True), (2, True)], True),
        ([(0, True), (1, True), (31, True)], False),
        ([(0, False), (0, False), (0, False), (0, False), (1, True), (1, True), (1, True)], False),
        ([(0, False), (0, False), (0, False), (1, True), (1, True), (1, True)], True),
    ],
    ids=["enough", "too old", "too few of all", "half of all"],
)
def test_when_a_breaker_opens(outcomes, opens):
    """So many failures within the window, and so large a share of all in it."""
    breaker = Breaker(least=3, share=0.5, window_us=30 * S, open_us=5 * S)
    for at_s, failed in outcomes:
        breaker.ended(at_s * S, at_s * S, failed=failed)
    assert breaker.lets_through(outcomes[-1][0] * S) != opens


@pytest.mark.parametrize("code", ["cancelled", "bad_request", "log_unavailable", "timeout", "edge_lost"])
def test_what_we_ended_says_nothing(code):
    """Neither a failure nor a success of the provider: no breaker, no budget."""
    known = health()
    tokens = known.hedges.tokens
    for _ in range(50):
        known.ended("one", Outcome(code, content=False), 0, 0)
    assert not is_open(known)
    assert known.hedges.tokens == tokens


def test_an_answer_without_content_is_a_failure():
    """A provider that ends properly and says nothing is as ill as one that breaks off."""
    known = health()
    for _ in range(3):
        known.ended("one", Outcome(None, content=False), 0, 0)
    assert is_open(known)


def test_a_rate_limit_is_no_illness():
    """Who says when to come again is well: it is left alone until then, and no longer than a minute by all."""
    known = health()
    for _ in range(50):
        known.ended("one", Outcome("rate_limited", content=False, asked_us=2 * S), 0, 0)
    assert not is_open(known)
    assert known.world(["one"], 0, 0, 0.0).pushed_us == (2 * S,)
    known.ended("one", Outcome("rate_limited", content=False, asked_us=86_400 * S), 0, 0)
    assert known.world(["one"], 0, 0, 0.0).pushed_us == (PUSH_BACK_US_MAX,)


def test_nobody_is_begun_for_whom_nobody_can_serve():
    """Every provider's breaker is open: refused at once, with the time after which one is tried again."""
    known = health()
    for _ in range(3):
        known.ended("one", FAILED, 0, 0)
    known.check("gpt-x", ["one", "two"], S)
    with pytest.raises(ProvidersAway) as away:
        known.check("gpt-x", ["one"], S)
    assert away.value.retry_after_s == 4
    known.check("gpt-x", ["one"], 5 * S)


@pytest.mark.parametrize(
    "script",
    [BUSY, Script(b'data: {"error": {"message": "no", "code": 500}}\n\n', CUT), Script(finish(), DONE), Script(CUT)],
    ids=["by status", "in band", "no content", "cut"],
)  # fmt: skip
async def test_an_edge_leaves_an_ill_provider_alone(script):
    """Errors by status and in band, cuts and streams without content open the breaker: the next call goes elsewhere."""
    async with edge_with(*[script] * 3, OK, **FEW) as edge:
        for _ in range(3):
            await edge.over(await edge.begin())
        records = await edge.over(await edge.begin())
    assert starts_of(records)[0].provider == "two"
    assert {call.provider.base_url for call in edge.upstream.calls} == {"http://127.0.0.1:1/v1"}


async def test_attempts_that_we_cancelled_feed_no_breaker():
    """However many are cancelled, the provider is called as before."""
    async with edge_with(*[Script(chunk("a"), HANG)] * 5, OK, **FEW) as edge:
        for _ in range(5):
            entry = await edge.begin()
            await until(lambda entry=entry: Kind.DELTA in edge.kinds(entry))
            entry.driver.interrupt("cancelled")
            await edge.over(entry)
        records = await edge.over(await edge.begin())
    assert starts_of(records)[0].provider == "one"


async def test_retries_end_with_the_budget():
    """A provider whose record pays for no more is not called again: the last failure is the answer."""
    sections = {"retry": {"budget_tokens": 1, "max_attempts": 5}, "default_route": (Route(provider="one"),)}
    async with edge_with(BUSY, **sections) as edge:
        first = await edge.over(await edge.begin())
        second = await edge.over(await edge.begin())
    assert [len(ends_of(first)), len(ends_of(second))] == [2, 1]
    assert second[-1].error.code == "overloaded"
    assert second[-1].error.retryable


async def test_what_an_operator_sees():
    """Attempts by provider, reason and outcome, and whether a provider is left alone."""
    async with edge_with(*[BUSY] * 3, OK, **FEW) as edge:
        for _ in range(4):
            await edge.over(await edge.begin())
        seen = edge.service.metrics.registry.get_sample_value
        assert (
            seen("tokentrail_attempts_total", {"provider": "one", "reason": "first", "outcome": "failed"})
            == 3
        )
        assert seen("tokentrail_attempts_total", {"provider": "two", "reason": "first", "outcome": "ok"}) == 1
        assert seen("tokentrail_breaker_open", {"provider": "one"}) == 1
        assert seen("tokentrail_breaker_open", {"provider": "two"}) == 0


def test_routes_in_order():
    """Without a rank as listed; those of one rank share by weight; a weight of nothing is never first of its rank."""
    one, two, three = (Route(provider=name) for name in ("one", "two", "three"))
    assert in_order((one, two, three), lambda: 0.9) == [one, two, three]
    ranked = (
        Route(provider="late", rank=1),
        Route(provider="a", rank=0, weight=3),
        Route(provider="b", rank=0),
    )
    chances = [i / 100 for i in range(100)]
    firsts = [in_order(ranked, lambda c=chance: c)[0].provider for chance in chances]
    assert (firsts.count("a"), firsts.count("b")) == (75, 25)
    assert all(in_order(ranked, lambda c=chance: c)[-1].provider == "late" for chance in chances)
    spare = (Route(provider="spare", rank=0, weight=0), Route(provider="a", rank=0))
    assert [route.provider for route in in_order(spare, lambda: 0.0)] == ["a", "spare"]


async def test_a_routes_own_model_is_asked_for():
    """The provider is sent the name that the model has there."""
    _, edge = await run(OK, default_route=(Route(provider="one", model="big"),))
    assert edge.upstream.calls[0].body["model"] == "big"
