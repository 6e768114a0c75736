"""The SSE decoder against the WHATWG grammar and against every way to cut the same bytes."""

import itertools

import httpx_sse
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.sse import FrameTooLarge, SseDecoder, SseEvent

LIMIT_BYTES = 1 << 20
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}'

# What a strict WHATWG parser gives: bytes → (event, data, id, retry_ms) of each event that a blank line closed.
STRICT = {
    "no space after the colon": (b"data:a\n\n", [(None, "a", None, None)]),
    "one leading space is removed": (b"data: a\n\n", [(None, "a", None, None)]),
    "of two leading spaces one stays": (b"data:  a\n\n", [(None, " a", None, None)]),
    "a tab is not a space": (b"data:\ta\n\n", [(None, "\ta", None, None)]),
    "lines are joined with LF": (b"data: a\ndata:\ndata: b\n\n", [(None, "a\n\nb", None, None)]),
    "data without colon is an empty line": (
        b"data\n\ndata\ndata\n\n",
        [(None, "", None, None), (None, "\n", None, None)],
    ),
    "a colon in the value": (b"data: a: b\n\n", [(None, "a: b", None, None)]),
    "a comment as data is data": (b"data: : keepalive\n\n", [(None, ": keepalive", None, None)]),
    "event field": (b"event: ping\ndata: {}\n\n", [("ping", "{}", None, None)]),
    "an empty event field is none": (b"event:\ndata: a\n\n", [(None, "a", None, None)]),
    "event alone gives nothing": (b"event: ping\n\ndata: a\n\n", [(None, "a", None, None)]),
    "id and retry": (b"id: 7\nretry: 250\ndata: a\n\n", [(None, "a", "7", 250)]),
    "an id with NUL is ignored": (b"id: 7\0\ndata: a\n\n", [(None, "a", None, None)]),
    "an empty id is an id": (b"id\ndata: a\n\n", [(None, "a", "", None)]),
    "retry takes digits only": (
        "retry: -1\nretry: 1.5\nretry: ²\nretry:\ndata: a\n\n".encode(),
        [(None, "a", None, None)],
    ),
    "an absurd retry is ignored": (b"retry: " + b"9" * 5000 + b"\ndata: a\n\n", [(None, "a", None, None)]),
    "retry alone gives nothing": (b"retry: 5000\n\n", []),
    "unknown fields are ignored": (b"foo: 1\nDATA: 2\n data: 3\ndata : 4\n\n", []),
    "comments give nothing": (b": a\n\n:\n\n:\n: b\ndata: a\n\n", [(None, "a", None, None)]),
    "CR": (b"data: a\rdata: b\r\rdata: c\r\r", [(None, "a\nb", None, None), (None, "c", None, None)]),
    "CRLF": (
        b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n",
        [(None, "a\nb", None, None), (None, "c", None, None)],
    ),
    "all line ends mixed": (
        b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n",
        [(None, c, None, None) for c in "abc"],
    ),
    "CR CR LF closes one event": (
        b"data: a\r\r\ndata: b\n\n",
        [(None, "a", None, None), (None, "b", None, None)],
    ),
    "many blank lines": (
        b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n",
        [(None, "a", None, None), (None, "b", None, None)],
    ),
    "byte-order mark": (b"\xef\xbb\xbfdata: a\n\n", [(None, "a", None, None)]),
    "only one byte-order mark": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    "a byte-order mark in content stays": ("data: \ufeffa\n\n".encode(), [(None, "\ufeffa", None, None)]),
    "half a byte-order mark is content": (b"\xef\xbbdata: a\n\ndata: b\n\n", [(None, "b", None, None)]),
    "characters of two, three, four bytes": ("data: ä那🌍\n\n".encode(), [(None, "ä那🌍", None, None)]),
    "broken UTF-8 is replaced": (
        b"data: a\xff\xf0\x9f\ndata: b\n\n",
        [(None, "a\ufffd\ufffd\nb", None, None)],
    ),
    "a frame between fast frames": (
        CHUNK + b"\n\nevent: e\ndata: 1\ndata: 2\n\n\n" + CHUNK + b"\n\n",
        [
            (None, CHUNK[6:].decode(), None, None),
            ("e", "1\n2", None, None),
            (None, CHUNK[6:].decode(), None, None),
        ],
    ),
    "nothing is dispatched at the end": (b"data: a\n", []),
}


