"""A week of 100,000 generations and a provider that is down for ten minutes, in virtual time: what hedges and retries do.

`week`: two providers of which 5 % of the answers are silent for ever (the simulator's profile `silent`). The same calls
are given the same answers without hedging (at the default time-out, and at one of 10 s) and with it (a fixed time, and
one that is learned). A cost is all tokens of all attempts until they were cancelled, every attempt's prompt included, at
the list prices of `compose/prices.toml`. `storm_of_…`: 1,000 clients, one provider, ten minutes of
errors or of silence. The seeds are the rounds: 1, 2, 3. Before: `__main__`. After: `virtual_week`.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import compose
from compose.embedded.simulator.traits import PROFILES, Traits
from pipeline.costs import charges_of
from schemas.money import total
from schemas.payloads import Usage
from schemas.prices import load_prices
from schemas.settings import Provider, Route, Settings
from tests.bench.client import percentile
from tests.bench.results import Round, Row, row_of
from tests.bench.stack import BenchFailed
from tests.bench.virtual_week import MODEL, S, Tally, VirtualEdge

GENERATIONS: Final = 100_000
GENERATIONS_QUICK: Final = 2_000
WEEK_S: Final = 7 * 24 * 3600
PROMPT_TOKENS: Final = 1_000
SEEDS: Final = 3
AT_US: Final = 1_767_225_600 * S  # when the prices are looked up: the first instant of 2026
PRICES: Final = Path(compose.__file__).parent / "prices.toml"
WAYS: Final[dict[str, dict[str, Any]]] = {
    "no_hedge": {},
    "no_hedge_10_s": {"stream": {"ttft_timeout_s": 10}},
    "hedge": {"hedge": {"after_s": 3}},
    "hedge_learned": {"hedge": {"after_s": 3, "quantile": 0.95}},
}
CLIENTS: Final = 1_000
EVERY_S: Final = 30
DOWN_S: Final = (300, 900)
END_S: Final = 1_200
STORMS: Final[dict[str, Traits]] = {"errors": PROFILES["down"], "silence": Traits(silent_share=1.0)}


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row."""
    found = []
    count = rounds or (1 if quick else SEEDS)
    generations = GENERATIONS_QUICK if quick else GENERATIONS
    for seed in range(1, count + 1):
        tell(f"week: seed {seed} of {count}")
        storms = {f"storm_of_{what}": storm(traits, seed) for what, traits in STORMS.items()}
        found.append({**week(seed, generations), **storms})
    seeds = ", ".join(str(seed) for seed in range(1, count + 1))
    return [row_of("week", found, generations=generations, clients=CLIENTS, seeds=seeds)]


def settings_of(providers: tuple[str, ...], sections: dict[str, Any]) -> Settings:
    """The defaults, but for these sections and providers that nobody calls."""
    return Settings(
        providers={name: Provider(base_url="http://127.0.0.1:1/v1") for name in providers},
        default_route=tuple(Route(provider=name) for name in providers),
        secrets={"cursor": ["0" * 64]},
        **sections,
    )


def week(seed: int, generations: int) -> Round:
    """Every way's figures over the same calls; costs are compared with ``no_hedge``."""
    tallies = {way: _played(seed, generations, sections) for way, sections in WAYS.items()}
    base = tallies["no_hedge"]
    return {way: _figures(tally, generations, base) for way, tally in tallies.items()}


def _played(seed: int, generations: int, sections: dict[str, Any]) -> Tally:
    providers = ("one", "two")
    edge = VirtualEdge(settings_of(providers, sections), providers, lambda _: PROFILES["silent"], seed)
    chance = random.Random(f"arrivals/{seed}")
    for _ in range(generations):
        edge.at(chance.randrange(WEEK_S * S), edge.begin)
    tally = edge.run()
    if len(tally.ttft_us) + tally.refused != generations:
        raise BenchFailed(f"{generations} generations began, {len(tally.ttft_us)} came to an end")
    return tally


def _figures(tally: Tally, generations: int, base: Tally) -> dict[str, float]:
    ordered = sorted(tally.ttft_us)
    cost, base_cost = _cost(tally), _cost(base)
    return {
        "ttft_p50_ms": percentile(ordered, 0.5) / 1000,
        "ttft_p99_ms": percentile(ordered, 0.99) / 1000,
        "extra_attempts_percent": 100 * (tally.prompts - generations + tally.refused) / generations,
        "hedges_percent": 100 * tally.hedges / generations,
        "extra_cost_percent": 100 * (cost / base_cost - 1),
        "extra_cost_unstopped_percent": 100 * (_cost(tally, tally.unstopped_tokens) / base_cost - 1),
        "failed": tally.failed + tally.refused,
    }


def _cost(tally: Tally, more_tokens: int = 0) -> float:
    """At list prices. ``more_tokens``: what losers would have said after we hung up."""
    entry = load_prices(PRICES).find(MODEL, AT_US)
    usage = Usage(input=tally.prompts * PROMPT_TOKENS, output=tally.output_tokens + more_tokens)
    amounts = [charge.amount for charge in charges_of(entry, usage) if charge.amount is not None]
    if len(amounts) != 2:
        raise BenchFailed(f"{PRICES.name} has no prices of {MODEL}")
    return float(total(amounts))


def storm(traits: Traits, seed: int) -> dict[str, float]:
    """While the provider is down: calls that the edge made beyond what clients asked for, and what it refused at once."""
    sections = {"hedge": {"after_s": 3}, "stream": {"ttft_timeout_s": 10}}
    down = range(DOWN_S[0] * S, DOWN_S[1] * S)
    edge = VirtualEdge(
        settings_of(("one",), sections),
        ("one",),
        lambda at: traits if at in down else PROFILES["healthy"],
        seed,
    )
    chance = random.Random(f"clients/{seed}")
    asked = 0
    for _ in range(CLIENTS):
        for at_us in range(chance.randrange(EVERY_S * S), END_S * S, EVERY_S * S):
            edge.at(at_us, edge.begin)
            asked += at_us in down
    within = [first for at_us, first in edge.run().calls if at_us in down]
    extra = within.count(False)
    return {
        "asked": asked,
        "extra_load_percent": 100 * extra / asked,
        "calls_percent": 100 * len(within) / asked,
    }
