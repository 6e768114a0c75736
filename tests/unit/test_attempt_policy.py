"""Which failure may be followed by what, and when: the chain's single decisions."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.policy.chain import Chain, step
from edge.policy.moves import (
    Began,
    Commit,
    Delivered,
    Due,
    End,
    Ended,
    Failed,
    Forbidden,
    Pay,
    Rules,
    Silent,
    Start,
    World,
)
from edge.policy.retries import (
    BACKOFF_MS_MAX,
    FORBIDDEN,
    RETRY_AFTER_S_MAX,
    SPREAD,
    asked_wait_ms,
    asked_wait_us,
    backoff_us,
    retry_after_s,
    says_not_again,
)

RULES = Rules(attempts_max=3, backoff_ms=100, deadline_us=10_000_000, providers=("one",))
TWO = RULES._replace(providers=("one", "two"))
UNIX_S = 1_795_985_600.0  # Sun, 29 Nov 2026 20:53:20 GMT


def world(now_us=0, targets=1, **fields):
    every = frozenset(range(targets))
    plain = {"jitter": 1.0, "open": every, "paid": every, "hedge_paid": every, "pushed_us": (0,) * targets}
    return World(now_us=now_us, **(plain | fields))


def after(*events, rules=RULES, world=None):
    """Give the chain and the actions of the last of some events."""
    known = world or globals()["world"](targets=len(rules.providers))
    chain, actions = Chain(), ()
    for event in (Began(), *events):
        chain, actions = step(chain, event, known, rules)
    return chain, actions


def test_a_failure_is_tried_again_after_a_backoff():
    """The same provider is called again after its wait, and the wait is paid for when it is decided."""
    chain, actions = after(Failed(0, "overloaded"))
    assert actions == (Pay(0),)
    assert chain.again == Start(1, 0, "retry", "overloaded", 100_000, 0)
    assert step(chain, Due(), world(99_999), RULES) == (chain, ())
    assert step(chain, Due(), world(100_000), RULES)[1] == (chain.again,)


def test_another_provider_is_tried_at_once():
    """There is nothing to wait for where nobody has failed yet, and nothing to pay: it is loaded in another's place."""
    _, actions = after(Failed(0, "overloaded"), rules=TWO, world=world(targets=2, paid=frozenset()))
    assert actions == (Start(1, 1, "fallback", "overloaded", 0, 0),)


def test_another_model_of_a_provider_that_failed_waits():
    """It is the provider that is given time."""
    chain, actions = after(Failed(0, "overloaded"), rules=RULES._replace(providers=("one", "one")))
    assert actions == (Pay(1),)
    assert chain.again.target == 1


def test_a_wait_that_was_asked_for_is_waited_elsewhere():
    """Retry-After binds the provider that said it; another one that has failed already is back sooner."""
    chain, _ = after(Failed(0, "rate_limited", 5_000_000), rules=TWO)
    told = world(targets=2, pushed_us=(5_000_000, 0))
    chain, _ = step(chain, Failed(1, "overloaded"), told, TWO)
    assert (chain.again.target, chain.again_us) == (1, 200_000)


def test_a_provider_that_says_not_again_is_not_called_again():
    """By x-should-retry: false, which its SDK would obey; another route still is, and nothing of it once that failed too."""
    said = Failed(0, "upstream_error", None, not_again=True)
    assert after(said)[1] == (End(0),)
    chain, actions = after(said, rules=TWO)
    assert actions == (Start(1, 1, "fallback", "upstream_error", 0, 0),)
    hedged = step(chain, Silent("hedge_ttft"), world(targets=2), TWO._replace(in_flight_max=1))[1]
    assert [action.target for action in hedged if isinstance(action, Start)] == [1], "nor by a hedge"
    chain, _ = step(chain, Failed(1, "overloaded"), world(targets=2), TWO)
    assert chain.again.target == 1
    chain, actions = step(chain, Due(), world(chain.again_us, targets=2, open=frozenset({0})), TWO)
    assert actions == (End(1),)


