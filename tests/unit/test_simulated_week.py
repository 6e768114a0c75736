"""What hedging is for: a simulated week with silent streams, by the product's own policy."""

import pytest

from tests.bench.week import compare


@pytest.mark.parametrize("seed", [1, 2])
def test_hedging_halves_the_worst_wait_for_little(seed):
    """One stream in twenty is silent: the p99 of the wait is less than half, for less than 5 % more provider cost."""
    without, with_it = compare(10_000, seed, 2.0)
    assert with_it.p99_s < without.p99_s / 2
    assert with_it.cost < without.cost * 1.05
    assert with_it.p50_s == pytest.approx(without.p50_s, rel=0.05)
    assert with_it.unanswered < 10_000 * 0.001
    assert with_it.hedges < 0.1 * 10_000
