"""A provider is down for ten minutes under a thousand clients: what the edge's own retries add, in virtual time."""

import heapq
import itertools
import random

import pytest

from edge.policy.chain import Chain, step
from edge.policy.moves import Began, Due, End, Ended, Failed, Pay, Rules, Start
from edge.provider.health import Health, Outcome, ProvidersAway
from tests.support.running import edge_settings

S = 1_000_000
CLIENTS = 1_000
EVERY_S = 30
DOWN_S = (300, 900)
END_S = 1_200
ANSWER_US = {True: 50_000, False: 2 * S}
RULES = Rules(attempts_max=5, backoff_ms=250, deadline_us=900 * S, providers=("one",))


class Storm:
    """One edge with its only provider: every client calls twice a minute, and again when it was told to.

    ``calls``: (instant, whether it is the first of its generation) of each call to the provider.
    """

    def __init__(self, clients=CLIENTS, **sections):
        self.clients = clients
        self.health = Health(edge_settings(**sections))
        self.random = random.Random(7)
        self.queue, self.order = [], itertools.count()
        self.calls, self.refused, self.well = [], 0, []

    def at(self, us, what, *given):
        heapq.heappush(self.queue, (us, next(self.order), what, given))

    def run(self):
        """Play it to the end."""
        for _ in range(self.clients):
            self.at(self.random.randrange(EVERY_S * S), self.begin)
        while self.queue:
            now_us, _, what, given = heapq.heappop(self.queue)
            what(now_us, *given)
        return self

    def begin(self, now_us):
        """A client's call."""
        if now_us < END_S * S:
            self.at(now_us + EVERY_S * S, self.begin)
            try:
                self.health.check("m", ["one"], now_us)
            except ProvidersAway:
                self.refused += 1
                return
            self.happen(now_us, {"chain": Chain(), "accepted_us": now_us}, Began())

    def happen(self, now_us, generation, event):
        """Something happens to a generation."""
        world = self.health.world(["one"], now_us, generation["accepted_us"], self.random.random())
        generation["chain"], actions = step(generation["chain"], event, world, RULES)
        for action in actions:
            match action:
                case Pay(_, hedge):
                    self.health.pay("one", hedge=hedge)
                case Start(number):
                    self.health.called("one", now_us)
                    down = DOWN_S[0] * S <= now_us < DOWN_S[1] * S
                    self.calls.append((now_us, number == 0))
                    self.at(now_us + ANSWER_US[down], self.answer, generation, number, down, now_us)
                case End():
                    self.well.append((now_us, isinstance(event, Ended)))
        if generation["chain"].again is not None:
            self.at(generation["chain"].again_us + generation["accepted_us"], self.happen, generation, Due())

    def answer(self, now_us, generation, number, down, called_us):
        """The provider's answer."""
        outcome = Outcome("overloaded" if down else None, content=not down)
        self.health.ended("one", outcome, called_us, now_us)
        self.happen(now_us, generation, Failed(number, "overloaded") if down else Ended(number))


@pytest.mark.parametrize("breaker", [{}, {"failures": 1_000_000}], ids=["with the breaker", "budget alone"])
def test_a_storm_adds_little(breaker):
    """Ten minutes without one success: the retries are less than a tenth of the calls that clients made."""
    storm = Storm(breaker=breaker).run()
    within = [first for at_us, first in storm.calls if DOWN_S[0] * S <= at_us < DOWN_S[1] * S]
    asked = CLIENTS * (DOWN_S[1] - DOWN_S[0]) // EVERY_S
    assert within.count(False) > 0
    assert within.count(False) < 0.1 * asked
    assert len(within) < 1.1 * asked
    if not breaker:
        assert len(within) < 0.05 * asked


def test_without_a_budget_it_would_be_a_storm():
    """The same with a budget that pays for everything: every call becomes as many as are allowed."""
    storm = Storm(50, breaker={"failures": 1_000_000}, retry={"budget_tokens": 1e9}).run()
    within = [first for at_us, first in storm.calls if DOWN_S[0] * S <= at_us < DOWN_S[1] * S]
    assert len(within) > 4 * within.count(True)


def test_it_comes_back_by_itself():
    """Seconds after the provider is up again every call is answered, with no retry."""
    storm = Storm().run()
    after = (DOWN_S[1] + 15) * S
    assert all(well for at_us, well in storm.well if at_us >= after)
    assert all(first for at_us, first in storm.calls if at_us >= after)
    served = sum(at_us >= after for at_us, _ in storm.well)
    assert served > 0.9 * CLIENTS * (END_S - DOWN_S[1] - 15) / EVERY_S
