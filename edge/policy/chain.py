"""What follows what within one generation: (chain, event, world) → (chain, actions). Pure.

What holds of every history, and is tested over all of them: at most one attempt is committed; after the commit, after
``Forbidden`` (a side effect or an approved action stands behind the answer) and after the end none begins; never more
than ``attempts_max`` begin, hedges included, nor more than one and ``in_flight_max`` run at once; there is one ``End``. The words are in ``moves``. Before: ``retries``,
``moves``. After: ``race`` acts.
"""

from typing import NamedTuple

from edge.policy.moves import (
    Action,
    Began,
    Commit,
    Delivered,
    Drop,
    Due,
    End,
    Ended,
    Event,
    Failed,
    Forbidden,
    Pay,
    Rules,
    Silent,
    Start,
    Stopped,
    World,
)
from edge.policy.retries import RetryClass, asked_wait_us, backoff_us, class_of


class Chain(NamedTuple):
    """The attempts of a generation. ``live``: (number, target); ``again``: what begins at ``again_us``."""

    made: int = 0
    live: tuple[tuple[int, int], ...] = ()
    failed: tuple[int, ...] = ()  # targets, one for each failure
    refused: frozenset[str] = frozenset()  # providers that will not have this call again
    committed: int | None = None
    spare: int | None = None  # a proper answer that did not parse: better than none
    again: Start | None = None
    again_us: int = 0
    shrunk: bool = False
    repaired: bool = False
    forbidden: bool = False
    over: bool = False

    def target_of(self, number: int) -> int | None:
        """The target of an attempt in flight."""
        return next((target for live, target in self.live if live == number), None)


Step = tuple[Chain, tuple[Action, ...]]


def step(chain: Chain, event: Event, world: World, rules: Rules) -> Step:
    """What follows an event."""
    done: Step = (chain, ())
    if chain.over:
        return done
    match event:
        case Began() if not chain.made:
            done = _begin(chain, world)
        case Delivered(number):
            done = _deliver(chain, number)
        case Ended(number, unparsable):
            done = _ended(chain, number, unparsable, world, rules)
        case Failed():
            done = _failed(chain, event, world, rules)
        case Due() if chain.again is not None:
            done = _due(chain, chain.again, world, rules)
        case Silent(reason):
            done = _hedge(chain, reason, world, rules)
        case Forbidden():
            done = chain._replace(forbidden=True), ()
        case Stopped():
            dropped = tuple(Drop(number) for number, _ in chain.live)
            done = chain._replace(over=True, live=(), again=None), dropped
    return done


def _begin(chain: Chain, world: World) -> Step:
    """The first target that may be called and did not ask to be left alone, else the first that may, else the first."""
    order = range(len(world.pushed_us))
    free = [t for t in order if t in world.open and world.pushed_us[t] <= world.now_us]
    target = next(iter(free or sorted(world.open)), 0)
    return _start(chain, Start(0, target))


def _start(chain: Chain, start: Start) -> Step:
    live = (*chain.live, (start.number, start.target))
    return chain._replace(made=chain.made + 1, live=live), (start,)


def _deliver(chain: Chain, number: int) -> Step:
    if chain.committed is not None or chain.target_of(number) is None:
        return chain, ()
    losers = tuple(Drop(other) for other, _ in chain.live if other != number)
    return chain._replace(committed=number, live=_only(chain, number)), (Commit(number), *losers)


def _only(chain: Chain, number: int) -> tuple[tuple[int, int], ...]:
    return tuple(entry for entry in chain.live if entry[0] == number)


def _ended(chain: Chain, number: int, unparsable: str | None, world: World, rules: Rules) -> Step:
    target = chain.target_of(number)
    if target is None:
        return chain, ()
    if unparsable is not None and chain.committed is None and rules.repair and not chain.repaired:
        rest = chain._replace(live=_without(chain, number), spare=number, repaired=True)
        if rest.live:  # what runs beside it may do better
            return rest, ()
        again = _again(rest, Failed(number, "unparsable"), target, world, rules, reason="repair")
        if again is not None:
            return again
    chain, actions = _deliver(chain, number) if chain.committed is None else (chain, ())
    if chain.committed != number:
        return chain._replace(live=_without(chain, number)), ()
    return chain._replace(over=True, live=()), (*actions, End(number))


def _failed(chain: Chain, event: Failed, world: World, rules: Rules) -> Step:
    target = chain.target_of(event.number)
    if target is None:
        return chain, ()
    refused = chain.refused | {rules.providers[target]} if event.not_again else chain.refused
    chain = chain._replace(
        live=_without(chain, event.number), failed=(*chain.failed, target), refused=refused
    )
    if chain.committed is not None:
        if chain.committed != event.number:
            return chain, ()
        return chain._replace(over=True), (End(event.number),)
    if chain.live:
        return chain, ()
    kind = class_of(event.code, long_prompt=rules.long_prompt)
    reason = None
    if kind is RetryClass.CAREFUL:
        reason = "shrink"
        if not rules.shrink or chain.shrunk:
            kind = RetryClass.FORBIDDEN
    if kind is not RetryClass.FORBIDDEN:
        again = _again(chain, event, target, world, rules, reason)
        if again is not None:
            return again
    return _close(chain, event.number)


