"""The values of a generation's row."""

import pytest

from pipeline.finalize import generation_record
from pipeline.generation import Generation
from pipeline.stalls import ContentClock
from pipeline.sums import Sums
from schemas.events import (
    CancelRequested,
    Canonical,
    ChoiceFinish,
    ClientReader,
    ErrorEnd,
    Kind,
    MessageStart,
    Outcome,
    PartType,
    SeqRange,
    Usage,
    UsageSource,
)
from schemas.records import LineageEdge
from tests.support.events import log_event
from tests.support.folding import (
    GENERATION_ID,
    OTHER_ID,
    at,
    attempt_end,
    attempt_start,
    content,
    end,
    failure,
    row_of,
    start,
    whole,
)

STEADY_MS = tuple(range(100, 1_100, 100))


def usage(output, reasoning=None):
    return Usage(input=5, output=output, reasoning=reasoning, source=UsageSource.REPORTED)


def timed(times_ms, output=None, **ends):
    said = {"usage": usage(output) if output is not None else None} | ends
    records = [start(), attempt_start(), *(content(i, ms) for i, ms in enumerate(times_ms, 1))]
    return row_of([*records, attempt_end(usage=None), end(len(times_ms) + 1, **said)]).timings


def test_times_of_a_steady_stream():
    """First content from the request and from the dispatch, last content, gaps, and rates by their definitions."""
    timings = timed(STEADY_MS, output=19)
    assert (timings.ttft_us, timings.attempt_ttft_us, timings.e2e_us) == (100_000, 99_000, 1_000_000)
    assert (timings.generation_us, timings.active_generation_us, timings.stall_us) == (900_000, 900_000, 0)
    assert timings.tpot_us == 50_000
    assert (timings.icl_p50_us, timings.icl_p99_us, timings.icl_max_us) == (100_000, 100_000, 100_000)
    assert timings.tokens_per_second_active_milli == timings.tokens_per_second_wall_milli == 21_111
    assert (timings.tps_basis, timings.tps_null_reason) == ("active", None)


def test_stalls_come_off_the_active_time_only():
    """generation_us keeps the wall; the active rate leaves the stalls out."""
    times = (*range(100, 3_100, 100), 5_500)
    timings = timed(times, output=55)
    assert (timings.generation_us, timings.stall_us) == (5_400_000, 2_500_000)
    assert timings.active_generation_us == 2_900_000
    assert timings.tokens_per_second_active_milli == 18_966
    assert timings.tokens_per_second_wall_milli == 10_185


@pytest.mark.parametrize(
    ("times_ms", "output", "reason", "basis"),
    [
        ((100, 200, 300, 400), 9, "too_few", None),
        ((100, 100, 100, 100, 101, 101), 9, "burst", None),
        ((100, 110, 120, 130, 150), 9, "too_short", None),
        ((100, 200, 300, 400, 9_000), 9, "too_short", "wall"),
        (STEADY_MS, None, "unmeasured", None),
    ],
)
def test_no_rate_without_a_reason(times_ms, output, reason, basis):
    """Where the events are too few, too close, too stalled or without tokens, the active rate is null and says why."""
    timings = timed(times_ms, output)
    assert (timings.tps_null_reason, timings.tps_basis) == (reason, basis)
    assert timings.tokens_per_second_active_milli is None
    assert (timings.tokens_per_second_wall_milli is None) is (basis is None)


def test_hidden_reasoning_is_no_streamed_token():
    """Reasoning that was billed and not streamed is taken off the time per token, and no rate is given."""
    timings = timed(STEADY_MS, usage=usage(119, reasoning=100))
    assert timings.tpot_us == 50_000
    assert timings.tps_null_reason == "hidden_reasoning"


def test_fewer_than_two_content_events_measure_no_gap():
    """One content event has a first token and nothing else; none has nothing at all. Null is never zero."""
    one = timed((100,), output=3)
    assert (one.ttft_us, one.e2e_us) == (100_000, 100_000)
    assert (one.generation_us, one.stall_count, one.stall_us, one.icl_max_us) == (None, None, None, None)
    none = timed((), output=3)
    assert (none.ttft_us, none.e2e_us, none.stall_count) == (None, None, None)


def test_several_choices_measure_no_gap():
    """Interleaved choices make gaps meaningless, whether their content or their finish tells of them."""
    second = Canonical(type=PartType.TEXT, text="b", choice_index=1)
    streamed = [start(), content(1, 100), log_event(Kind.DELTA, 2, canonical=[second], **at(9_000)), end(3)]
    row = row_of(streamed)
    assert (row.timings.stall_count, row.timings.tps_null_reason, row.stalls) == (
        None,
        "multiple_choices",
        [],
    )
    choices = [ChoiceFinish(choice_index=i, finish_reason="stop") for i in (0, 1)]
    assert timed((100, 9_000), choices=choices).generation_us is None


