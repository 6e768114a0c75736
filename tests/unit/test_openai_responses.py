"""OpenAI Responses: what its events mean, also where they are not what the protocol says."""

import json

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.dialects import BadRequest
from edge.dialects.reading import FACT_CHARS_MAX
from edge.dialects.spoken import dialect_of
from edge.sse import SseEvent
from schemas.events import Kind, MessageEnd, PartType
from tests.support.events import error_end, log_event, proper_end
from tests.support.records import CODEC

RESPONSES = dialect_of("openai.responses")
ASKED = {"model": "m", "input": "x"}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "in_progress",
    "model": "gpt-x",
    "output": [],
    "x": 1,
}
CREATED = {"type": "response.created", "sequence_number": 0, "response": RESPONSE}
USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": ""}


def ended(status="completed", **fields):
    """The end mark of a response."""
    response = RESPONSE | {"status": status, "usage": USAGE, "service_tier": "flex"} | fields
    return {"type": f"response.{status}", "sequence_number": 9, "response": response}


def delta(kind, fragment="a", index=0, **fields):
    """A delta of an item."""
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": fragment, **fields}


def added(item, index=0):
    """An item's beginning."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def capture(*values):
    """Everything that a fresh attempt makes of these events, and its state."""
    state = RESPONSES.new_state()
    out = []
    for value in values:
        data = value if isinstance(value, str) else json.dumps(value)
        name = None if isinstance(value, str) else value.get("type")
        out += state.capture(SseEvent(name, data, None, None))
    return out, state


def parts_of(captured):
    return [(part.type, part.text) for event in captured for part in event.canonical]


def logged(*values):
    """These events as a generation's log holds them."""
    captured, _ = capture(*values)
    return [
        log_event(c.kind, seq, raw=c.raw, raw_event=c.raw_event)
        for seq, c in enumerate(captured, 1)
        if c.kind
    ]


@pytest.mark.parametrize(
    ("changed", "word"),
    [({"model": None}, "model"), ({"stream": "x"}, "stream"), ({"background": 1}, "background")],
)
def test_request_that_cannot_be_served(changed, word):
    """A wrong request is refused with the field's name."""
    with pytest.raises(BadRequest, match=word):
        RESPONSES.request_of(ASKED | changed)


def test_the_provider_is_asked_in_the_foreground():
    """Every field goes on as it came, streamed, but for the background, which is ours."""
    asked = RESPONSES.request_of(
        ASKED | {"background": True, "store": False, "x_own": 1}, {"openai-beta": "b", "x": "y"}
    )
    assert asked.background
    assert RESPONSES.upstream_body(asked, "other") == {
        "model": "other", "input": "x", "stream": True, "store": False, "x_own": 1,
    }  # fmt: skip
    assert RESPONSES.upstream_headers(asked, "key") == {"openai-beta": "b", "authorization": "Bearer key"}
    assert not RESPONSES.request_of(ASKED).background


