"""One attempt's stream: counts, gaps, and what its end leaves behind."""

import pytest

from edge.capture import AttemptCapture
from edge.dialects.spoken import dialect_of
from schemas.events import EndedBy, Kind

CHAT = dialect_of("openai.chat")
THRESHOLD_US = 1_000


def text(fragment):
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":"{fragment}"}}}}]}}\n\n'.encode()


KEEP_ALIVE = b'data: {"choices":[]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'


def capture(frame_bytes=1 << 20):
    return AttemptCapture(CHAT, frame_bytes, THRESHOLD_US)


def note(taken, chunk, at_us, paused_us=0):
    """Capture and count a read; whether its last event was content."""
    return [taken.note(event, at_us, paused_us) for event in taken.feed(chunk)][-1]


@pytest.mark.parametrize(("gap_us", "stalls"), [(THRESHOLD_US, 0), (THRESHOLD_US + 1, 1)])
def test_a_gap_is_a_stall_above_the_threshold(gap_us, stalls):
    """Strictly longer than the threshold, and its whole length counts."""
    taken = capture()
    assert note(taken, text("a"), 50)
    assert note(taken, text("b"), 50 + gap_us)
    assert [gap.length_us for gap in taken.gaps] == [gap_us] * stalls


def test_only_content_closes_a_gap():
    """Chunks without content neither close a gap nor count."""
    taken = capture()
    note(taken, text("abcd"), 0)
    assert not note(taken, KEEP_ALIVE, 5_000)
    note(taken, text("b"), 9_000)
    (gap,) = taken.gaps
    assert (gap.content_index, gap.start_us, gap.length_us, gap.tokens_estimate) == (0, 0, 9_000, 1)
    assert (taken.content_events, taken.text_events) == (2, 2)


def test_own_pauses_are_not_the_providers():
    """What the edge itself did not read is no part of a gap, whichever event carried the pause."""
    taken = capture()
    note(taken, text("a"), 0)
    note(taken, KEEP_ALIVE, 3_000, paused_us=3_000)
    note(taken, text("b"), 5_000, paused_us=1_500)
    assert taken.gaps == []
    note(taken, text("c"), 7_000)
    assert [gap.length_us for gap in taken.gaps] == [2_000]
    note(taken, KEEP_ALIVE, 8_000, paused_us=900)
    taken.close(9_000, EndedBy.WATCHDOG)
    assert [gap.length_us for gap in taken.gaps] == [2_000, 1_100]


def test_last_gap_says_what_ended_it():
    """A gap that no content closed is a row with its own reason and the position it stood at."""
    taken = capture()
    note(taken, text("a"), 0)
    taken.last_content_seq = 7
    taken.close(5_000, EndedBy.CANCEL)
    assert [(gap.ended_by, gap.seq, gap.length_us) for gap in taken.gaps] == [(EndedBy.CANCEL, 7, 5_000)]


def test_no_gap_behind_a_finish():
    """After the finish reason silence is not a stall."""
    taken = capture()
    note(taken, text("a"), 0)
    note(taken, FINISH, 10)
    taken.close(5_000, EndedBy.WATCHDOG)
    assert taken.gaps == []
    assert taken.finish_us == 10


def test_a_frame_above_the_limit():
    """What came before it is kept, then it is a failure, and the end adds nothing."""
    taken = capture(frame_bytes=200)
    found = taken.feed(text("a") + b"data: " + b"x" * 300)
    assert found[0].kind is Kind.DELTA
    assert found[-1].failure[0] == "upstream_frame_too_large"
    assert taken.finish() == []


@pytest.mark.parametrize(
    ("tail", "kinds"),
    [
        (FINISH[:-2], [Kind.FRAME]),
        (b"data: [DONE]", [Kind.MESSAGE_END]),
        (FINISH[:-9], []),
        ('data: {"choices":[{"delta":{"content":"那'.encode()[:-1], []),
    ],
)
def test_the_end_of_the_stream_closes_a_whole_event(tail, kinds):
    """The last event counts without its blank line if its payload is whole; torn JSON and torn characters do not."""
    taken = capture()
    taken.feed(text("a") + tail)
    assert [event.kind for event in taken.finish()] == kinds
