"""Anthropic Messages: what its events mean, also where they are not what the protocol says."""

import hashlib
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.app import build_app
from edge.dialects import BadRequest
from edge.dialects.anthropic_messages import API_VERSION
from edge.dialects.reading import FACT_CHARS_MAX
from edge.dialects.spoken import dialect_of
from edge.sse import SseEvent
from schemas.events import Kind, PartType
from tests.support.asgi import post
from tests.support.events import log_event, proper_end
from tests.support.records import CODEC
from tests.support.running import OWNER, edge_with
from tests.support.upstream import Script

MESSAGES = dialect_of("anthropic.messages")
ASKED = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
START = {
    "type": "message_start",
    "message": {"id": "m1", "type": "message", "role": "assistant", "model": "beta", "content": [],
                "stop_reason": None, "stop_sequence": None, "x": 1,
                "usage": {"input_tokens": 9, "output_tokens": 1, "service_tier": "standard"}},
}  # fmt: skip


def block(index=0, **fields):
    """A block's beginning."""
    return {"type": "content_block_start", "index": index, "content_block": fields}


def delta(kind, index=0, **fields):
    """A delta of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def ending(reason="end_turn", usage=None, **fields):
    """A message_delta."""
    return {"type": "message_delta", "delta": {"stop_reason": reason, **fields}, "usage": usage or {}}


def capture(*values):
    """Everything that a fresh attempt makes of these events, and its state."""
    state = MESSAGES.new_state()
    out = []
    for value in values:
        data = value if isinstance(value, str) else json.dumps(value)
        name = None if isinstance(value, str) else value.get("type")
        out += state.capture(SseEvent(name, data, None, None))
    return out, state


def parts_of(captured):
    return [(part.type, part.text) for event in captured for part in event.canonical]


def assembled(*values):
    """The finished body of a generation that captured these events."""
    captured, _ = capture(*values)
    events = [
        log_event(c.kind, seq, raw=c.raw, raw_event=c.raw_event)
        for seq, c in enumerate(captured, 1)
        if c.kind
    ]
    return MESSAGES.assemble([*events, proper_end(len(events) + 1)])


@pytest.mark.parametrize(
    ("changed", "word"),
    [({"model": 3}, "model"), ({"messages": "x"}, "messages"), ({"stream": 1}, "stream"),
     ({"stop_sequences": "x"}, "stop_sequences")],
)  # fmt: skip
def test_request_that_cannot_be_served(changed, word):
    """A wrong request is refused with the field's name."""
    with pytest.raises(BadRequest, match=word):
        MESSAGES.request_of(ASKED | changed)


def test_the_provider_is_asked_what_the_client_asked():
    """Every field goes on as it came, streamed; two headers of the client's do, and no other; the key is the provider's."""
    body = ASKED | {"system": "s", "tools": [{"name": "f"}], "x_own": 1}
    asked = MESSAGES.request_of(body, {"anthropic-beta": "b-1,b-2", "cookie": "c", "x-api-key": "ours"})
    assert MESSAGES.upstream_body(asked, "other") == body | {"model": "other", "stream": True}
    assert MESSAGES.upstream_headers(asked, "theirs") == {
        "anthropic-version": API_VERSION,
        "anthropic-beta": "b-1,b-2",
        "x-api-key": "theirs",
    }
    dated = MESSAGES.request_of(ASKED, {"anthropic-version": "2024-01-01"})
    assert MESSAGES.upstream_headers(dated, None) == {"anthropic-version": "2024-01-01"}


@pytest.mark.parametrize(
    ("event", "kind", "part"),
    [
        (delta("text_delta", text="a"), Kind.DELTA, (PartType.TEXT, "a")),
        (delta("thinking_delta", thinking="r"), Kind.DELTA, (PartType.REASONING, "r")),
        (delta("input_json_delta", partial_json="{"), Kind.TOOL_CALL_DELTA, (PartType.TOOL_CALL, "{")),
        (
            delta("citations_delta", citation={"url": "u"}),
            Kind.CITATION_DELTA,
            (PartType.CITATION, '{"url":"u"}'),
        ),
        (block(type="text", text="a"), Kind.DELTA, (PartType.TEXT, "a")),
        (block(type="thinking", thinking="r"), Kind.DELTA, (PartType.REASONING, "r")),
        (
            block(type="tool_use", id="t", name="f", input={"a": 1}),
            Kind.TOOL_CALL_DELTA,
            (PartType.TOOL_CALL, '{"a":1}'),
        ),
    ],
)
def test_content(event, kind, part):
    """Each kind of content is understood for what it is."""
    captured, state = capture(event)
    assert [c.kind for c in captured] == [kind]
    assert parts_of(captured) == [part]
    assert captured[0].canonical[0].is_content
    assert not state.finished