@pytest.mark.parametrize(
    ("said", "no"), [("false", True), (" False ", True), ("true", False), ("0", False), (None, False)]
)
def test_what_says_not_again(said, no):
    """That one word and no other."""
    assert says_not_again({} if said is None else {"x-should-retry": said}) is no


def test_a_provider_that_asked_to_be_left_alone_is_left_alone():
    """Also by calls that it never told so: they begin elsewhere, or wait, each a little longer by chance of its own."""
    pushed = world(targets=2, pushed_us=(3_000_000, 0))
    assert after(rules=TWO, world=pushed)[1] == (Start(0, 1),)
    chain, _ = after(Failed(0, "overloaded"), rules=RULES, world=world(pushed_us=(3_000_000,)))
    assert chain.again_us == 3_300_000


@pytest.mark.parametrize(
    ("events", "fields"),
    [
        ((Delivered(0), Failed(0, "stall_timeout")), {}),
        ((Forbidden(), Failed(0, "overloaded")), {}),
        ((Failed(0, "overloaded"),), {"now_us": 9_999_999}),
        ((Failed(0, "overloaded"),), {"paid": frozenset()}),
        ((Failed(0, "rate_limited", 10_000_000),), {}),
        *[((Failed(0, code),), {}) for code in sorted(FORBIDDEN)],
    ],
)
def test_the_end_of_a_chain(events, fields):
    """After the commit, a side effect, the deadline, an empty budget; a wait beyond the deadline; what no try changes."""
    chain, actions = after(*events, world=world(**fields))
    assert actions == (End(0),)
    assert chain.over


def test_behind_a_side_effect_nothing_begins():
    """Neither beside what is silent, nor behind a wait that was decided before."""
    hedged = RULES._replace(in_flight_max=1)
    assert after(Forbidden(), Silent("hedge_ttft"), rules=hedged)[1] == ()
    chain, _ = after(Failed(0, "overloaded"), Forbidden())
    chain, actions = step(chain, Due(), world(200_000), RULES)
    assert (actions, chain.over) == ((End(0),), True)


def test_the_last_attempt_is_the_last():
    """A chain has an end."""
    rules = RULES._replace(attempts_max=1)
    assert after(Failed(0, "overloaded"), rules=rules)[1] == (End(0),)


def test_a_long_prompt_is_not_repeated():
    """A first-content time-out of a long prompt is careful: a shorter one, once, where that is allowed; else the end."""
    long = RULES._replace(long_prompt=True)
    assert after(Failed(0, "ttft_timeout"), rules=long)[1] == (End(0),)
    assert after(Failed(0, "queue_timeout"), rules=long)[0].again.reason == "retry"
    shrink = long._replace(shrink=True)
    chain, _ = after(Failed(0, "ttft_timeout"), rules=shrink)
    assert chain.again.reason == "shrink"
    chain, _ = step(chain, Due(), world(chain.again_us), shrink)
    assert step(chain, Failed(1, "ttft_timeout"), world(), shrink)[1] == (End(1),)


def test_an_answer_that_does_not_parse_is_asked_for_once_more():
    """Only where that is allowed; the first answer stands where the second fails."""
    assert after(Ended(0, "malformed"))[1][-1] == End(0)
    rules = RULES._replace(repair=True)
    chain, actions = after(Ended(0, "malformed"), rules=rules)
    assert actions[-1] == Start(1, 0, "repair", "unparsable", 0, 0)
    chain, _ = step(chain, Failed(1, "bad_request"), world(), rules)
    assert chain.over
    _, actions = step(after(Ended(0, "malformed"), rules=rules)[0], Failed(1, "bad_request"), world(), rules)
    assert actions == (Commit(0), End(0))


