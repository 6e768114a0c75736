"""Whatever a provider of the chat dialect sends, it is captured and nothing breaks: histories by Hypothesis."""

import json

import orjson
from hypothesis import given
from hypothesis import strategies as st

from edge.capture import AttemptCapture
from edge.dialects.reading import FACT_CHARS_MAX, NotJson, load
from edge.dialects.spoken import dialect_of
from edge.sse import SseEvent
from tests.support.events import log_event, proper_end
from tests.support.records import CODEC

CHAT = dialect_of("openai.chat")
TEXT = '{"choices": [{"index": 0, "delta": {"content": "é🌍"}}]}'


def capture(*datas):
    """Everything that a fresh attempt makes of these payloads, and its state."""
    state = CHAT.new_state()
    return [c for data in datas for c in state.capture(SseEvent(None, data, None, None))], state


def delta(finish=None, index=0, **fields):
    """A chunk with one choice."""
    return json.dumps({"id": "c1", "choices": [{"index": index, "delta": fields, "finish_reason": finish}]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["\ud83c", "\udf0d", "stop", "error"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
NAMES = ("content", "role", "tool_calls", "annotations", "refusal", "reasoning", "function_call", "function",
         "arguments", "id", "index", "name", "url_citation", "url")  # fmt: skip
INNER = st.dictionaries(
    st.sampled_from(NAMES), JSON | st.lists(st.dictionaries(st.sampled_from(NAMES), JSON))
)
LOGPROBS = st.dictionaries(st.sampled_from(["content", "refusal"]), JSON)
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "index": JSON,
        "delta": INNER | JSON,
        "finish_reason": JSON,
        "message": JSON,
        "logprobs": LOGPROBS | JSON,
    },
)
CHUNK = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON, "model": JSON, "usage": JSON, "error": JSON, "choices": st.lists(CHOICE, max_size=3) | JSON,
    },
)  # fmt: skip


@given(st.lists(CHUNK, max_size=4))
def test_no_shape_of_a_chunk_is_a_bug(chunks):
    """Whatever JSON a provider sends, it is captured, can be put in the log, and can be assembled."""
    datas = [json.dumps(chunk) for chunk in chunks]
    captured, state = capture(*datas)
    assert len(captured) == len(datas)
    kept = [c for c in captured if c.failure is None]
    for c in kept:
        CODEC.encode(log_event(c.kind, 1, raw=c.raw, canonical=list(c.canonical)))
    events = [log_event(c.kind, seq, raw=c.raw) for seq, c in enumerate(kept, 1)]
    orjson.dumps(CHAT.assemble([*events, proper_end(len(events) + 1)]))
    assert all(len(fact or "") <= FACT_CHARS_MAX for fact in (state.upstream_id, state.served_model))


@given(st.text())
def test_no_text_is_a_bug(text):
    """Whatever text stands where JSON should, one JSON value or NotJson comes of it."""
    try:
        value = load(text)
    except NotJson:
        return
    assert value == orjson.loads(orjson.dumps(value))


@given(
    st.lists(st.sampled_from(["data: x\n\n", f"data: {TEXT}\n\n", "data: [DONE]\n\n"])),
    st.data(),
)
def test_splits_do_not_matter(frames, data):
    """Any split of a provider's bytes is captured alike."""
    whole = "".join(frames).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    once, split = AttemptCapture(CHAT, 1 << 20, 1), AttemptCapture(CHAT, 1 << 20, 1)
    assert [c for piece in pieces for c in split.feed(piece)] == once.feed(whole)