@pytest.mark.parametrize(
    "event",
    [START, block(type="text", text=""), delta("signature_delta", signature="s"), delta("text_delta", text=""),
     {"type": "content_block_stop", "index": 0}, block(type="redacted_thinking", data="d"),
     block(type="web_search_tool_result", content=[{"type": "web_search_result"}])],
)  # fmt: skip
def test_frames_are_not_content(event):
    """Starts, stops, signatures, results of the provider's own tools and empty deltas are frames, and known."""
    captured, state = capture(event)
    assert captured[0].kind is Kind.FRAME
    assert parts_of(captured) == []
    assert state.unknown_count == 0


@pytest.mark.parametrize(
    "event", [{"type": "future_event"}, delta("future_delta", x=1), block(type="future"), {"x": 1}]
)
def test_unknown_types_are_passed_and_counted(event):
    """What this version does not know is a frame, byte for byte, and is counted."""
    captured, state = capture(event)
    assert [(c.kind, json.loads(c.raw)) for c in captured] == [(Kind.FRAME, event)]
    assert state.unknown_count == 1


@pytest.mark.parametrize("event", [{"type": "ping"}, "", ": x", "[DONE]"])
def test_keep_alives_are_no_events(event):
    """A ping, a comment, or the end mark of another protocol has no kind."""
    captured, state = capture(event)
    assert [c.kind for c in captured] == [None]
    assert not state.finished


def test_facts_and_totals():
    """Id, model, tier and usage come from the start; later totals are reports beside it, the end has its reason."""
    captured, state = capture(START, ending("max_tokens", {"output_tokens": 7}), {"type": "message_stop"})
    assert (state.upstream_id, state.served_model, state.service_tier) == ("m1", "beta", "standard")
    assert state.usage_reports == [START["message"]["usage"], {"output_tokens": 7}]
    assert (state.finishes[0].finish_reason, state.finishes[0].raw_finish_reason) == ("length", "max_tokens")
    assert [c.end for c in captured] == [False, False, True]
    assert captured[-1].raw_event == "message_stop"


@pytest.mark.parametrize(
    ("said", "rule"),
    [("END", "END"), (None, None), ("", None), (7, None), ("x" * 9_999, "x" * FACT_CHARS_MAX)],
)
def test_which_stop_rule_it_was(said, rule):
    """The stop sequence that ended a message is named, within the bound of a terminal; a wrong type is none."""
    _, state = capture(START, ending("stop_sequence", stop_sequence=said), {"type": "message_stop"})
    assert state.stop_rule_id == rule
    assert state.finishes[0].finish_reason == "stop"


async def test_the_end_names_the_stop_rule():
    """The terminal says which of the request's stop sequences it was."""
    said = (START, ending("stop_sequence", stop_sequence="END"), {"type": "message_stop"})
    script = Script(*(b"data: %b\n\n" % orjson.dumps(event) for event in said))
    provider = {"dialect": "anthropic.messages", "base_url": "http://127.0.0.1:1"}
    keys = (OWNER.model_copy(update={"sha256": hashlib.sha256(b"key").hexdigest()}),)
    async with edge_with(script, providers={"one": provider, "two": provider}, keys=keys) as edge:
        asked = ASKED | {"stop_sequences": ["END", "FIN"]}
        answer = await post(build_app(edge.service), "/v1/messages", asked, {"x-api-key": "key"}).done()
        end = edge.records()[-1].message_end
    assert answer.status == 200
    assert (end.stop_rule_id, end.raw_finish_reason) == ("END", "stop_sequence")


REFUSALS = {
    400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 422: "invalid_request_error",
    429: "rate_limit_error", 500: "api_error", 529: "overloaded_error",
}  # fmt: skip


