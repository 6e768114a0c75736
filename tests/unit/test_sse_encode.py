"""Our own frames as bytes: exact, not to be forged, and read back by the decoder as they were meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.sse import SseDecoder, comment_block, comment_line, encode_frame


def test_encode_order_and_bytes():
    """A frame is event, id, data, blank line; what it has not is not written."""
    assert encode_frame("delta", "c1", "{}") == b"event: delta\nid: c1\ndata: {}\n\n"
    assert encode_frame(None, None, "[DONE]") == b"data: [DONE]\n\n"
    assert encode_frame(None, "c", "a\nb\r\nc\rd") == b"id: c\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
    first = encode_frame(None, "c", "a", retry_ms=2000, comment="resumed from 3")
    assert first == b": resumed from 3\nretry: 2000\nid: c\ndata: a\n\n"


def test_comment_variants():
    """The OpenAI dialect's heartbeat has no blank line after it; the block has one."""
    assert comment_line("keep-alive") == b": keep-alive\n"
    assert comment_block("x") == b": x\n\n"


@pytest.mark.parametrize("forged", ["a\n", "a\rb", "a\ndata: x"])
def test_encode_refuses_a_line_end_in_a_field(forged):
    """No event name, id or comment can forge a frame."""
    for call in (
        lambda: encode_frame(forged, None, "x"),
        lambda: encode_frame(None, forged, "x"),
        lambda: encode_frame(None, None, "x", comment=forged),
        lambda: comment_line(forged),
    ):
        with pytest.raises(ValueError, match="SSE field"):
            call()


def test_encode_refuses_nul_in_an_id_alone():
    """An id with NUL would be ignored by every reader; an event name with one is legal, and a provider may send it."""
    with pytest.raises(ValueError, match="NUL"):
        encode_frame(None, "\0", "x")
    assert encode_frame("a\0", None, "x") == b"event: a\0\ndata: x\n\n"


NAMES = st.none() | st.text(
    st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1, max_size=8
)
DATA = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(event=NAMES, event_id=NAMES, data=DATA, heartbeat=st.booleans())
def test_round_trip(event, event_id, data, heartbeat):
    """What we write is what a strict parser reads, also with a bare heartbeat in front."""
    wire = (comment_line("hb") if heartbeat else b"") + encode_frame(event, event_id, data)
    read = data.replace("\r\n", "\n").replace("\r", "\n")
    assert SseDecoder(1 << 20).feed(wire) == [(event, read, event_id, None)]
