"""Gaps, stalls, and which of them are rows."""

from pipeline.stalls import ICL_GAPS_MAX, STALL_ROWS_MAX, ContentClock, percentile, rows_of_loser
from schemas.events import AttemptEnd, EndedBy, Gap, Outcome

THRESHOLD_US = 2_000_000


def clock_of(*times_us, threshold_us=THRESHOLD_US):
    clock = ContentClock(threshold_us)
    for seq, at_us in enumerate(times_us, 1):
        clock.content(at_us, seq, 0, tokens=1)
    return clock


def ended(outcome=Outcome.FAILED, **fields):
    plain = {"dispatched_us": 0, "elapsed_us": 10_000_000}
    return AttemptEnd(
        provider="p", model="m", request_id="r", started_us=0, outcome=outcome, **(plain | fields)
    )


def test_a_gap_of_exactly_the_threshold_is_no_stall():
    """Strictly longer counts, and then the whole length."""
    clock = clock_of(0, THRESHOLD_US, 2 * THRESHOLD_US + 1)
    assert (clock.stall_count, clock.stall_us, clock.longest_stall_us) == (
        1,
        THRESHOLD_US + 1,
        THRESHOLD_US + 1,
    )
    ((row, closing_seq),) = clock.rows
    assert (row.content_index, row.seq, row.start_us, row.tokens_estimate) == (1, 2, THRESHOLD_US, 2)
    assert closing_seq == 3


def test_adjacent_stalls_are_one_run():
    """Two stalls with nothing but one content event between them are two stalls and one run."""
    clock = clock_of(0, 3_000_000, 6_000_000, 6_100_000, 9_200_000)
    assert (clock.stall_count, clock.stall_runs) == (3, 2)


def test_the_edges_own_pause_is_not_the_providers():
    """Time in which the edge did not read is taken off the gap, wherever in it the record said so."""
    clock = ContentClock(THRESHOLD_US)
    clock.content(0, 1, 0)
    clock.paused(1_000_000)
    clock.paused(500_000)
    clock.content(3_000_000, 2, 0)
    assert (clock.stall_count, clock.icl_max_us) == (0, 1_500_000)
    clock.content(5_500_000, 3, 0)
    assert clock.stall_us == 2_500_000


def test_no_gap_is_negative():
    """A clock that went back gives a gap of nothing."""
    assert list(clock_of(1_000, 500, 700).icl_gaps_us) == [0, 200]


def test_the_last_gap_is_a_row_outside_the_sums():
    """What the watchdog, a cancel or a cut ended is told, with who ended it, and not counted."""
    clock = clock_of(100_000)
    row = clock.trailing(0, ended(error_code="stall_timeout"))
    assert (row.length_us, row.ended_by, row.counted) == (9_900_000, EndedBy.WATCHDOG, False)
    assert clock.trailing(0, ended(error_code="cancelled")).ended_by is EndedBy.CANCEL
    assert clock.trailing(0, ended(error_code="incomplete_upstream")).ended_by is EndedBy.CUT
    assert clock.stall_count == 0


def test_there_is_no_last_gap_where_nothing_says_how_long():
    """A proper end, a lost attempt, an attempt without dispatch or content, and a short wait leave no row."""
    clock = clock_of(100_000)
    assert clock.trailing(0, ended(Outcome.OK)) is None
    assert clock.trailing(0, ended(Outcome.LOST)) is None
    assert clock.trailing(0, ended(dispatched_us=None)) is None
    assert clock.trailing(0, ended(elapsed_us=2_100_000)) is None
    assert clock_of().trailing(0, ended()) is None


def test_an_edge_that_measured_and_names_no_last_gap_has_seen_none():
    """The time behind the last content was its own pause; one that measured by a longer threshold cannot know."""
    clock = clock_of(100_000)
    assert clock.trailing(0, ended(stall_threshold_us=THRESHOLD_US)) is None
    assert clock.trailing(0, ended(stall_threshold_us=THRESHOLD_US + 1)).length_us == 9_900_000


def test_the_edges_word_on_the_last_gap_stands():
    """It knows what ended it and how long it was."""
    gap = Gap(content_index=0, start_us=100_000, length_us=5_000_000, ended_by=EndedBy.DISCONNECT)
    row = clock_of(100_000).trailing(2, ended(gaps=[gap]))
    assert (row.attempt, row.length_us, row.ended_by, row.seq) == (2, 5_000_000, EndedBy.DISCONNECT, 1)


def test_a_losers_gaps_are_its_own():
    """Gaps of an attempt that supplied nothing have no seq, and count unless nothing closed them."""
    gaps = [
        Gap(content_index=0, start_us=1, length_us=3_000_000),
        Gap(content_index=1, start_us=4, length_us=4_000_000, ended_by=EndedBy.HEDGE),
    ]
    rows = rows_of_loser(1, ended(Outcome.CANCELLED, gaps=gaps))
    assert [(row.attempt, row.seq, row.counted) for row in rows] == [(1, None, True), (1, None, False)]


def test_memory_is_bounded_and_sums_stay_exact():
    """However many gaps there are, the sums are right, rows and percentiles come from a bounded part."""
    count = ICL_GAPS_MAX * 3
    clock = clock_of(*(step * 10 for step in range(count)), threshold_us=5)
    assert clock.stall_count == count - 1
    assert clock.stall_us == (count - 1) * 10
    assert len(clock.rows) == STALL_ROWS_MAX
    assert ICL_GAPS_MAX // 2 <= len(clock.icl_gaps_us) < ICL_GAPS_MAX
    assert set(clock.icl_gaps_us) == {10}


def test_percentiles_are_nearest_rank():
    """A percentile is one of the gaps."""
    gaps = list(range(1, 11))
    assert [percentile(gaps, p) for p in (50, 95, 99, 100)] == [5, 10, 10, 10]
    assert percentile([7], 50) == 7
    assert percentile([], 50) is None
