"""What the fold opens, keeps aside, closes, and how far it lets the commit go."""

import msgspec
import pytest

from pipeline.fold import Safe
from pipeline.generation import AHEAD_MAX
from schemas.codec import Codec
from schemas.errors import Poison
from schemas.events import Heartbeat, Kind, LogEvent, Outcome, Stage
from schemas.parts import cut
from tests.support.events import log_event
from tests.support.folding import (
    CODEC,
    GENERATION_ID,
    OTHER_ID,
    at,
    attempt_end,
    attempt_start,
    attempts,
    content,
    end,
    failure,
    feed,
    generations,
    new_fold,
    row_of,
    start,
    whole,
)


def test_a_whole_generation_gives_one_row_and_one_attempt():
    """The attempt is out with its end, the generation with its terminal, and nothing is left behind."""
    fold = new_fold()
    outputs = feed(fold, whole())
    assert [type(output).__name__ for output in outputs] == ["AttemptRecord", "GenerationRecord"]
    assert outputs[1].status == "complete"
    assert outputs[1].revision == len(whole())
    assert fold.open_count == 0
    assert fold.safe() == Safe(len(whole()), len(whole()))


def test_only_a_start_opens():
    """Trace records and deltas of an unknown generation open nothing and do not start the orphan clock."""
    fold = new_fold()
    assert feed(fold, [attempt_start(), content(1, 5)]) == []
    assert fold.open_count == 0
    assert fold.at_end() == []
    assert fold.counters.strays_dropped == 2


def test_it_is_closed_when_the_last_attempt_has_ended():
    """A terminal alone closes nothing while a call to a provider is still open."""
    fold = new_fold()
    early = [
        start(),
        attempt_start(0),
        attempt_start(1, reason="hedge_ttft"),
        content(1, 100),
        attempt_end(0),
        end(2),
    ]
    assert generations(feed(fold, early)) == []
    (row,) = generations(feed(fold, [attempt_end(1, ms=700, outcome=Outcome.CANCELLED)]))
    assert [(a.attempt, a.outcome) for a in row.attempts] == [(0, "ok"), (1, "cancelled")]


def test_commit_stays_at_the_oldest_open_start_while_p_goes_on():
    """What may be read again begins with the oldest open generation; what was put out is not put out again."""
    fold = new_fold()
    feed(fold, whole(generation_id=OTHER_ID))
    begun = fold.position
    feed(fold, [start(), attempt_start()])
    feed(fold, whole(generation_id=OTHER_ID.replace("ff", "fe")))
    assert fold.safe() == Safe(begun, fold.position)


def test_a_restart_rebuilds_below_p_and_emits_nothing_there():
    """Read again from the commit, the state is the same, and only what lies at or above P comes out."""
    records = whole()
    first = new_fold()
    feed(first, records[:5])
    commit, emitted_below = first.safe()
    again = new_fold(position=commit, emit_from=emitted_below)
    outputs = feed(again, records[commit:])
    assert outputs == feed(new_fold(), records)
    third = new_fold(position=0, emit_from=len(records))
    assert feed(third, records) == []
    assert third.safe() == Safe(len(records), len(records))


def test_terminal_first_then_its_start():
    """What comes before its start is kept aside and folded in, so that nothing is missing in the end."""
    records = whole()
    shuffled = [records[-1], records[-2], *records[:-2]]
    assert row_of(shuffled) == row_of(records)


def test_a_fragment_is_finalized_at_the_end_with_revision_zero():
    """Without its start, a generation with a terminal becomes a gap that never replaces the whole."""
    row = row_of(whole()[2:])
    assert (row.status, row.revision, row.flags) == ("gap", 0, ["gap"])
    assert [(hole.first, hole.last) for hole in row.missing] == [(0, 0)]
    assert row.content_events == 3