def _close(chain: Chain, last: int) -> Step:
    """The chain is spent: an answer that does not parse is still better than the last failure."""
    if chain.spare is None:
        return chain._replace(over=True), (End(last),)
    return chain._replace(over=True, committed=chain.spare), (Commit(chain.spare), End(chain.spare))


def _without(chain: Chain, number: int) -> tuple[tuple[int, int], ...]:
    return tuple(entry for entry in chain.live if entry[0] != number)


def _again(
    chain: Chain, event: Failed, target: int, world: World, rules: Rules, reason: str | None = None
) -> Step | None:
    """The next attempt, at once or after a wait; None where the chain is spent."""
    if chain.forbidden or chain.made >= rules.attempts_max:
        return None
    down = _down(chain, rules)
    loaded = down | {rules.providers[target]}
    waits = []
    for other in _affordable(chain, world, rules, loaded):
        wait_us = asked_wait_us(max(0, world.pushed_us[other] - world.now_us), world.jitter)
        if rules.providers[other] in down:
            wait_us = max(wait_us, backoff_us(rules.backoff_ms, chain.made, world.jitter))
        if other == target or rules.providers[other] == rules.providers[target]:
            wait_us = max(wait_us, asked_wait_us(event.asked_us or 0, world.jitter))
        if world.now_us + wait_us < rules.deadline_us:
            waits.append((wait_us, chain.failed.count(other), other))
    if not waits:
        return None
    wait_us, _, chosen = min(waits)
    reason = reason or ("retry" if chosen == target else "fallback")
    start = Start(chain.made, chosen, reason, event.code, wait_us, event.number)
    chain = chain._replace(shrunk=chain.shrunk or reason == "shrink")
    paid = _pay(chosen, rules, loaded)
    if wait_us == 0:
        chain, actions = _start(chain, start)
        return chain, (*paid, *actions)
    return chain._replace(again=start, again_us=world.now_us + wait_us), paid


def _down(chain: Chain, rules: Rules) -> set[str]:
    """The providers that failed in this chain."""
    return {rules.providers[target] for target in chain.failed}


def _affordable(chain: Chain, world: World, rules: Rules, loaded: set[str]) -> list[int]:
    """The targets that may be called: what loads a provider once more must be paid for, another route is free."""
    able = [t for t in sorted(world.open) if rules.providers[t] not in chain.refused]
    return [t for t in able if rules.providers[t] not in loaded or t in world.paid]


def _pay(target: int, rules: Rules, loaded: set[str]) -> tuple[Action, ...]:
    return (Pay(target),) if rules.providers[target] in loaded else ()


def _due(chain: Chain, start: Start, world: World, rules: Rules) -> Step:
    """The wait is over: begin, elsewhere where a breaker has come in the way, or end where nothing is left."""
    if world.now_us < chain.again_us:
        return chain, ()
    chain = chain._replace(again=None)
    if start.target in world.open and not chain.forbidden:
        return _start(chain, start)
    down = _down(chain, rules)
    others = [] if chain.forbidden else _affordable(chain, world, rules, down)
    if not others:
        return _close(chain, start.after or 0)
    target = min(others, key=lambda t: (chain.failed.count(t), t))
    reason = "fallback" if start.reason == "retry" else start.reason
    chain, actions = _start(chain, start._replace(target=target, reason=reason))
    return chain, (*_pay(target, rules, down), *actions)


def _hedge(chain: Chain, reason: str, world: World, rules: Rules) -> Step:
    """One more beside what is silent, on a provider of its own where the route has one."""
    allowed = chain.committed is None and not chain.forbidden and chain.made < rules.attempts_max
    if not allowed or not 0 < len(chain.live) <= rules.in_flight_max:
        return chain, ()
    busy = {rules.providers[target] for _, target in chain.live} | chain.refused
    able = [t for t in sorted(world.hedge_paid) if rules.providers[t] not in chain.refused]
    free = [t for t in able if world.pushed_us[t] <= world.now_us]
    elsewhere = [t for t in free if rules.providers[t] not in busy]
    same_only = all(provider in busy for provider in rules.providers)
    targets = elsewhere or (free if same_only else [])
    if not targets:
        return chain, ()
    target = min(targets, key=lambda t: (chain.failed.count(t), t))
    chain, actions = _start(chain, Start(chain.made, target, reason, None, None, chain.live[-1][0]))
    return chain, (Pay(target, hedge=True), *actions)