def decode(chunks, limit_bytes=LIMIT_BYTES, *, finish=False):
    """All events of these chunks, and whether the stream was refused."""
    decoder, events = SseDecoder(limit_bytes), []
    try:
        for chunk in chunks:
            events += decoder.feed(chunk)
        if finish:
            events += decoder.finish()
    except FrameTooLarge as refused:
        return [*events, *refused.events], True, decoder
    return events, False, decoder


def cut(stream, places):
    edges = [0, *sorted(p % (len(stream) + 1) for p in places), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


def one_by_one(stream):
    return [stream[i : i + 1] for i in range(len(stream))]


@pytest.mark.parametrize(
    "framing", [lambda stream: [stream], one_by_one, lambda stream: [b"", *cut(stream, [5, 9]), b""]]
)
@pytest.mark.parametrize("name", STRICT)
def test_grammar(name, framing):
    """Each rule of the grammar gives the events of a strict parser, in every framing."""
    stream, expected = STRICT[name]
    assert decode(framing(stream))[0] == expected


@pytest.mark.parametrize("name", [name for name in STRICT if "byte-order mark" not in name])
def test_grammar_after_a_first_frame(name):
    """The rules hold in the middle of a stream as well, where the fast path is armed."""
    stream, expected = STRICT[name]
    decoder = SseDecoder(LIMIT_BYTES)
    assert decoder.feed(b"data: first\n\n") == [(None, "first", None, None)]
    assert decoder.feed(stream) == expected


LINES = st.sampled_from(
    [
        *b"data: x|data:y|data|event: e|id: 7|id: \x00|retry: 9|: c|foo: 1".split(b"|"),
        *b"|||\xef\xbb\xbf|data: \xff\xe9".split(b"|"),
        "data: 那🌍".encode(),
        b"data: " + b"z" * 60,
        CHUNK,
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r\n"])
STREAMS = st.one_of(
    st.binary(max_size=80),
    st.lists(st.tuples(LINES, ENDS), max_size=12).map(
        lambda parts: b"".join(line + end for line, end in parts)
    ),
    st.lists(
        st.sampled_from([b"d", b"data: ", b"\r", b"\n", b":", b"\xef", b"\xbb", b"\xbf"]), max_size=30
    ).map(b"".join),
)


@given(
    stream=STREAMS,
    places=st.lists(st.integers(0, 2000), max_size=8),
    limit_bytes=st.sampled_from([20, 64, LIMIT_BYTES]),
)
@example(stream=b"data: " + b"x" * 14 + b"\n\ndata: " + b"x" * 15 + b"\n\n", places=[21], limit_bytes=20)
def test_any_split_gives_the_same(stream, places, limit_bytes):
    """However the bytes are cut, the events, the refusal, the counters and what finish gives are the same."""
    expected, refused, whole = decode([stream], limit_bytes, finish=True)
    for chunks in (cut(stream, places), one_by_one(stream)):
        events, refused_too, decoder = decode(chunks, limit_bytes, finish=True)
        assert (events, refused_too) == (expected, refused)
        assert (decoder.comments, decoder.torn, decoder.last_event_id) == (
            whole.comments,
            whole.torn,
            whole.last_event_id,
        )


@given(stream=STREAMS)
def test_agrees_with_a_peer(stream):
    """On valid UTF-8 without a byte-order mark a decoder that we did not write gets the same data from the same lines."""
    text = stream.decode("utf-8", "ignore").replace("\ufeff", "").replace("\x00", "")
    peer, expected = httpx_sse._decoders.SSEDecoder(), []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]:
        event = peer.decode(line)
        if event is not None and event.data:
            expected.append((event.event, event.data))
    events = decode([text.encode()])[0]
    assert [(e.event or "message", e.data) for e in events if e.data] == expected


@given(chunks=st.lists(st.binary(max_size=40), max_size=10), limit_bytes=st.integers(1, 50))
def test_memory_is_bounded(chunks, limit_bytes):
    """After every chunk the decoder holds no more than one frame's limit, whatever came."""
    decoder = SseDecoder(limit_bytes)
    for chunk in chunks:
        try:
            decoder.feed(chunk)
        except FrameTooLarge:
            assert not decoder._line
            assert not decoder._data
            break
        assert len(decoder._line) + sum(map(len, decoder._data)) <= limit_bytes


def test_frame_too_large_keeps_what_came_before():
    """The refusal carries the events before the frame, and every later feed is refused without any."""
    decoder = SseDecoder(10)
    with pytest.raises(FrameTooLarge) as refused:
        decoder.feed(b"data: a\n\ndata: 12345\n\n")
    assert refused.value.events == (SseEvent(None, "a", None, None),)
    assert refused.value.limit_bytes == 10
    with pytest.raises(FrameTooLarge) as again:
        decoder.feed(b"data: b\n\n")
    assert again.value.events == ()
    assert decoder.finish() == []


def test_frame_too_large_counts_all_lines_of_a_frame():
    """Many small lines are as large as one long one; the line that passes the limit is refused before its end is seen."""
    decoder = SseDecoder(20)
    assert decoder.feed(b"data: 12\ndata: 34\nda") == []
    with pytest.raises(FrameTooLarge):
        decoder.feed(b"tax")


def test_long_line_is_read_in_linear_time():
    """A line of some megabytes in reads of 64 KiB comes out whole."""
    line = b"data: " + b"x" * 3_000_000
    events, refused, _ = decode(
        [line[i : i + 65536] for i in range(0, len(line), 65536)] + [b"\n", b"\n"], 4_194_304
    )
    assert not refused
    assert [len(e.data) for e in events] == [3_000_000]


def test_endless_comments_are_no_frame():
    """A provider may send bare comment lines for hours without a blank line: the limit is not for their sum."""
    decoder = SseDecoder(100)
    for _ in range(500):
        assert decoder.feed(b": still here\n") == []
    assert decoder.comments == 500
    assert decoder.feed(b"data: a\n\n") == [(None, "a", None, None)]


def test_last_event_id_lasts():
    """The id of a frame stays valid until another comes, also from a frame without data; an empty one clears it."""
    decoder = SseDecoder(LIMIT_BYTES)
    decoder.feed(b"id: 7\ndata: a\n\ndata: b\n\n")
    assert decoder.last_event_id == "7"
    decoder.feed(b"id: 8\n\n")
    assert decoder.last_event_id == "8"
    decoder.feed(b"id: 9\n")
    assert decoder.last_event_id == "8"
    decoder.feed(b"\nid\n\n")
    assert decoder.last_event_id == ""


@pytest.mark.parametrize(
    ("stream", "expected", "torn"),
    [
        (b"data: [DONE]", ["[DONE]"], False),
        (b"data: [DONE]\n", ["[DONE]"], False),
        (b"data: [DONE]\r", ["[DONE]"], False),
        (b"data: a\n\ndata: {\ndata: }", ["a", "{\n}"], False),
        (b"data: a\n\n", ["a"], False),
        (b"data", [""], False),
        (b"dat", [], False),
        (b"data: a\nevent: err", ["a"], False),
        (b"event: ping\n", [], False),
        (b": comm", [], False),
        (b'data: {"a":"\xf0\x9f', ['{"a":"'], True),
        (b"data: a\xff", ["a\ufffd"], False),
        (b"\xef\xbb", [], True),
        (b"", [], False),
    ],
)
def test_finish_is_lenient(stream, expected, torn):
    """At the end the open event is given; half a character is dropped and said."""
    events, _, decoder = decode([stream], finish=True)
    assert [e.data for e in events] == expected
    assert decoder.torn is torn
    assert decoder.finish() == []


def test_finish_keeps_the_event_name_of_whole_lines():
    """A name whose line ended counts, one that was cut off does not."""
    assert decode([b"event: error\ndata: {}"], finish=True)[0] == [("error", "{}", None, None)]
    assert decode([b"data: {}\nevent: error"], finish=True)[0] == [(None, "{}", None, None)]