def test_a_hedge_goes_to_a_provider_of_its_own():
    """Where the route has one and it is free; the same again only where the route has no other."""
    rules = TWO._replace(in_flight_max=1)
    _, actions = after(Silent("hedge_ttft"), rules=rules)
    assert actions == (Pay(1, hedge=True), Start(1, 1, "hedge_ttft", None, None, 0))
    busy = world(targets=2, hedge_paid=frozenset({0}))
    assert after(Silent("hedge_ttft"), rules=rules, world=busy)[1] == ()
    assert after(Silent("hedge_ttft"), rules=RULES._replace(in_flight_max=1))[1][-1].target == 0


def test_who_fails_while_another_runs_is_not_replaced():
    """The other one may still win."""
    chain, actions = after(Silent("hedge_ttft"), Failed(0, "overloaded"), rules=TWO._replace(in_flight_max=1))
    assert actions == ()
    assert not chain.over


def test_a_breaker_that_opened_meanwhile():
    """A wait that ends before an open breaker goes elsewhere, or is the end."""
    chain, _ = after(Failed(0, "overloaded"), rules=RULES)
    assert step(chain, Due(), world(200_000, open=frozenset()), RULES)[1] == (End(0),)
    elsewhere = step(chain, Due(), world(200_000, targets=2, open=frozenset({1})), TWO)[1]
    assert [(start.target, start.reason) for start in elsewhere] == [(1, "fallback")]
    broke = world(200_000, targets=2, open=frozenset({1}), paid=frozenset())
    assert step(chain, Due(), broke, RULES._replace(providers=("one", "one")))[1] == (End(0),)


@pytest.mark.parametrize(
    ("attempts_made", "low_us", "high_us"), [(1, 50_000, 100_000), (2, 100_000, 200_000)]
)
def test_backoff_doubles_with_jitter(attempts_made, low_us, high_us):
    """Between half and all of the backoff, which doubles."""
    assert backoff_us(100, attempts_made, 0.0) == low_us
    assert backoff_us(100, attempts_made, 1.0) == high_us


def test_backoff_is_bounded():
    """Doubling ends."""
    assert backoff_us(1_000, 90, 1.0) == BACKOFF_MS_MAX * 1000


def test_those_who_were_told_the_same_do_not_come_together():
    """Never earlier than asked, and spread."""
    assert asked_wait_us(2_000_000, 0.0) == 2_000_000
    assert asked_wait_us(2_000_000, 1.0) == 2_000_000 * (1 + SPREAD)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        (" 1.5 ", 1.5),
        ("soon", None),
        ("-5", None),
        (".", None),
        ("٣", None),
        ("Sun, 29 Nov 2026 20:53:23 GMT", 3.0),
        ("Sun, 29 Nov 2026 20:53:00 GMT", 0.0),
        ("Sun, 29 Nov 2026 20:53:23 -0000", 3.0),
        ("Sun, 29 Nov 2026 20:53:23", 3.0),
        ("0", 0.0),
        ("1000000000", RETRY_AFTER_S_MAX),
        ("9" * 400, RETRY_AFTER_S_MAX),
    ],
)
def test_retry_after(value, seconds, monkeypatch):
    """A number or an HTTP date, in UTC wherever we are; nonsense is none; what has passed is now; a huge number is bounded."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        found = retry_after_s(value, UNIX_S)
    time.tzset()
    assert found == seconds


@pytest.mark.parametrize(
    ("headers", "asked_ms"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2_000),
        ({"retry-after": "2", "retry-after-ms": "1250"}, 1_250),
        ({"retry-after": "2", "retry-after-ms": "-1"}, 2_000),
        ({"retry-after-ms": "0"}, 0),
        ({"retry-after-ms": "9" * 40}, int(RETRY_AFTER_S_MAX * 1000)),
    ],
)
def test_milliseconds_are_exact(headers, asked_ms):
    """Where a provider says them beside the whole seconds, they are what it asks for."""
    assert asked_wait_ms(headers, UNIX_S) == asked_ms


@given(st.text(max_size=40))
def test_no_header_is_a_bug(value):
    """Whatever a provider sends as Retry-After, there is a number or none."""
    found = retry_after_s(value, UNIX_S)
    assert found is None or 0 <= found <= RETRY_AFTER_S_MAX
