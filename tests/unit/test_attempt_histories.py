"""The chain over every history: whatever happens in whatever order, these hold."""

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.policy.chain import Chain, step
from edge.policy.moves import (
    Began,
    Commit,
    Delivered,
    Drop,
    Due,
    End,
    Ended,
    Failed,
    Forbidden,
    Pay,
    Rules,
    Silent,
    Start,
    Stopped,
    World,
)

CODES = ("overloaded", "rate_limited", "ttft_timeout", "stall_timeout", "bad_request", "incomplete_upstream")
NUMBERS = st.sampled_from([0, 0, 0, 1, 1, 2, -1])
"""Which of the attempts in flight; below 0 the latest, in flight or not."""
FAILURES = st.builds(
    Failed,
    NUMBERS,
    st.sampled_from(CODES),
    st.sampled_from([None, None, 0, 200_000]),
    st.sampled_from([False, False, False, True]),
)
SILENCES = st.builds(Silent, st.sampled_from(["hedge_ttft", "hedge_stall"]))
RARE = st.sampled_from([Forbidden()] * 6 + [Stopped(), Began()])
EVENTS = st.one_of(
    st.builds(Delivered, NUMBERS),
    st.builds(Ended, NUMBERS, st.sampled_from([None, "malformed", "malformed"])),
    FAILURES,
    FAILURES,
    FAILURES,
    st.just(Due()),
    st.just(Due()),
    SILENCES,
    RARE,
)
HISTORIES = {"min_size": 3, "max_size": 30}
ALL = frozenset({0, 1, 2})
TARGETS = st.one_of(st.just(ALL), st.just(ALL), st.frozensets(st.integers(0, 2)))
RULES = st.builds(
    Rules,
    attempts_max=st.integers(1, 5),
    backoff_ms=st.sampled_from([0, 100]),
    deadline_us=st.just(3_000_000),
    providers=st.lists(st.sampled_from("abc"), min_size=3, max_size=3).map(tuple),
    in_flight_max=st.integers(0, 2),
    long_prompt=st.booleans(),
    shrink=st.booleans(),
    repair=st.booleans(),
)


def world_of(now_us, jitter, is_open, paid, hedge_paid):
    return World(now_us, jitter, is_open, paid & is_open, hedge_paid & is_open, (0, 1_000_000, 0))


WORLDS = st.builds(
    world_of, st.sampled_from([0, 1_000, 300_000]), st.floats(0, 0.99), TARGETS, TARGETS, TARGETS
)


def placed(event, chain):
    """Give the event of an attempt that there is."""
    if not isinstance(event, Delivered | Ended | Failed):
        return event
    numbers = [number for number, _ in chain.live]
    if event.number < 0 or not numbers:
        return event._replace(number=max(0, chain.made - 1))
    return event._replace(number=numbers[event.number % len(numbers)])


class History:
    """What a chain said so far, held to what must be true of it."""

    def __init__(self, rules):
        self.rules = rules
        self.started, self.running, self.dropped = [], set(), set()
        self.committed, self.ended, self.forbidden, self.paid = None, None, False, {True: 0, False: 0}
        self.stopped = False
        self.called, self.owed, self.targets, self.refused = set(), 0, {}, set()

    def take(self, event, actions, world):
        running = set(self.running)
        if isinstance(event, Ended | Failed):
            self.running.discard(event.number)
        self.forbidden |= isinstance(event, Forbidden)
        if isinstance(event, Failed) and event.not_again and event.number in running:
            self.refused.add(self.targets[event.number])
        for action in actions:
            assert self.ended is None, "nothing follows the end"
            match action:
                case Start(number):
                    assert self.committed is None, "never an attempt after the commit"
                    assert not self.forbidden or not self.started, "never after a side effect"
                    assert not self.stopped
                    assert number == len(self.started) < self.rules.attempts_max
                    provider = self.targets[number] = self.rules.providers[action.target]
                    assert provider not in self.refused, "never again where that was said"
                    self.owed += provider in self.called and not action.reason.startswith("hedge")
                    self.called.add(provider)
                    self.started.append(action)
                    self.running.add(number)
                    assert len(self.running) <= 1 + self.rules.in_flight_max
                    assert world.now_us < self.rules.deadline_us
                case Commit(number):
                    assert self.committed is None, "never two committed attempts"
                    assert number not in self.dropped, "a loser is never revived"
                    self.committed = number
                case Drop(number):
                    assert number in self.running
                    self.running.discard(number)
                    self.dropped.add(number)
                case End(number):
                    assert not self.running, "nothing runs behind the end"
                    assert number < len(self.started)
                    self.ended = number
                case Pay(target, hedge):
                    assert target in (world.hedge_paid if hedge else world.paid), "never above a budget"
                    self.paid[hedge] += 1
        self.stopped |= isinstance(event, Stopped)


@settings(max_examples=300)
@given(RULES, st.lists(st.tuples(EVENTS, WORLDS), **HISTORIES))
def test_every_history(rules, events):
    """One commit, one end, no attempt behind either, none that is not paid for, never more than allowed at once."""
    chain, history, now_us = Chain(), History(rules), 0
    first = world_of(0, 0.5, ALL, ALL, ALL)
    for event, drawn in [(Began(), first), *events]:
        now_us += drawn.now_us
        world = drawn._replace(now_us=now_us)
        if now_us >= rules.deadline_us and not isinstance(event, Stopped):
            event = Stopped()  # noqa: PLW2901 - the time-out of the whole
        placed_event = placed(event, chain)
        chain, actions = step(chain, placed_event, world, rules)
        history.take(placed_event, actions, world)
        assert {number for number, _ in chain.live} == history.running
        extra = [start for start in history.started if start.reason != "first"]
        hedges = sum(start.reason.startswith("hedge") for start in extra)
        assert history.paid[True] == hedges
        if not any(start.reason.startswith("hedge") for start in history.started):
            assert history.owed <= history.paid[False], "a provider that is called again is paid for"


@settings(max_examples=300)
@given(RULES, st.lists(st.tuples(EVENTS, WORLDS), **HISTORIES))
def test_the_end_is_what_was_delivered(rules, events):
    """Where an attempt was committed, the generation ends as that one did, and as no other."""
    chain, history = Chain(), History(rules)
    everything = world_of(0, 0.5, ALL, ALL, ALL)
    for event, _ in [(Began(), everything), *events]:
        placed_event = placed(event, chain)
        chain, actions = step(chain, placed_event, everything, rules)
        history.take(placed_event, actions, everything)
    if history.committed is not None and history.ended is not None:
        assert history.ended == history.committed