@pytest.mark.parametrize("status", REFUSALS)
async def test_a_refusal_behind_a_heartbeat(status):
    """Where a refusal comes too late for its status, its error event still says what kind of a refusal it is."""
    body = b'{"type":"error","error":{"type":"x","message":"no"}}'
    script = Script(body, status=status, content_type="application/json", head=0.3)
    provider = {"dialect": "anthropic.messages", "base_url": "http://127.0.0.1:1"}
    keys = (OWNER.model_copy(update={"sha256": hashlib.sha256(b"key").hexdigest()}),)
    sections = {"stream": {"heartbeat_s": 0.05}, "retry": {"max_attempts": 1}}
    async with edge_with(script, providers={"one": provider, "two": provider}, keys=keys, **sections) as edge:
        asked = ASKED | {"stream": True}
        answer = await post(build_app(edge.service), "/v1/messages", asked, {"x-api-key": "key"}).done()
    assert answer.status == 200
    said = json.loads(answer.body.decode().rpartition("data: ")[2])
    assert (said["error"]["type"], said["error"]["message"]) == (REFUSALS[status], "no")


def test_a_reason_of_null_is_none():
    """A message_delta without a reason ends nothing, and takes no reason away."""
    _, state = capture(ending(None))
    assert not state.finished
    _, state = capture(ending("end_turn"), ending(None))
    assert state.finished


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("overloaded_error", "overloaded"),
        ("rate_limit_error", "rate_limited"),
        ("api_error", "upstream_error"),
    ],
)
def test_errors_in_band(kind, code):
    """An error event is a failure with our code, under the name that the SDK listens to."""
    event = {"type": "error", "error": {"type": kind, "message": "m"}}
    for given_event in (event, json.dumps(event)):
        captured, _ = capture(given_event)
        assert captured[0].failure[0] == code
        assert captured[0].failure[1].message == "m"
        assert captured[0].raw_event == "error"


def test_calls_are_counted_apart_from_blocks():
    """The second call of an answer has index 1, whatever its block's is; a fragment belongs to its block's call."""
    captured, _ = capture(
        block(0, type="text", text="a"),
        block(1, type="tool_use", id="t1", name="f", input={}),
        block(3, type="server_tool_use", id="t2", name="g", input={}),
        delta("input_json_delta", 3, partial_json="{}"),
        delta("input_json_delta", 1, partial_json="[]"),
    )
    calls = [
        (p.tool_index, p.block_index, p.tool_call_id, p.name, p.text)
        for c in captured[1:]
        for p in c.canonical
    ]
    assert calls == [
        (0, 1, "t1", "f", ""),
        (1, 3, "t2", "g", ""),
        (1, 3, None, None, "{}"),
        (0, 1, None, None, "[]"),
    ]


def test_type_in_the_name_alone():
    """Where a gateway left the type out of the JSON, the event's name says it."""
    state = MESSAGES.new_state()
    data = json.dumps({"index": 0, "delta": {"type": "text_delta", "text": "a"}})
    assert parts_of(state.capture(SseEvent("content_block_delta", data, None, None))) == [
        (PartType.TEXT, "a")
    ]


def test_surrogate_pair_over_two_events():
    """A character that JSON escapes cut in two is whole in what was understood, and in the assembled answer."""
    cut = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}'
    datas = [cut % "a\\ud83c", cut % "\\udf0db"]
    captured, _ = capture(*datas)
    assert parts_of(captured) == [(PartType.TEXT, "a"), (PartType.TEXT, "🌍b")]
    assert [c.raw for c in captured] == datas
    assert assembled(START, *datas)["content"] == [{"type": "text", "text": "a🌍b"}]