def test_a_missing_seq_is_waited_for_until_the_end():
    """A proper end with a hole below it is held, then finalized as a gap with the range."""
    records = whole()
    del records[3]
    fold = new_fold()
    outputs = feed(fold, records)
    assert generations(outputs) == []
    assert fold.waits_for_end
    assert fold.safe().emitted_below == len(records) - 1
    (row,) = fold.at_end()
    assert (row.status, [(h.first, h.last) for h in row.missing]) == ("gap", [(2, 2)])
    assert fold.safe() == Safe(len(records), len(records))


def test_first_terminal_in_log_order_wins():
    """An error that came first stands; the proper end behind it changes nothing but a counter."""
    fold = new_fold()
    outputs = feed(fold, [start(), content(1, 100), failure(2), content(2, 150), end(3)])
    (row,) = generations(outputs)
    assert (row.terminal, row.terminal_seq, row.error_code) == ("error", 2, "upstream_error")
    assert fold.counters.late == 2


def test_an_error_terminal_with_a_used_seq_ends_it_as_readers_end():
    """Readers deliver the first error whatever its seq; the row agrees with them."""
    row = row_of([start(), content(1, 100), content(2, 110), failure(2, code="edge_lost")])
    assert (row.terminal_seq, row.status, row.content_events) == (2, "complete", 2)


def test_a_proper_end_with_a_used_seq_is_no_end():
    """Readers skip it, so the generation stays open."""
    fold = new_fold()
    assert feed(fold, [start(), content(1, 100), content(2, 110), end(2)]) == []
    assert fold.open_count == 1


def test_copies_are_dropped_and_differences_flagged():
    """An equal second record is nothing; an unequal one leaves the first and says ``conflict``."""
    records = whole()
    doubled = [*records[:3], records[2], *records[3:]]
    assert row_of(doubled) == row_of(records)
    differing = [*records[:3], content(1, 100, "other"), *records[3:]]
    row = row_of(differing)
    assert row.flags == ["conflict"]
    assert row.output_hash == row_of(records).output_hash
    assert not row.trace_complete
    assert row_of(records).trace_complete


def test_a_late_attempt_end_is_an_attempt_record_all_the_same():
    """An edge that comes back after the finder's word still has its attempt billed, with the higher revision."""
    fold = new_fold()
    lost = attempt_end(outcome=Outcome.LOST, edge_id="finder")
    outputs = feed(
        fold, [start(), attempt_start(), lost, failure(1, code="edge_lost"), attempt_end(ms=9_000)]
    )
    assert [record.revision for record in attempts(outputs)] == [0, 1]
    assert len(generations(outputs)) == 1
    unknown = feed(fold, [attempt_end(generation_id=OTHER_ID)])
    assert [record.generation_id for record in unknown] == [OTHER_ID]


def test_reorder_is_bounded():
    """A hole that stays open is given up when too many records wait behind it; the stream goes on."""
    count = AHEAD_MAX + 20
    records = [start(), *(content(seq, seq) for seq in range(2, count)), end(count, ms=count)]
    row = row_of(records)
    assert [(h.first, h.last) for h in row.missing] == [(1, 1)]
    assert row.content_events == count - 2


def test_strays_are_bounded():
    """The oldest strays make room; those with a terminal still give their row."""
    fold = new_fold(stray_records_max=4)
    outputs = feed(fold, whole((100, 120))[2:])
    assert generations(outputs) == []
    outputs = feed(fold, [content(1, 5, generation_id=OTHER_ID)])
    assert [row.generation_id for row in outputs] == [GENERATION_ID]


def test_ids_closed_lately_are_remembered_and_bounded():
    """A record behind its closed generation is late; one that is forgotten is a stray like any other."""
    fold = new_fold(closed_ids_max=1)
    feed(fold, whole())
    feed(fold, [content(9, 900)])
    assert fold.counters.late == 1
    feed(fold, whole(generation_id=OTHER_ID))
    feed(fold, [content(9, 900)])
    assert fold.at_end() == []
    assert fold.counters.strays_dropped == 1


