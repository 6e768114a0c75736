"""Generations in virtual time under the edge's own decisions: a heap of instants, no socket, no sleep.

What is decided is decided by the project's code: `policy.chain`, `policy.hedging`, `health` (budgets, breaker), `watch`
(time-outs) and the settings. What a provider does is drawn by the simulator's traits: the same attempt of the same
generation is given the same answer whatever the settings are. Only what becomes of an attempt before its first content
matters here, so no stall behind it is played. Before: `row_week`. After: `edge.policy`, `simulator.traits`.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from compose.embedded.simulator.traits import Traits, draw
from edge.driving.watch import Limits, Watch
from edge.driving.wishes import hedge_rules
from edge.policy import moves
from edge.policy.chain import Chain, step
from edge.policy.hedging import NO_HEDGE, HedgeRules, due
from edge.provider.health import Health, Outcome, ProvidersAway
from schemas.settings import ApiKey, Settings

S: Final = 1_000_000
MODEL: Final = "sim-fast"
ATTEMPTS_MAX: Final = 8  # of one generation's draws: more than the settings allow
CALLER: Final = ApiKey(id="bench", tenant="bench", sha256="0" * 64)


class Answer(NamedTuple):
    """What a provider does with one attempt. ``first_us``: until its first content, or its error; None: for ever silent."""

    first_us: int | None
    interval_us: int
    tokens: int
    error: bool

    @classmethod
    def drawn(cls, traits: Traits, seed: int, index: int) -> "Answer":
        """The index-th of a seed."""
        options = draw(traits, seed, index)
        silent = options.silent or options.hang_after == 0
        first_us = None if silent else int(options.ttft_ms * 1000)
        return cls(first_us, int(options.interval_ms * 1000), options.tokens, options.error_after == 0)


@dataclass(slots=True)
class _Call:
    target: int
    answer: Answer
    watch: Watch
    at_us: int  # all times of a call are its generation's own
    first_us: int | None = None

    def tokens_until(self, now_us: int) -> int:
        """What it has said by then."""
        if self.first_us is None:
            return 0
        said = 1 + (now_us - self.first_us) // max(1, self.answer.interval_us)
        return min(self.answer.tokens, said)


@dataclass(slots=True)
class _Generation:
    nth: int
    accepted_us: int
    hedge: HedgeRules
    chain: Chain = field(default_factory=Chain)
    calls: dict[int, _Call] = field(default_factory=dict)
    refused_us: int = 0
    answered: bool = False


@dataclass(slots=True)
class Tally:
    """What came of it. ``ttft_us``: of every generation; of one that failed, how long it took to fail."""

    ttft_us: list[int] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    prompts: int = 0
    output_tokens: int = 0
    unstopped_tokens: int = 0
    hedges: int = 0
    calls: list[tuple[int, bool]] = field(default_factory=list)  # (instant, the first of its generation)


class VirtualEdge:
    """One edge process and its providers.

    Args:
        settings: what is decided by.
        providers: a route's, in order.
        traits_at: how the providers behave at an instant.
        seed: of the draws and of the jitter.

    """

    def __init__(
        self, settings: Settings, providers: tuple[str, ...], traits_at: Callable[[int], Traits], seed: int
    ) -> None:
        self._settings = settings
        self._health = Health(settings)
        self._limits = Limits.of(settings)
        self._hedge = hedge_rules(CALLER, MODEL, settings)
        self._rules = moves.Rules(
            attempts_max=settings.retry.max_attempts,
            backoff_ms=settings.retry.backoff_ms,
            deadline_us=min(self._limits.request_us, self._limits.generation_us),
            providers=providers,
            in_flight_max=self._hedge.in_flight_max if self._hedge.on else 0,
        )
        self._traits_at = traits_at
        self._seed = seed
        self._random = random.Random(seed)
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._begun = 0
        self.tally = Tally()

    def at(self, now_us: int, what: Callable[..., None], *given: Any) -> None:
        """Something is called with its instant and what is given."""
        heapq.heappush(self._queue, (now_us, next(self._order), what, given))

    def run(self) -> Tally:
        """Play it to the end."""
        while self._queue:
            now_us, _, what, given = heapq.heappop(self._queue)
            what(now_us, *given)
        return self.tally

    def begin(self, now_us: int) -> None:
        """A client's call."""
        nth, self._begun = self._begun, self._begun + 1
        providers = self._rules.providers
        try:
            self._health.check(MODEL, providers, now_us)
        except ProvidersAway:
            self.tally.refused += 1
            return
        hedge = self._hedge
        if hedge.quantile is not None:
            hedge = hedge.learned(self._health.latencies.quantile_us(providers[0], MODEL, hedge.quantile))
        self._happen(now_us, _Generation(nth, now_us, hedge), moves.Began())

    def _happen(self, now_us: int, made: _Generation, event: moves.Event) -> None:
        world = self._health.world(self._rules.providers, now_us, made.accepted_us, self._random.random())
        made.chain, actions = step(made.chain, event, world, self._rules)
        for action in actions:
            match action:
                case moves.Pay(target, hedge):
                    self._health.pay(self._rules.providers[target], hedge=hedge)
                    self.tally.hedges += hedge
                case moves.Start():
                    self._start(now_us, made, action)
                case moves.Drop(number):
                    self._drop(now_us, made, number)
                case moves.End():
                    if not made.answered:
                        self.tally.failed += 1
                        self.tally.ttft_us.append(now_us - made.accepted_us)
                case moves.Commit():
                    made.hedge = NO_HEDGE
        if isinstance(event, moves.Silent):
            made.refused_us = now_us - made.accepted_us
        if made.chain.again is not None and not isinstance(event, moves.Due):
            self.at(made.chain.again_us + made.accepted_us, self._happen, made, moves.Due())
        self._arm(made)

    def _start(self, now_us: int, made: _Generation, start: moves.Start) -> None:
        self._health.called(self._rules.providers[start.target], now_us)
        index = made.nth * ATTEMPTS_MAX + start.number
        answer = Answer.drawn(self._traits_at(now_us), self._seed, index)
        call = _Call(start.target, answer, Watch(self._limits), now_us - made.accepted_us)
        call.watch.dispatched(call.at_us)
        call.watch.head_came()
        made.calls[start.number] = call
        self.tally.prompts += 1
        self.tally.calls.append((now_us, start.number == 0))
        self.at(made.accepted_us + call.watch.deadline()[0], self._expire, made, start.number)
        if answer.first_us is not None:
            self.at(now_us + answer.first_us, self._fail if answer.error else self._speak, made, start.number)

    def _arm(self, made: _Generation) -> None:
        """The next hedge's instant, as the race of an edge looks for it."""
        found = self._hedge_due(made)
        if found is not None:
            self.at(made.accepted_us + found[0], self._look, made)

    def _hedge_due(self, made: _Generation) -> tuple[int, str] | None:
        rules, chain = made.hedge, made.chain
        if not rules.on or chain.over or chain.made >= self._rules.attempts_max:
            return None
        if not 0 < len(made.calls) <= rules.in_flight_max:
            return None
        silences = [call.watch.silence() for call in made.calls.values()]
        return due(rules, [s for s in silences if s is not None], made.refused_us) if all(silences) else None

    def _look(self, now_us: int, made: _Generation) -> None:
        found = self._hedge_due(made)
        if found is not None and now_us - made.accepted_us >= found[0]:
            self._happen(now_us, made, moves.Silent(found[1]))

    def _speak(self, now_us: int, made: _Generation, number: int) -> None:
        """The first content of an attempt, if it still runs."""
        call = made.calls.get(number)
        if call is None:
            return
        call.first_us = now_us - made.accepted_us
        call.watch.content(call.first_us)
        self._learn(call, call.first_us)
        made.answered = True
        self.tally.ttft_us.append(call.first_us)
        self.at(now_us + call.answer.interval_us * call.answer.tokens, self._end, made, number)
        self._happen(now_us, made, moves.Delivered(number))

    def _end(self, now_us: int, made: _Generation, number: int) -> None:
        call = self._over(now_us, made, number)
        self._report(now_us, made, call, Outcome(None, content=True))
        self._happen(now_us, made, moves.Ended(number))

    def _fail(self, now_us: int, made: _Generation, number: int, code: str = "overloaded") -> None:
        if number in made.calls:
            call = self._over(now_us, made, number)
            self._report(now_us, made, call, Outcome(code, content=False))
            self._happen(now_us, made, moves.Failed(number, code))

    def _expire(self, now_us: int, made: _Generation, number: int) -> None:
        """A time-out of an attempt that has said nothing."""
        call = made.calls.get(number)
        if call is None or call.first_us is not None:
            return
        code = call.watch.expired(now_us - made.accepted_us)
        if code is not None:
            self._fail(now_us, made, number, code)

    def _drop(self, now_us: int, made: _Generation, number: int) -> None:
        """A lost race: its socket is closed, and the provider's record learns no failure of it."""
        call = self._over(now_us, made, number)
        self._learn(call, now_us - made.accepted_us)
        if call.answer.first_us is not None and not call.answer.error:
            self.tally.unstopped_tokens += call.answer.tokens - call.tokens_until(now_us - made.accepted_us)
        self._health.let_go(self._rules.providers[call.target], made.accepted_us + call.at_us)

    def _report(self, now_us: int, made: _Generation, call: _Call, outcome: Outcome) -> None:
        self._health.ended(self._rules.providers[call.target], outcome, made.accepted_us + call.at_us, now_us)

    def _over(self, now_us: int, made: _Generation, number: int) -> _Call:
        call = made.calls.pop(number)
        self.tally.output_tokens += call.tokens_until(now_us - made.accepted_us)
        return call

    def _learn(self, call: _Call, until_us: int) -> None:
        if self._hedge.quantile is not None:
            name = self._rules.providers[call.target]
            self._health.latencies.add(name, MODEL, until_us - call.at_us)
