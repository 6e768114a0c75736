"""Bytes to whole frames."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import chat, cursor, done, native
from tokentrail_client.frames import FrameTooLarge, Splitter, seq_of

STREAM = (
    b": tokentrail\n"
    + chat(1, "Grüße 👋")
    + b": heartbeat\n"
    + b"retry: 2000\n: resumed from 1\n"
    + native(2, "delta", parts=[])
    + b"event: ping\ndata: {}\n\n"
    + b"id: 3-1.2-x\ndata: one\ndata:two\n\n"
    + b": alone\n\n"
    + done(4)
)
SHOWN = [(cursor(1), None), (cursor(2), "delta"), (None, "ping"), ("3-1.2-x", None), (cursor(4), None)]


def split(*chunks):
    splitter = Splitter()
    return [frame for chunk in chunks for frame in splitter.feed(chunk)]


def test_frames_of_a_stream():
    """Ids, names and data are read; comments alone are no frame; the raw bytes are those that came."""
    frames = split(STREAM)
    assert [(f.id, f.event) for f in frames] == SHOWN
    assert frames[3].data == "one\ntwo"
    assert b"".join(f.raw for f in frames) == STREAM.replace(b": alone\n\n", b"")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@given(st.lists(st.integers(0, len(STREAM) + 20), max_size=8))
def test_any_split_gives_the_same_frames(end, cuts):
    """However the bytes are cut into chunks, and whatever ends the lines, the frames are the same."""
    stream = STREAM.replace(b"\n", end)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert [(f.id, f.event, f.data) for f in split(*chunks)] == [
        (f.id, f.event, f.data) for f in split(STREAM)
    ]


@given(st.integers(0, len(STREAM)))
def test_what_a_cut_left_unfinished_is_not_given(at):
    """Of a stream that breaks, exactly the frames that are whole are given."""
    whole = split(STREAM)
    got = split(STREAM[:at])
    assert got == whole[: len(got)]
    assert len(got) == len(whole) or len(b"".join(f.raw for f in whole[: len(got) + 1])) >= at - len(
        b": alone\n\n"
    )


def test_a_mark_at_the_start_is_no_content():
    """A byte-order mark before the first field is dropped."""
    assert split(b"\xef\xbb\xbf", chat(1, "x"))[0].id == cursor(1)


def test_a_frame_without_end_is_refused():
    """A frame, or a line, above the limit raises instead of filling the memory."""
    for piece in (b"data: xxxxxxxx\n", b"xxxxxxxxxxxxxxx"):
        splitter = Splitter(frame_bytes_max=64)
        assert splitter.feed(piece) == []
        with pytest.raises(FrameTooLarge):
            splitter.feed(piece * 10)


@pytest.mark.parametrize(
    ("text", "seq"), [("41-17.88-sig", 41), ("0-1.1-s", 0), ("7", 7), ("", None), (None, None), ("x-1", None)]
)
def test_the_number_of_an_id(text, seq):
    """The number is what an id begins with; an id that begins otherwise has none."""
    assert seq_of(text) == seq