def test_an_unknown_kind_counts_for_continuity():
    """A numbered record of a kind from the future is skipped and counted, and leaves no hole."""
    future = log_event(Kind.UNKNOWN, 2, **at(110))
    fold = new_fold()
    (row,) = generations(feed(fold, [start(), content(1, 100), future, content(3, 120), end(4)]))
    assert (row.status, row.content_events, fold.counters.unknown_kinds) == ("complete", 2, 1)


def test_parts_are_joined_at_the_last_one():
    """A record above the size limit is one record, one seq, once all its parts are there."""
    large = content(1, 100, "y" * 1_000_000)
    codec = Codec()
    parts = [codec.decode(piece, LogEvent) for piece in cut(codec, large)]
    assert len(parts) > 1
    cut_up = [start(), *parts, content(2, 120), end(3)]
    assert row_of(cut_up) == row_of([start(), large, content(2, 120), end(3)])
    strays = [*parts, start(), content(2, 120), end(3)]
    assert row_of(strays) == row_of(cut_up)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (log_event(Kind.DELTA, None), "missing_field"),
        (log_event(Kind.DELTA, -1), "bad_field"),
        (log_event(Kind.HEARTBEAT, 3), "bad_field"),
        (log_event(Kind.MESSAGE_START, 0), "missing_field"),
        (msgspec.structs.replace(start(), seq=4), "bad_field"),
        (log_event(Kind.ATTEMPT_END, after_seq=1), "missing_field"),
        (log_event(Kind.DELTA, 1, part=3, parts=2), "bad_field"),
        (log_event(Kind.DELTA, 1, attempt=-2), "bad_field"),
    ],
)
def test_impossible_fields_are_poison_and_change_nothing(event, reason):
    """A record that contradicts itself is refused; the offset moves on and the generation is what it was."""
    fold = new_fold()
    feed(fold, whole()[:-1])
    with pytest.raises(Poison) as poison:
        fold.step(fold.position, event)
    assert poison.value.reason == reason
    (row,) = feed(fold, whole()[-1:])
    assert CODEC.encode(row) == CODEC.encode(feed(new_fold(), whole())[-1])


def test_a_stall_says_where_it_stood():
    """A heartbeat of a tool stage between two content events names the stage of the gap."""
    beat = log_event(
        Kind.HEARTBEAT, after_seq=1, heartbeat=Heartbeat(stage=Stage.TOOL, elapsed_ms=3_000), **at(3_000)
    )
    row = row_of([start(), content(1, 100), beat, content(2, 5_000), content(3, 9_000), end(4)])
    assert [(stall.seq, stall.stage) for stall in row.stalls] == [(1, Stage.TOOL), (2, Stage.DECODE)]


def test_strays_pin_the_commit_so_that_a_crash_does_not_lose_them():
    """What is kept aside is read again after a restart, or its generation would lack it."""
    records = whole()
    late = [*records[1:3], records[0], *records[3:]]
    first = new_fold()
    feed(first, late[:2])
    assert first.safe() == Safe(0, 2)
    again = new_fold(position=0, emit_from=2)
    assert feed(again, late) == feed(new_fold(), records)


def test_a_stray_terminal_holds_p_back():
    """Its row is still to come, so nothing may say that all outputs up to here exist."""
    fold = new_fold()
    feed(fold, [content(1, 100), end(2), content(9, 1, generation_id=OTHER_ID)])
    assert fold.safe() == Safe(0, 1)
    assert len(fold.at_end()) == 1
    assert fold.safe() == Safe(3, 3)


def test_an_attempt_that_starts_behind_a_held_terminal_is_waited_for():
    """The partition's end closes no generation that has an open attempt."""
    fold = new_fold()
    feed(fold, [start(), content(1, 100), end(3), attempt_start(0)])
    assert fold.at_end() == []
    outputs = feed(fold, [attempt_end(0)])
    assert generations(outputs) == []
    assert len(fold.at_end()) == 1
