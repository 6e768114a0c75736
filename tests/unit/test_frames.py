"""A delivered event on the wire: the provider's own bytes with our id, and what has no id."""

import json

import pytest

from edge.generation import Delivered
from edge.reading.frames import NATIVE, Frames
from edge.sse import SseDecoder
from schemas.cursor import parse, verify
from schemas.events import Kind
from schemas.failures import DIALECTS
from tests.support.edge import SECRET, START
from tests.support.events import GENERATION_ID, error_end, log_event, proper_end, text


def frames(dialect="openai.chat", secret=SECRET):
    """Give the frames of one generation in a dialect."""
    return Frames(dialect, GENERATION_ID, "key-1", secret)


def read(data):
    """Give the events that a parser reads."""
    return SseDecoder(1 << 20).feed(data)


def test_a_frame_is_the_providers_own_event_with_our_id():
    """Event name and data are what the provider sent, byte for byte; the id is a cursor that leads back here."""
    raw = '{"choices":[{"delta":{"content":"é"}}],  "unknown": 1}'
    event = log_event(Kind.DELTA, 7, raw=raw, raw_event="chunk")
    (shown,) = read(frames().frame(Delivered(event, 3, 41)))
    assert (shown.event, shown.data) == ("chunk", raw)
    cursor = parse(shown.id)
    assert (cursor.seq, cursor.partition, cursor.offset) == (7, 3, 41)
    assert verify([SECRET], GENERATION_ID, cursor, "key-1")
    assert not verify([SECRET], GENERATION_ID, cursor, "key-2")


def test_only_the_native_dialect_shows_the_start():
    """message_start is ours: a provider's dialect has no event for it."""
    start = log_event(Kind.MESSAGE_START, 0, message_start=START)
    delivered = Delivered(start, 0, 0)
    assert frames().frame(delivered) == b""
    (shown,) = read(frames(NATIVE).frame(delivered))
    assert shown.event == "message_start"
    assert json.loads(shown.data)["model"] == START.model


def test_the_native_dialect_shows_canonical_fields():
    """Kind as the event's name, canonical parts as data, the same id as in every other dialect."""
    delivered = Delivered(text(2, "Hello"), 1, 5)
    (native,) = read(frames(NATIVE).frame(delivered))
    (own,) = read(frames().frame(delivered))
    assert native.event == "delta"
    assert json.loads(native.data)["parts"] == [{"type": "text", "text": "Hello"}]
    assert native.id == own.id


def test_an_error_has_another_name_in_the_native_dialect():
    """A browser's EventSource has an ``error`` of its own."""
    (shown,) = read(frames(NATIVE).frame(Delivered(error_end(3), 0, 9)))
    assert shown.event == "generation_error"
    (end,) = read(frames(NATIVE).frame(Delivered(proper_end(3), 0, 9)))
    assert end.event == "message_end"


def test_ids_are_equal_for_all_readers():
    """The same event rendered twice, by whomever, has the same bytes; it is rendered once a dialect."""
    delivered = Delivered(text(2, "x"), 1, 5)
    assert frames().frame(delivered) is frames().frame(delivered)
    assert frames(NATIVE).frame(delivered) != frames().frame(delivered)
    assert frames(NATIVE).frame(Delivered(text(2, "x"), 1, 5)) == frames(NATIVE).frame(delivered)


@pytest.mark.parametrize("resumed_from", [None, 6])
def test_reconnect_time_and_origin_stand_inside_the_first_event(resumed_from):
    """A lone retry or comment would be an event of its own to some SDKs; inside the first they are not."""
    frame = frames().frame(Delivered(text(7, "x"), 0, 0))
    (shown,) = read(frames().first(frame, resumed_from))
    assert shown.retry_ms == 2000
    assert shown.data == "x"
    assert (b"resumed from 6" in frames().first(frame, resumed_from)) == (resumed_from == 6)


def test_a_heartbeat_has_no_id_and_is_never_content():
    """Native: an event with stage and time; Anthropic: its ping; OpenAI: a bare comment line without a blank line."""
    (native,) = read(frames(NATIVE).heartbeat("prefill", 1500))
    assert (native.event, native.id) == ("heartbeat", None)
    assert json.loads(native.data) == {"stage": "prefill", "elapsed_ms": 1500}
    (ping,) = read(frames("anthropic.messages").heartbeat("prefill", 1500))
    assert (ping.event, ping.id, json.loads(ping.data)) == ("ping", None, {"type": "ping"})
    openai = frames().heartbeat("prefill", 1500)
    assert openai.startswith(b":")
    assert openai.endswith(b"\n")
    assert not openai.endswith(b"\n\n")


@pytest.mark.parametrize("dialect", [*DIALECTS, NATIVE])
def test_an_unnumbered_error_has_no_id(dialect):
    """What is not in the log has no id, so that a client that resumes asks for what the log says instead."""
    (shown,) = read(frames(dialect).unnumbered_error("log_unavailable", "away"))
    assert shown.id is None
    assert "log_unavailable" in shown.data
    assert (shown.event == "generation_error") == (dialect == NATIVE)


def test_a_providers_event_name_can_be_anything_that_a_stream_can_carry():
    """Whatever name a provider's stream held can be written again: no stream breaks by its name."""
    (said,) = read("event: a\0b \u2028\ndata: {}\n\n".encode())
    event = log_event(Kind.FRAME, 1, raw=said.data, raw_event=said.event)
    (shown,) = read(frames().frame(Delivered(event, 0, 0)))
    assert (shown.event, shown.data) == (said.event, said.data)
