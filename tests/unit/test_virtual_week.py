"""The simulated week: what hedging buys and costs, and that it lasts."""

import pytest

from tests.bench.row_week import STORMS, storm, week

GENERATIONS = 3_000


@pytest.fixture(scope="module")
def figures():
    """Give a small week's figures."""
    return week(1, GENERATIONS)


@pytest.mark.parametrize("way", ["hedge", "hedge_learned"])
def test_hedging_halves_the_p99_for_little(figures, way):
    """Less than half of the p99, even beside a time-out of ten seconds, for less than 5 % more of what is billed."""
    hedged = figures[way]
    assert hedged["ttft_p99_ms"] < figures["no_hedge_10_s"]["ttft_p99_ms"] / 2
    assert 0 < hedged["extra_cost_percent"] <= hedged["extra_cost_unstopped_percent"] < 5
    assert hedged["ttft_p50_ms"] == pytest.approx(figures["no_hedge"]["ttft_p50_ms"], rel=0.01)


def test_a_standby_provider_does_not_run_out_of_hedges(figures):
    """One that is only ever hedged to has no calls of its own: all silent answers are raced to the end of the week."""
    assert figures["hedge"]["hedges_percent"] > 5


def test_the_same_seed_is_the_same_week(figures):
    """Nothing of the machine is in the figures; another seed is another week."""
    assert week(1, 500) == week(1, 500) != week(2, 500)


def test_a_storm_of_silence_adds_less_than_a_tenth():
    """A provider that is silent for ten minutes, hedges on: the edge adds less than a tenth to its clients' calls."""
    found = storm(STORMS["silence"], 1)
    assert 0 < found["extra_load_percent"] < 10
    assert found["calls_percent"] < 100
