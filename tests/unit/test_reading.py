"""The one rule of reading, and that every damaged history looks the same to every reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import Kind
from schemas.reading import Reading, Verdict
from tests.support.events import error_end, log_event, proper_end, text

DELIVER, SKIP, GAP = Verdict.DELIVER, Verdict.SKIP, Verdict.GAP


def verdicts(records, next_seq=0):
    reading = Reading(next_seq)
    return [reading.offer(record) for record in records]


def delivered(records, next_seq=0):
    reading = Reading(next_seq)
    return [record for record in records if reading.offer(record) is DELIVER]


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        pytest.param([text(0), text(1), proper_end(2)], [DELIVER] * 3, id="in order"),
        pytest.param([text(0), text(0), text(1)], [DELIVER, SKIP, DELIVER], id="a copy"),
        pytest.param([text(0), text(2), text(1)], [DELIVER, SKIP, DELIVER], id="ahead, then the wanted one"),
        pytest.param([text(0), proper_end(2)], [DELIVER, GAP], id="a proper end over a hole"),
        pytest.param([text(0), error_end(5)], [DELIVER, DELIVER], id="an error over a hole"),
        pytest.param(
            [text(0), text(1), error_end(1)],
            [DELIVER] * 3,
            id="an error decided while the last one was on its way",
        ),
        pytest.param([text(0), proper_end(1), text(2)], [DELIVER, DELIVER, SKIP], id="behind a proper end"),
        pytest.param([error_end(0), text(1), proper_end(2)], [DELIVER, SKIP, SKIP], id="behind an error"),
        pytest.param([error_end(0), error_end(1)], [DELIVER, SKIP], id="a second error"),
        pytest.param([proper_end(0), error_end(1)], [DELIVER, SKIP], id="an error behind a proper end"),
        pytest.param([proper_end(1), text(0), error_end(2)], [GAP, SKIP, SKIP], id="nothing behind a gap"),
        pytest.param(
            [log_event(Kind.HEARTBEAT, after_seq=0), text(0)], [SKIP, DELIVER], id="a trace record has no seq"
        ),
    ],
)
def test_rule(records, wanted):
    """Each row of the rule gives the verdicts that the specification names."""
    assert verdicts(records) == wanted


def test_cursor_behind_the_end():
    """A reader whose cursor is the proper end meets it as the end: an error written later is not for it."""
    assert verdicts([proper_end(4), error_end(5)], next_seq=5) == [SKIP, SKIP]


def test_position_moves_only_with_what_is_delivered():
    """A skipped record, a copy and a gap leave the wanted seq where it was."""
    reading = Reading(3)
    for record in (text(2), text(4), log_event(Kind.USAGE, after_seq=3), proper_end(9)):
        reading.offer(record)
    assert reading.next_seq == 3
    assert reading.ended


WHOLE = [text(seq, f"t{seq}") for seq in range(8)]


@st.composite
def damaged_history(draw):
    """An ordered history with an end, in which records are copied later and pieces of another writer appear."""
    length = draw(st.integers(0, 8))
    end = draw(st.sampled_from([proper_end(length), error_end(length), error_end(length + 3)]))
    history = [*WHOLE[:length], end]
    for _ in range(draw(st.integers(0, 6))):
        source = draw(st.integers(0, len(history) - 1))
        target = draw(st.integers(source + 1, len(history)))
        history.insert(target, history[source])
    strays = st.sampled_from([text(99), log_event(Kind.HEARTBEAT, after_seq=1), error_end(length + 9)])
    return history + draw(st.lists(strays, max_size=3)), [*WHOLE[:length], end]


@given(damaged_history())
def test_copies_and_late_records_change_nothing(histories):
    """Whatever is repeated or written behind the terminal, a reader is given the plain history."""
    history, plain = histories
    assert delivered(history) == plain


@given(damaged_history(), st.data())
def test_resume_equals_the_rest_of_live(histories, data):
    """A reader that begins at any cursor is given exactly what the live reader got after it."""
    history, plain = histories
    index = data.draw(st.integers(0, len(plain) - 1))
    assert delivered(history, next_seq=plain[index].seq) == plain[index:]


@given(st.lists(st.sampled_from([*WHOLE, proper_end(8), error_end(4), error_end(8)]), max_size=20))
def test_any_log_gives_a_run_and_at_most_one_end(history):
    """From any records in any order a reader is given consecutive seqs, closed by at most one terminal."""
    out = delivered(history)
    body = [record.seq for record in out if not record.is_terminal]
    assert body == list(range(len(body)))
    ends = [record for record in out if record.is_terminal]
    assert ends == out[len(body) :]
    assert len(ends) <= 1