def test_attempts_and_their_lineage():
    """Each attempt is told with its reason and outcome, and how it came from the one before."""
    records = [
        start(),
        attempt_start(0),
        attempt_end(0, outcome=Outcome.FAILED, error_code="rate_limited", usage=None),
        attempt_start(1, reason="hedge_ttft"),
        content(1, 300, attempt=1),
        attempt_end(1),
        end(2),
    ]
    row = row_of(records)
    assert [(a.attempt, a.reason, a.outcome, a.error_code) for a in row.attempts] == [
        (0, "first", "failed", "rate_limited"),
        (1, "hedge_ttft", "ok", None),
    ]
    assert row.committed_attempt == 1
    (edge,) = row.lineage
    assert (edge.kind, edge.from_id, edge.to_id) == ("hedge", f"{GENERATION_ID}/0", f"{GENERATION_ID}/1")


def test_a_generation_names_the_one_before_it():
    """The edge across generations has the kind that its start says, a retry where it says none."""
    opening = MessageStart(
        request_id="r", model="m", model_route="p", prompt_hash="h", previous_generation_id="before"
    )
    begun = log_event(Kind.MESSAGE_START, 0, message_start=opening, **at(0))
    (edge,) = row_of([begun, end(1)]).lineage
    assert (edge.kind, edge.from_id, edge.to_id) == ("retry", "before", GENERATION_ID)


def test_readers_and_cancel():
    """What was delivered and acknowledged is the furthest that was said; the first cancel is the one."""

    def client(kind, ms, **fields):
        return log_event(kind, after_seq=1, client=ClientReader(reader_id="r", **fields), **at(ms))

    def cancelled(ms, reason):
        return log_event(Kind.CANCEL_REQUESTED, after_seq=1, cancel=CancelRequested(reason=reason), **at(ms))

    traces = [
        client(Kind.CLIENT_DETACHED, 300, last_seq=4, reason="reset"),
        client(Kind.CLIENT_DETACHED, 200, last_seq=7, reason="eof"),
        client(Kind.CLIENT_ACK, 210, ranges=[SeqRange(first=0, last=2), SeqRange(first=3, last=5)]),
        cancelled(400, "second"),
        cancelled(350, "first"),
    ]
    forth = row_of([start(), content(1, 100), *traces, end(2)])
    back = row_of([start(), content(1, 100), *traces[::-1], end(2)])
    assert forth == back
    assert (forth.delivered_seq, forth.acked_seq, forth.last_detach_reason) == (7, 5, "reset")
    assert forth.cancel.reason == "first"


def test_a_lost_edge_is_never_a_complete_trace():
    """Usage, seqs and all may be there: an edge that died may have known more."""
    row = row_of([*whole()[:-1], failure(4, code="edge_lost")])
    assert (row.status, row.error_code, row.trace_complete) == ("complete", "edge_lost", False)
    assert row_of(whole()).trace_complete


def test_a_claimed_hash_is_compared():
    """What the edge says of its output and what the log holds are one value, or the row says so."""
    good = row_of(whole())
    claimed = [*whole()[:-1], end(4, ms=146, output_hash=good.output_hash)]
    assert row_of(claimed).flags == []
    wrong = [*whole()[:-1], end(4, ms=146, output_hash="0" * 64)]
    assert row_of(wrong).flags == ["hash_mismatch"]


def test_wall_clocks_are_recorded_and_measure_nothing():
    """A wall clock that steps back is a flag; the durations are those of the monotonic one."""
    stepped = content(2, 200, wall_us=content(2, 200).wall_us - 2_000_000)
    row = row_of([start(), content(1, 100), stepped, content(3, 300), end(4)])
    assert (row.clock_skew_us, row.flags) == (2_000_000, ["clock_skew"])
    assert row.timings.generation_us == 200_000


def test_without_a_terminal_there_is_no_row():
    """Finalizing an open generation is a bug, not a gap."""
    open_one = Generation(sums=Sums(ContentClock(1)), first=start(), first_offset=0)
    with pytest.raises(ValueError, match="no terminal"):
        generation_record(open_one)


def test_one_that_was_superseded():
    """It never had an attempt: a whole row without one, and an edge to the generation that stands in its place."""
    error = ErrorEnd(code="superseded", message="superseded", attempts=0, successor=OTHER_ID)
    row = row_of([start(), log_event(Kind.ERROR, 1, error=error, **at(4))])
    assert (row.status, row.error_code, row.attempts, row.committed_attempt) == (
        "complete",
        "superseded",
        [],
        None,
    )
    assert row.lineage == [LineageEdge(kind="superseded", from_id=GENERATION_ID, to_id=OTHER_ID)]
    assert row.usage is None
