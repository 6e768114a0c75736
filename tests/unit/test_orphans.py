"""When a generation is lost, and what is appended then."""

from pipeline.orphans import LogWatch, Patience, Probe, Probes, lost, verdict
from schemas.events import Dispatch, Kind, LogEvent, Outcome
from tests.support.folding import (
    CODEC,
    OTHER_ID,
    attempt_end,
    attempt_start,
    attempts,
    content,
    end,
    feed,
    generations,
    new_fold,
    start,
)

SECOND = 1_000_000
PATIENCE = Patience(orphan_after_us=60 * SECOND, generation_us=900 * SECOND)


def silent_fold(*records, read_us=1_000 * SECOND):
    fold = new_fold()
    for offset, event in enumerate(records or (start(), attempt_start(), content(1, 100))):
        fold.step(offset, event, read_us)
    return fold


def found(fold, begun_s, *, end_offset=None, returned_s=0, patience=PATIENCE):
    probe = Probe(begun_s * SECOND, fold.position if end_offset is None else end_offset, fold.position)
    return lost(fold.open, probe, returned_s * SECOND, patience)


def test_lost_after_the_orphan_time_and_not_before():
    """The request must begin that long after the last record was read."""
    fold = silent_fold()
    assert found(fold, 1_059) == []
    assert len(found(fold, 1_060)) == 1


def test_any_record_is_a_sign_of_life():
    """A record read later, a heartbeat or a detach, starts the clock again."""
    fold = silent_fold()
    fold.step(fold.position, content(2, 200), 1_030 * SECOND)
    assert found(fold, 1_060) == []
    assert len(found(fold, 1_090)) == 1


def test_not_while_something_is_unread():
    """An answer beyond the folded position may hold the sign of life: nothing is decided."""
    fold = silent_fold()
    assert found(fold, 1_100, end_offset=fold.position + 1) == []


def test_what_others_write_behind_the_answer_saves_nobody():
    """A busy partition is folded beyond the answer when that comes: the silent generation in it is lost all the same."""
    fold = silent_fold()
    assert len(found(fold, 1_100, end_offset=fold.position - 1)) == 1


def test_an_answer_waits_for_a_fold_that_is_always_behind():
    """The fold never stands at the end: the older answer is judged once it is folded, and the newer one waits."""
    probes = Probes()
    assert probes.folded(Probe(10, 100, 90)) is None
    assert probes.folded(Probe(20, 200, 99)) is None
    assert probes.folded(Probe(30, 300, 290)) == Probe(10, 100, 290)
    assert probes.folded(Probe(40, 400, 390)) == Probe(30, 300, 390)
    assert probes.folded(Probe(50, 500, 500)) == Probe(50, 500, 500)
    assert probes.folded(Probe(60, 600, 590)) is None


def test_not_within_the_orphan_time_of_the_logs_return():
    """After an outage an edge needs time to write again."""
    fold = silent_fold()
    assert found(fold, 2_000, returned_s=1_950) == []
    assert len(found(fold, 2_010, returned_s=1_950)) == 1


def test_a_decision_is_made_once_per_orphan_time():
    """Until the appended records are read, the same generation is not decided again at every probe."""
    fold = silent_fold()
    (generation,) = found(fold, 1_060)
    generation.decided_us = 1_060 * SECOND
    assert found(fold, 1_068) == []
    assert len(found(fold, 1_120)) == 1


def test_an_endless_generation_is_bounded():
    """Heartbeats for ever do not keep a generation open beyond its own limit."""
    fold = silent_fold()
    for second in range(1_030, 2_000, 30):
        fold.step(fold.position, content(second, second), second * SECOND)
    assert found(fold, 1_950) == []
    assert len(found(fold, 1_990)) == 1


def test_a_settled_generation_is_nobodys_orphan():
    """One that only waits for a missing seq is finalized at the partition's end, not lost."""
    fold = silent_fold(start(), attempt_start(), content(1, 100), attempt_end(), end(3))
    assert fold.open_count == 1
    assert found(fold, 5_000) == []


def test_the_verdict_closes_it_and_is_equal_whoever_gives_it():
    """Both open attempts are lost, the error has the next seq, and two workers append equal bytes."""
    records = [
        start(),
        attempt_start(0),
        attempt_start(1),
        content(1, 100, attempt=1),
        content(2, 4_000, attempt=1),
    ]
    one, other = silent_fold(*records), silent_fold(*records, read_us=7)
    (generation,) = found(one, 1_060)
    appended = verdict(generation)
    assert [CODEC.encode(e) for e in appended] == [CODEC.encode(e) for e in verdict(next(iter(other.open)))]
    assert [(e.kind, e.attempt, e.seq) for e in appended] == [
        (Kind.ATTEMPT_END, 0, None),
        (Kind.ATTEMPT_END, 1, None),
        (Kind.ERROR, 1, 3),
    ]
    committed = appended[1].attempt_end
    assert (committed.outcome, committed.committed, committed.dispatch) == (
        Outcome.LOST,
        True,
        Dispatch.UNKNOWN,
    )
    assert (committed.content_events, committed.possibly_billed, len(committed.gaps)) == (2, True, 1)
    assert not appended[0].attempt_end.committed
    outputs = feed(one, [CODEC.decode(CODEC.encode(e), LogEvent) for e in [*appended, *appended]])
    (row,) = generations(outputs)
    assert (row.error_code, row.status, row.flags, row.trace_complete) == ("edge_lost", "complete", [], False)
    assert len({CODEC.encode(record) for record in attempts(outputs)}) == 2


def test_no_second_terminal():
    """Where the edge died between its terminal and the end of an attempt, only the attempt is lost."""
    fold = silent_fold(start(), attempt_start(), content(1, 100), end(2))
    (generation,) = found(fold, 1_060)
    assert [event.kind for event in verdict(generation)] == [Kind.ATTEMPT_END]


def test_the_error_is_above_every_seq_that_was_used():
    """Records that wait behind a hole keep their seqs: the error's is the next unused one."""
    fold = silent_fold(start(), content(1, 100), content(5, 200))
    (generation,) = found(fold, 1_060)
    assert verdict(generation)[-1].seq == 6


def test_strays_start_no_clock():
    """Only an open generation can be lost."""
    fold = silent_fold(content(1, 100, generation_id=OTHER_ID))
    assert found(fold, 9_000) == []


def test_the_log_returns_with_the_first_answer_after_a_failure():
    """A failed request, or a long time in which nobody asked, makes the next answer a return."""
    watch = LogWatch(100 * SECOND)
    watch.answered(108 * SECOND, PATIENCE)
    assert watch.returned_us == 100 * SECOND
    watch.failed()
    watch.answered(120 * SECOND, PATIENCE)
    assert watch.returned_us == 120 * SECOND
    watch.answered(128 * SECOND, PATIENCE)
    assert watch.returned_us == 120 * SECOND
    watch.answered(200 * SECOND, PATIENCE)
    assert watch.returned_us == 200 * SECOND
