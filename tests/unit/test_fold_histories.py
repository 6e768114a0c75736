"""Whatever a log went through, and wherever the worker died: the same rows with the same bytes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.orphans import verdict
from schemas.events import CancelRequested, Heartbeat, Kind, Outcome, Stage
from schemas.records import AttemptRecord
from tests.support.events import log_event
from tests.support.folding import (
    CODEC,
    at,
    attempt_end,
    attempt_start,
    content,
    end,
    failure,
    new_fold,
    start,
)

IDS = [f"01931a2b-3c4d-7e5f-8a6b-00000000000{digit}" for digit in range(4)]
EXAMPLES = settings(max_examples=120)


class Sink:
    """Holds the highest revision of each identity; equal revisions must be equal bytes."""

    def __init__(self):
        self._bytes = {}

    def keep(self, outputs):
        for output in outputs:
            kind = "attempt" if isinstance(output, AttemptRecord) else "generation"
            at_ = (kind, output.generation_id, getattr(output, "attempt", -1), output.revision)
            data = CODEC.encode(output)
            assert self._bytes.setdefault(at_, data) == data, "equal revisions, different bytes"

    def rows(self):
        best = {}
        for (*identity, revision), data in sorted(self._bytes.items()):
            best[tuple(identity)] = (revision, data)
        return best


@st.composite
def generation(draw, generation_id):
    """A generation as an edge writes it: several attempts, content with gaps, heartbeats, either terminal."""
    own = {"generation_id": generation_id}
    times = sorted(draw(st.lists(st.integers(50, 9_000), max_size=8, unique=True)))
    tries = draw(st.integers(1, 3))
    last_ms = times[-1] if times else 60
    records = [start(**own)]
    for attempt in range(tries - 1):
        records += [attempt_start(attempt, ms=attempt + 1, **own)]
        records += [attempt_end(attempt, ms=attempt + 2, outcome=Outcome.FAILED, **own)]
    records.append(attempt_start(tries - 1, ms=20, reason="retry" if tries > 1 else "first", **own))
    for index, ms in enumerate(times):
        records.append(content(index + 1, ms, f"t{index} ", attempt=tries - 1, **own))
        if draw(st.booleans()):
            beat = Heartbeat(stage=Stage.TOOL, elapsed_ms=ms)
            records.append(
                log_event(Kind.HEARTBEAT, after_seq=index + 1, heartbeat=beat, **at(ms + 1, **own))
            )
    seq = len(times) + 1
    if draw(st.booleans()):
        cancel = CancelRequested(reason=draw(st.sampled_from(["user_abort", "client_disconnect"])))
        records.append(
            log_event(Kind.CANCEL_REQUESTED, after_seq=seq - 1, cancel=cancel, **at(last_ms, **own))
        )
    good = draw(st.booleans())
    last = [
        attempt_end(tries - 1, ms=last_ms + 5, outcome=Outcome.OK if good else Outcome.FAILED, **own),
        end(seq, ms=last_ms + 6, **own) if good else failure(seq, ms=last_ms + 6, **own),
    ]
    return records + (last if draw(st.booleans()) else last[::-1])


@st.composite
def interleaved(draw, generations):
    """One partition's log: each generation's records in order, mixed."""
    waiting = [list(records) for records in generations]
    log = []
    while any(waiting):
        source = draw(st.sampled_from([records for records in waiting if records]))
        log.append(source.pop(0))
    return log


@st.composite
def logs(draw):
    """A healthy partition."""
    count = draw(st.integers(1, 3))
    return draw(interleaved([draw(generation(IDS[i])) for i in range(count)]))


@st.composite
def damaged(draw):
    """A partition with copies, records in the wrong order or far too late, and holes; starts may be lost too."""
    log = draw(logs())
    for _ in range(draw(st.integers(0, 4))):
        index = draw(st.integers(0, len(log) - 1))
        damage = draw(st.sampled_from(["copy", "postpone", "swap", "drop"]))
        if damage == "copy":
            log.insert(draw(st.integers(index, len(log))), log[index])
        elif damage == "postpone":
            log.insert(draw(st.integers(index, len(log))), log.pop(index))
        elif damage == "swap" and index:
            log[index - 1], log[index] = log[index], log[index - 1]
        elif damage == "drop" and len(log) > 1:
            del log[index]
    return log


def play(log, turns, ends=(), *, finder=False):
    """Fold a log in turns of (size, acked, commits).

    ``size`` records are folded; ``acked`` of their outputs are acknowledged before the worker dies (None: all, and it
    lives); a living worker commits or not. ``ends``: offsets behind which the partition's end is seen. ``finder``: what
    is still open in the end is ended by the orphan finder.
    """
    sink, committed = Sink(), (0, 0)
    fold = new_fold()
    for size, acked, commits in [*turns, (len(log) + 1, None, True)]:
        outputs = []
        for offset in range(fold.position, min(fold.position + size, len(log))):
            outputs += fold.step(offset, log[offset])
            if offset in ends:
                outputs += fold.at_end()
        if fold.position >= len(log):
            outputs += fold.at_end()
        if acked is not None:
            sink.keep(outputs[:acked])
            fold = new_fold(position=committed[0], emit_from=committed[1])
            continue
        sink.keep(outputs)
        if commits:
            safe = fold.safe()
            assert safe.commit_offset <= safe.emitted_below
            assert safe.emitted_below >= committed[1]
            committed = safe
    if finder:
        for event in [event for generation in list(fold.open) for event in verdict(generation)]:
            sink.keep(fold.step(fold.position, event))
        sink.keep(fold.at_end())
    return sink.rows()


TURNS = st.lists(
    st.tuples(st.integers(1, 9), st.one_of(st.none(), st.integers(0, 3)), st.booleans()), max_size=14
)


@EXAMPLES
@given(st.one_of(logs(), damaged()), TURNS)
def test_a_crash_at_any_step_changes_no_row(log, turns):
    """Dying between fold, acknowledgement and commit, any number of times, gives the rows of one clean pass."""
    assert play(log, turns) == play(log, [])


@EXAMPLES
@given(logs(), TURNS, st.sets(st.integers(0, 60)))
def test_a_healthy_log_does_not_care_where_its_end_was_seen(log, turns, ends):
    """A tail that is read record by record gives the rows of a log that is read in one go."""
    assert play(log, turns, ends) == play(log, [])


@EXAMPLES
@given(damaged(), TURNS, st.sets(st.integers(0, 60)))
def test_in_a_damaged_log_equal_revisions_are_equal_bytes(log, turns, ends):
    """Wherever the end of a damaged log was seen, no identity is missing once the finder came, and no revision has two values.

    But for what the finder alone tells of: an attempt whose start lay before its generation's, which no edge writes, is
    dropped at an end that lies between the two, and without an end of its own nobody knows of it any more.
    """
    found, clean = (
        {identity for identity, (revision, _) in rows.items() if identity[0] != "attempt" or revision}
        for rows in (play(log, turns, ends, finder=True), play(log, [], finder=True))
    )
    assert found == clean


@EXAMPLES
@given(st.data())
def test_copies_and_neighbours_in_the_wrong_order_change_no_row(data):
    """A log with equal copies and swapped numbered neighbours gives the rows of the log as it was written."""
    log = data.draw(logs())
    mangled = list(log)
    for _ in range(data.draw(st.integers(0, 5))):
        index = data.draw(st.integers(1, len(mangled) - 1))
        one, other = mangled[index - 1], mangled[index]
        numbered = one.seq is not None and other.seq is not None
        if data.draw(st.booleans()):
            mangled.insert(data.draw(st.integers(index, len(mangled))), other)
        elif numbered and not other.is_terminal and Kind.MESSAGE_START not in (one.kind, other.kind):
            mangled[index - 1], mangled[index] = other, one
    assert play(mangled, []) == play(log, [])
