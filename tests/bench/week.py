"""A simulated week: what hedging brings and costs, by the product's own policy on a clock that jumps.

``python -m tests.bench.week`` prints the table of ``docs/benchmarks.md``. Every generation goes through the chain, the
hedge rule, the budgets and the breakers of ``edge``; only the providers are drawn: log-normal times to the first content,
one in twenty streams silent until its time-out. Costs are pessimistic: whoever was called is paid for its prompt, who was
committed for its output too.
"""

import heapq
import itertools
import random
import sys
from typing import NamedTuple

from edge.health import Health, Outcome
from edge.policy.chain import Chain, step
from edge.policy.hedging import HedgeRules, Silence, due
from edge.policy.moves import Began, Commit, Delivered, Drop, Due, Ended, Failed, Pay, Rules, Silent, Start
from schemas.settings import Settings

S = 1_000_000
WEEK_S = 7 * 86_400
PROVIDERS = ("one", "two")
MEDIAN_S, SIGMA = 0.6, 0.5
SILENT = 0.05
TTFT_TIMEOUT_S = 30
PROMPT_COST, OUTPUT_COST = 500 * 1, 300 * 4
"""Tokens times a price of one for the prompt and four for the output, as providers have it."""


class Result(NamedTuple):
    """Of one week."""

    p50_s: float
    p99_s: float
    cost: int
    hedges: int
    unanswered: int


class Week:
    """Some generations, spread evenly over a week.

    Args:
        generations: how many.
        seed: of everything that is drawn.
        hedge: the rule; NO_HEDGE's times are None.

    """

    def __init__(self, generations: int, seed: int, hedge: HedgeRules) -> None:
        self.random = random.Random(seed)
        self.health = Health(Settings())
        self.hedge = hedge
        self.queue: list = []
        self.order = itertools.count()
        self.ttft_us: list[int] = []
        self.cost = self.hedges = 0
        self.generations = generations
        self.rules = Rules(3, 250, 900 * S, PROVIDERS, hedge.in_flight_max if hedge.on else 0)

    def run(self) -> Result:
        """Play it."""
        for i in range(self.generations):
            self.at(WEEK_S * S * i // self.generations, self.begin)
        while self.queue:
            now_us, _, what, given = heapq.heappop(self.queue)
            what(now_us, *given)
        found = sorted(self.ttft_us)
        last = len(found) - 1
        return Result(
            found[last // 2] / S,
            found[last * 99 // 100] / S,
            self.cost,
            self.hedges,
            self.generations - len(found),
        )

    def at(self, us, what, *given):
        """Do something at an instant."""
        heapq.heappush(self.queue, (us, next(self.order), what, given))

    def begin(self, now_us):
        """A call comes."""
        self.happen(now_us, {"chain": Chain(), "began_us": now_us, "sent": {}}, Began())

    def happen(self, now_us, call, event):
        """Something happens to a generation."""
        world = self.health.world(PROVIDERS, now_us, call["began_us"], self.random.random())
        call["chain"], actions = step(call["chain"], event, world, self.rules)
        for action in actions:
            match action:
                case Pay(target, hedge):
                    self.health.pay(PROVIDERS[target], hedge=hedge)
                case Start():
                    self.start(now_us, call, action)
                case Commit():
                    self.ttft_us.append(now_us - call["began_us"])
                    self.cost += OUTPUT_COST
                case Drop(number):
                    self.health.let_go(PROVIDERS[call["sent"].pop(number)[1]])
        chain = call["chain"]
        if chain.again is not None:
            self.at(chain.again_us + call["began_us"], self.happen, call, Due())

    def start(self, now_us, call, start):
        """A provider is called."""
        self.health.called(PROVIDERS[start.target], now_us)
        self.cost += PROMPT_COST
        self.hedges += start.reason.startswith("hedge")
        call["sent"][start.number] = (now_us, start.target)
        silent = self.random.random() < SILENT
        wait_s = TTFT_TIMEOUT_S if silent else self.random.lognormvariate(0, SIGMA) * MEDIAN_S
        self.at(now_us + int(wait_s * S), self.answer, call, start.number, silent or wait_s >= TTFT_TIMEOUT_S)
        self.arm(now_us, call)

    def arm(self, now_us, call):
        """Look again when a hedge may be due."""
        found = due(self.hedge, [Silence(at_us, content=False) for at_us, _ in call["sent"].values()], 0)
        if found is not None and found[0] > now_us:
            self.at(found[0], self.silence, call)

    def silence(self, now_us, call):
        """The hedge's time is over, unless something came meanwhile."""
        found = due(self.hedge, [Silence(at_us, content=False) for at_us, _ in call["sent"].values()], 0)
        if call["chain"].committed is None and found is not None and found[0] <= now_us:
            self.happen(now_us, call, Silent(found[1]))

    def answer(self, now_us, call, number, failed):
        """A provider's first content and, for brevity, its end; or its time-out."""
        if number not in call["sent"]:
            return
        _, target = call["sent"].pop(number)
        self.health.ended(PROVIDERS[target], Outcome("ttft_timeout" if failed else None, not failed), now_us)
        if failed:
            self.happen(now_us, call, Failed(number, "ttft_timeout"))
        else:
            self.happen(now_us, call, Delivered(number))
            self.happen(now_us, call, Ended(number))


def compare(generations: int, seed: int, after_s: float) -> tuple[Result, Result]:
    """The same week without and with hedging."""
    hedge = HedgeRules(after_us=int(after_s * S))
    return Week(generations, seed, HedgeRules()).run(), Week(generations, seed, hedge).run()


def main() -> None:
    """Write the table."""
    rows = [
        "| seed | hedge after | TTFT p50 | TTFT p99 | hedges | provider cost | unanswered |",
        "|---" * 7 + "|",
    ]
    for seed in (1, 2, 3):
        without, with_it = compare(100_000, seed, 2.0)
        for name, result in (("never", without), ("2 s", with_it)):
            more = 100 * (result.cost / without.cost - 1)
            share = 100 * result.hedges / 100_000
            rows.append(
                f"| {seed} | {name} | {result.p50_s:.2f} s | {result.p99_s:.2f} s | {share:.1f} % | {more:+.1f} % "
                f"| {result.unanswered} |"
            )
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
