"""The lease: emitting from memory only while no orphan finder can have ended the generation."""

from hypothesis import given
from hypothesis import strategies as st

from edge.lease import Lease

HALF_US = 30_000_000


def test_acknowledgements_in_time_keep_it():
    """Each acknowledgement within half the orphan time of the newest acknowledged sending renews the lease."""
    lease, now_us = Lease(HALF_US, 0), 0
    for _ in range(10):
        sent_us = now_us + HALF_US // 3
        now_us = sent_us + HALF_US // 3
        assert lease.acked(sent_us, now_us)


def test_exactly_half_is_still_in_time():
    """The bound is inclusive: one microsecond later the lease is lost."""
    assert Lease(HALF_US, 0).acked(0, HALF_US)
    assert not Lease(HALF_US, 0).acked(0, HALF_US + 1)


def test_the_sending_counts_and_not_the_acknowledgement():
    """A record that was sent long ago renews from its sending: what its slow acknowledgement took is not given twice."""
    lease = Lease(HALF_US, 0)
    assert lease.acked(1, HALF_US)
    assert not lease.acked(HALF_US, HALF_US + 2)


def test_a_freeze_past_half_the_orphan_time_loses_it_for_good():
    """A process that slept may no longer emit from memory, however quick every later acknowledgement is."""
    lease = Lease(HALF_US, 0)
    assert lease.acked(1_000, 2_000)
    thawed_us = 2_000 + HALF_US * 5
    assert not lease.acked(3_000, thawed_us)
    assert not lease.acked(thawed_us, thawed_us + 1)
    assert lease.lost


def test_acknowledgements_out_of_sending_order_do_not_move_it_back():
    """The newest sending that was acknowledged stands."""
    lease = Lease(HALF_US, 0)
    assert lease.acked(20_000_000, 20_000_001)
    assert lease.acked(10_000_000, 20_000_002)
    assert lease.acked(30_000_000, 20_000_000 + HALF_US)


@given(
    st.lists(st.tuples(st.integers(0, 40_000_000), st.integers(0, 40_000_000)), min_size=1, max_size=20),
)
def test_what_may_be_emitted_came_before_any_finder_could_act(steps):
    """At an emit, the log had a record of this generation sent less than half the orphan time ago."""
    lease, now_us, newest_us = Lease(HALF_US, 0), 0, 0
    for wait_us, flight_us in steps:
        sent_us = now_us + wait_us
        now_us = sent_us + flight_us
        before_us, emitted = newest_us, lease.acked(sent_us, now_us)
        if emitted:
            assert now_us - before_us <= HALF_US
        newest_us = max(newest_us, sent_us)
