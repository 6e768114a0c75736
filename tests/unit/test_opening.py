"""A new generation's id: it says its time, and lies in a partition of the edge that drew it."""

from hypothesis import given
from hypothesis import strategies as st

from edge.clock import Clock
from edge.driving.opening import ID_BITS, Opening
from schemas.ids import is_uuid7, start_ms
from schemas.partition import partition_of
from tests.support.running import edge_settings

WALL_US = 1_790_000_000_123_456
PARTITIONS = 32


def opening_of(bits, own=2):
    """Give an opening whose every draw is the same."""
    clock = Clock(lambda: 0, lambda: WALL_US, lambda _: bits, lambda: 0.0)
    settings = edge_settings(log={"partitions_per_edge": own})
    return Opening(settings, clock, PARTITIONS, lambda _: b"secret")


@given(st.integers(0, (1 << ID_BITS) - 1), st.sampled_from([0, 1, 2, 31]))
def test_one_draw_is_enough(bits, own):
    """Whatever is drawn becomes a UUIDv7 of its moment in an own partition, with most of its bits as they were drawn."""
    opening = opening_of(bits, own)
    drawn, again = opening._new_id(WALL_US), opening._new_id(WALL_US)
    assert drawn == again
    assert is_uuid7(drawn)
    assert start_ms(drawn) == WALL_US // 1000
    assert partition_of(drawn.encode(), PARTITIONS) in opening._own
    assert len(opening._own) == (own or PARTITIONS)
    assert f"{bits & ((1 << 62) - 1):x}".zfill(16)[-12:-4] == drawn[-12:-4]