def test_assembly_is_the_accumulators():
    """Blocks in their order with their deltas, totals overwritten, nulls ignored, unknown fields kept."""
    body = assembled(
        START,
        block(0, type="thinking", thinking="", signature=""),
        delta("thinking_delta", 0, thinking="r1 "),
        delta("thinking_delta", 0, thinking="r2"),
        delta("signature_delta", 0, signature="sig"),
        block(1, type="text", text="", citations=None),
        delta("citations_delta", 1, citation={"n": 1}),
        delta("text_delta", 1, text="a"),
        delta("text_delta", 1, text="b"),
        delta("citations_delta", 1, citation={"n": 2}),
        block(2, type="tool_use", id="t1", name="f", input={}),
        delta("input_json_delta", 2, partial_json=""),
        delta("input_json_delta", 2, partial_json='{"city": '),
        delta("input_json_delta", 2, partial_json='"Zürich"}'),
        block(3, type="tool_use", id="t2", name="g", input={}),
        ending(
            "tool_use", {"output_tokens": 15, "cache_read_input_tokens": None, "y": 2}, stop_sequence=None
        ),
        ending(None, {"output_tokens": 20, "input_tokens": None}) | {"context_management": {"z": 3}},
        {"type": "message_stop"},
    )
    assert body == START["message"] | {
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 9,
            "output_tokens": 20,
            "service_tier": "standard",
            "cache_read_input_tokens": None,
            "y": 2,
        },
        "context_management": {"z": 3},
        "content": [
            {"type": "thinking", "thinking": "r1 r2", "signature": "sig"},
            {"type": "text", "text": "ab", "citations": [{"n": 1}, {"n": 2}]},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Zürich"}},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
        ],
    }


def test_arguments_that_were_cut_off():
    """The arguments of a call that ran into the output limit are what is there of them."""
    body = assembled(
        START,
        block(0, type="tool_use", id="t1", name="f", input={}),
        delta("input_json_delta", 0, partial_json='{"a": [1, 2], "b": "unfini'),
        ending("max_tokens"),
    )
    assert body["content"][0]["input"] == {"a": [1, 2]}


def test_a_message_that_begins_again():
    """What was said before a second start, or of a block that begins again, is not in the message."""
    said = delta("input_json_delta", 1, partial_json='{"a": 1}')
    call = block(1, type="tool_use", id="t1", name="f", input={})
    assert assembled(said, START, ending())["content"] == []
    (found,) = assembled(START, call, said, call, said, ending("tool_use"))["content"]
    assert found["input"] == {"a": 1}


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, b'{"type":"error","error":{"type":"invalid_request_error","message":"bad"}}', "bad_request"),
        (429, b"", "rate_limited"),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"o"}}', "overloaded"),
        (200, b'{"type":"error","error":{"type":"overloaded_error","message":"o"}}', "overloaded"),
        (200, b'{"type":"message"}', "upstream_protocol"),
    ],
)
def test_answers_that_are_no_stream(status, body, code):
    """Status and body say what failed; a whole answer where a stream was asked for is not the dialect."""
    found, said = MESSAGES.failure_of_body(status, body)
    assert (found, said.raw) == (code, body.decode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["\ud83c", "\udf0d", "text_delta", "error"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
TYPES = ("message_start", "message_delta", "content_block_start", "content_block_delta", "text_delta", "text",
         "thinking_delta", "input_json_delta", "citations_delta", "signature_delta", "tool_use", "compaction_delta",
         "fallback", "error")  # fmt: skip
NAMES = ("type", "text", "thinking", "partial_json", "citation", "citations", "signature", "input", "id", "name",
         "stop_reason", "usage", "model", "content", "to", "url", "document_index")  # fmt: skip
INNER = st.dictionaries(
    st.sampled_from(NAMES),
    st.sampled_from(TYPES) | JSON | st.lists(st.dictionaries(st.sampled_from(NAMES), JSON)),
)
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES) | JSON},
    optional={"index": st.integers(0, 3) | JSON, "delta": INNER | JSON, "content_block": INNER | JSON,
              "message": INNER | JSON, "usage": INNER | JSON, "error": JSON},
)  # fmt: skip


@given(st.lists(EVENT, max_size=5))
def test_no_shape_of_an_event_is_a_bug(values):
    """Whatever JSON a provider sends, it is captured, can be put in the log, and can be assembled."""
    captured, state = capture(*[json.dumps(value) for value in values])
    assert len(captured) == len(values)
    kept = [c for c in captured if c.failure is None and c.kind is not None]
    for c in kept:
        CODEC.encode(log_event(c.kind, 1, raw=c.raw, canonical=list(c.canonical)))
    events = [log_event(c.kind, seq, raw=c.raw) for seq, c in enumerate(kept, 1)]
    orjson.dumps(MESSAGES.assemble([*events, proper_end(len(events) + 1)]))
    assert all(len(fact or "") <= FACT_CHARS_MAX for fact in (state.upstream_id, state.served_model))