@pytest.mark.parametrize(
    ("event", "kind", "part"),
    [
        (delta("output_text"), Kind.DELTA, (PartType.TEXT, "a")),
        (delta("refusal"), Kind.DELTA, (PartType.REFUSAL, "a")),
        (delta("reasoning_text"), Kind.DELTA, (PartType.REASONING, "a")),
        (delta("reasoning_summary_text"), Kind.DELTA, (PartType.REASONING, "a")),
        (delta("function_call_arguments"), Kind.TOOL_CALL_DELTA, (PartType.TOOL_CALL, "a")),
        (delta("custom_tool_call_input"), Kind.TOOL_CALL_DELTA, (PartType.TOOL_CALL, "a")),
        (
            {"type": "response.output_text.annotation.added", "annotation": {"url": "u"}},
            Kind.CITATION_DELTA,
            (PartType.CITATION, '{"url":"u"}'),
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
    [CREATED, {"type": "response.queued", "response": {}}, added({"type": "message"}), delta("output_text", ""),
     {"type": "response.output_text.done", "text": "a"}, {"type": "response.web_search_call.searching"},
     {"type": "response.mcp_call.failed"}, delta("audio")],
)  # fmt: skip
def test_frames_are_not_content(event):
    """Lifecycle, what is done, the progress of the provider's own tools and empty deltas are frames, and known."""
    captured, state = capture(event)
    assert captured[0].kind is Kind.FRAME
    assert parts_of(captured) == []
    assert state.unknown_count == 0


@pytest.mark.parametrize("event", [{"type": "response.future"}, delta("future"), {"x": 1}])
def test_unknown_types_are_passed_and_counted(event):
    """What this version does not know is a frame, byte for byte, and is counted."""
    captured, state = capture(event)
    assert [(c.kind, json.loads(c.raw)) for c in captured] == [(Kind.FRAME, event)]
    assert state.unknown_count == 1


@pytest.mark.parametrize("event", [{"type": "keepalive", "sequence_number": 3}, "", ": x", "[DONE]"])
def test_keep_alives_are_no_events(event):
    """A keep-alive, a comment, or the end mark of another protocol has no kind."""
    captured, _ = capture(event)
    assert [c.kind for c in captured] == [None]


@pytest.mark.parametrize(
    ("end", "reason", "word"),
    [
        (ended(), "stop", "completed"),
        (ended(output=[{"type": "message"}, CALL]), "tool_call", "completed"),
        (
            ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
            "max_output_tokens",
        ),
        (
            ended("incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
            "content_filter",
        ),
        (ended("incomplete", incomplete_details={"reason": "new"}, output=[CALL]), "other", "new"),
    ],
)
def test_the_end_mark(end, reason, word):
    """Completed and incomplete end it, with the reason, the totals and the tier that they carry."""
    captured, state = capture(CREATED, end)
    assert [c.end for c in captured] == [False, True]
    assert captured[-1].raw_event == end["type"]
    assert (state.finishes[0].finish_reason, state.finishes[0].raw_finish_reason) == (reason, word)
    assert state.usage_reports == [USAGE]
    assert (state.upstream_id, state.served_model, state.service_tier) == ("resp_1", "gpt-x", "flex")


@pytest.mark.parametrize(
    ("event", "code", "message", "name"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None},
            "rate_limited",
            "m",
            "error",
        ),
        (
            {"type": "error", "error": {"type": "server_error", "message": "m"}},
            "upstream_error",
            "m",
            "error",
        ),
        (
            ended("failed", error={"code": "server_error", "message": "m"}),
            "upstream_error",
            "m",
            "response.failed",
        ),
        (ended("failed", error=None), "upstream_error", None, "response.failed"),
    ],
)
def test_errors_in_band(event, code, message, name):
    """An error event, nested or flat, and a failed response are failures with our code and the provider's words."""
    for given_event in (event, json.dumps(event)):
        captured, state = capture(given_event)
        assert captured[0].failure[0] == code
        assert captured[0].failure[1].message == message
        assert captured[0].raw_event == name
    assert state.usage_reports == ([USAGE] if name == "response.failed" else [])


def test_calls_are_counted_apart_from_items():
    """The second call of an answer has index 1, whatever its item's is; its id and its name come with its beginning."""
    captured, _ = capture(
        added({"type": "message"}),
        added(CALL, 1),
        added(CALL | {"call_id": "call_2", "name": "g"}, 3),
        delta("function_call_arguments", "{}", 3),
        delta("function_call_arguments", "[]", 1),
    )
    calls = [
        (p.tool_index, p.block_index, p.tool_call_id, p.name, p.text) for c in captured for p in c.canonical
    ]
    assert calls == [
        (0, 1, "call_1", "f", ""), (1, 3, "call_2", "g", ""), (1, 3, None, None, "{}"), (0, 1, None, None, "[]"),
    ]  # fmt: skip


def test_surrogate_pair_over_two_events():
    """A character that JSON escapes cut in two is whole in what was understood."""
    cut = '{"type":"response.output_text.delta","output_index":0,"delta":"%s"}'
    captured, _ = capture(cut % "a\\ud83c", cut % "\\udf0db")
    assert parts_of(captured) == [(PartType.TEXT, "a"), (PartType.TEXT, "🌍b")]


def test_the_finished_answer_is_the_end_marks():
    """The response of the end mark is the answer, whole and unchanged."""
    end = ended(output=[{"type": "message", "content": [{"type": "output_text", "text": "ab"}]}])
    events = logged(CREATED, delta("output_text"), end)
    assert RESPONSES.assemble(events) == end["response"]


def test_an_answer_that_is_not_finished():
    """Until its end an answer is what was said of it last, with the items that are done."""
    item = {"type": "message", "content": []}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    assert RESPONSES.assemble([]) == {}
    assert RESPONSES.assemble(logged(CREATED)) == RESPONSE
    assert RESPONSES.assemble(logged(CREATED, done)) == RESPONSE | {"output": [item]}


def test_an_answer_that_ended_otherwise():
    """What the provider did not end itself is failed with our code, or cancelled; its own failure stands."""
    events = logged(CREATED)
    lost = RESPONSES.assemble([*events, error_end(2, raw='{"type":"error"}')])
    assert (lost["status"], lost["error"]) == ("failed", {"code": "edge_lost", "message": "x"})
    cancelled = log_event(
        Kind.MESSAGE_END, 2, raw='{"type":"error"}', message_end=MessageEnd(finish_reason="cancelled")
    )
    assert RESPONSES.assemble([*events, cancelled]) == RESPONSE | {"status": "cancelled"}
    failed = ended("failed", error={"code": "server_error", "message": "m"})
    assert RESPONSES.assemble([*events, error_end(2, raw=json.dumps(failed))]) == failed["response"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["\ud83c", "\udf0d", "function_call", "completed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
TYPES = [f"response.{name}" for name in ("created", "completed", "failed", "output_text.delta", "output_item.added",
         "output_item.done", "function_call_arguments.delta", "output_text.annotation.added")]  # fmt: skip
NAMES = ("id", "model", "status", "output", "usage", "error", "incomplete_details", "reason", "type", "arguments",
         "call_id", "name", "service_tier", "url")  # fmt: skip
INNER = st.dictionaries(
    st.sampled_from(NAMES), JSON | st.lists(st.dictionaries(st.sampled_from(NAMES), JSON))
)
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES) | JSON},
    optional={"output_index": st.integers(0, 3) | JSON, "delta": JSON, "item": INNER | JSON, "annotation": INNER | JSON,
              "response": INNER | JSON, "error": JSON, "sequence_number": JSON},
)  # fmt: skip


@given(st.lists(EVENT, max_size=5))
@example([{"type": "response.completed", "response": {"output": [{"type": []}]}}])
def test_no_shape_of_an_event_is_a_bug(values):
    """Whatever JSON a provider sends, it is captured, numbered, can be put in the log, and can be assembled."""
    captured, state = capture(*[json.dumps(value) for value in values])
    assert len(captured) == len(values)
    kept = [c for c in captured if c.failure is None and c.kind is not None]
    events = []
    for seq, c in enumerate(kept, 1):
        event = log_event(c.kind, seq, raw=RESPONSES.at_seq(c.raw, seq), canonical=list(c.canonical))
        CODEC.encode(event)
        events.append(event)
    orjson.dumps(RESPONSES.assemble([*events, proper_end(len(events) + 1)]))
    assert all(len(fact or "") <= FACT_CHARS_MAX for fact in (state.upstream_id, state.served_model))
