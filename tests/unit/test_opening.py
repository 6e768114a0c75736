"""A new generation's id: it says its time, and lies in a partition of the edge that drew it."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from edge.clock import Clock
from edge.driving.opening import Opening
from schemas.ids import is_uuid7, start_ms
from schemas.partition import partition_of
from tests.support.running import edge_settings

WALL_US = 1_790_000_000_123_456
PARTITIONS = 32


def opening_of(seed, own):
    """Give an opening that draws from a seed."""
    clock = Clock(lambda: 0, lambda: WALL_US, random.Random(seed).getrandbits, lambda: 0.0)
    settings = edge_settings(log={"partitions_per_edge": own})
    return Opening(settings, clock, PARTITIONS, lambda _: b"secret")


@given(st.integers(), st.sampled_from([0, 1, 2, 31]))
def test_an_id_lies_in_an_own_partition(seed, own):
    """Whatever is drawn becomes a UUIDv7 of its moment in a partition of this edge, and the next draw another one."""
    opening = opening_of(seed, own)
    drawn, again = opening._new_id(WALL_US), opening._new_id(WALL_US)
    assert drawn != again
    assert is_uuid7(drawn)
    assert start_ms(drawn) == WALL_US // 1000
    assert partition_of(drawn.encode(), PARTITIONS) in opening._own
    assert len(opening._own) == (own or PARTITIONS)


def test_draws_that_resemble_one_another_are_different_ids():
    """The last digits are drawn, not searched from where they were: a herd's ids do not meet on the way."""
    numbers = itertools.count()
    clock = Clock(lambda: 0, lambda: WALL_US, lambda _: next(numbers), lambda: 0.0)
    opening = Opening(edge_settings(), clock, PARTITIONS, lambda _: b"secret")
    assert len({opening._new_id(WALL_US) for _ in range(100)}) == 100
