"""OpenAI Chat Completions: what its chunks mean, also where they are not what the protocol says."""

import json

import pytest

from edge.dialects import BadRequest
from edge.dialects.reading import FACT_CHARS_MAX, REPORTS_MAX, keep_report
from edge.dialects.spoken import dialect_of
from edge.sse import SseEvent
from schemas.events import Kind, PartType
from tests.support.events import log_event, proper_end

CHAT = dialect_of("openai.chat")
ASKED = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def capture(*datas, name=None):
    """Everything that a fresh attempt makes of these payloads, and its state."""
    state = CHAT.new_state()
    return [c for data in datas for c in state.capture(SseEvent(name, data, None, None))], state


def delta(finish=None, index=0, **fields):
    """A chunk with one choice."""
    return json.dumps({"id": "c1", "choices": [{"index": index, "delta": fields, "finish_reason": finish}]})


def parts_of(captured):
    return [(part.type, part.text) for event in captured for part in event.canonical]


def assembled(*datas):
    """The finished body of a generation that captured these payloads."""
    captured, _ = capture(*datas)
    events = [
        log_event(c.kind, seq, raw=c.raw, canonical=list(c.canonical)) for seq, c in enumerate(captured, 1)
    ]
    return CHAT.assemble([*events, proper_end(len(events) + 1)])


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"stream": 1}, "stream"),
        ({"stream_options": [1]}, "stream_options"),
        ({"n": 0}, "n"),
        ({"stop": 5}, "stop"),
    ],
)
def test_request_that_cannot_be_served(changed, word):
    """A wrong request is refused with the field's name."""
    with pytest.raises(BadRequest, match=word):
        CHAT.request_of(ASKED | changed)


def test_usage_is_always_asked_for():
    """The upstream is asked to stream with usage, and the client's other options are kept."""
    asked = CHAT.request_of(ASKED | {"stream_options": {"x": 1}, "n": 2})
    assert CHAT.upstream_body(asked, "other") == {
        **ASKED,
        "model": "other",
        "stream": True,
        "stream_options": {"x": 1, "include_usage": True},
        "n": 2,
    }
    assert not CHAT.request_of(ASKED | {"stream": True}).wants_usage


@pytest.mark.parametrize(
    ("fields", "kind", "part"),
    [
        ({"content": "a"}, Kind.DELTA, (PartType.TEXT, "a")),
        ({"reasoning_content": "r"}, Kind.DELTA, (PartType.REASONING, "r")),
        ({"content": None, "reasoning": "r"}, Kind.DELTA, (PartType.REASONING, "r")),
        ({"refusal": "no"}, Kind.DELTA, (PartType.REFUSAL, "no")),
        (
            {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
            Kind.TOOL_CALL_DELTA,
            (PartType.TOOL_CALL, "{"),
        ),
        ({"function_call": {"arguments": "{"}}, Kind.TOOL_CALL_DELTA, (PartType.TOOL_CALL, "{")),
        (
            {"tool_calls": [{"id": "k", "function": {"name": "f", "arguments": {"a": 1}}}]},
            Kind.TOOL_CALL_DELTA,
            (PartType.TOOL_CALL, '{"a":1}'),
        ),
        (
            {"annotations": [{"url_citation": {"url": "u"}}]},
            Kind.CITATION_DELTA,
            (PartType.CITATION, '{"url_citation":{"url":"u"}}'),
        ),
    ],
)
def test_content(fields, kind, part):
    """Each kind of content is understood for what it is."""
    captured, _ = capture(delta(**fields))
    assert [c.kind for c in captured] == [kind]
    assert parts_of(captured) == [part]


@pytest.mark.parametrize("fields", [{}, {"content": ""}, {"role": "assistant"}, {"content": None}])
def test_frames_are_not_content(fields):
    """Empty deltas and roles have no canonical part."""
    captured, state = capture(delta(**fields))
    assert captured[0].kind is Kind.FRAME
    assert parts_of(captured) == []
    assert not state.finished


@pytest.mark.parametrize("data", ["", "  ", ": PROCESSING", '{"type": "ping"}'])
def test_keep_alives_are_no_events(data):
    """A keep-alive in any shape has no kind."""
    captured, _ = capture(data)
    assert [c.kind for c in captured] == [None]


@pytest.mark.parametrize("data", ["x", "{", '{"a": NaN}', "[1]", '"text"', "{} x", "[" * 100_000])
def test_not_the_dialect(data):
    """What is no JSON object is a protocol failure, NaN and endless nesting included."""
    captured, _ = capture(data)
    assert captured[-1].failure[0] == "upstream_protocol"


def test_several_values_are_several_events():
    """Two chunks in one event's data are two events, each with its own bytes."""
    first, second = delta(content="a"), delta(content="b")
    captured, _ = capture(f"{first}\n {second}")
    assert [c.raw for c in captured] == [first, second]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"error": {"message": "m", "code": "server_error"}}, "upstream_error"),
        ({"error": {"type": "rate_limit_error"}}, "rate_limited"),
        ({"error": {"code": 503}}, "overloaded"),
        ({"error": {"message": "out of KV cache blocks"}}, "kv_oom"),
        ({"error": "words"}, "upstream_error"),
        ({"choices": [{"finish_reason": "error"}]}, "upstream_error"),
    ],
)
def test_errors_in_band(payload, code):
    """An error beside or instead of choices is a failure with our code."""
    captured, _ = capture(json.dumps(payload))
    assert captured[0].failure[0] == code


def test_what_is_kept_of_an_error_is_bounded():
    """A hostile error cannot blow up the terminal: each of its words is cut."""
    huge = "x" * 100_000
    captured, _ = capture(json.dumps({"error": {"code": [huge], "type": huge, "message": huge}}))
    said = captured[0].failure[1]
    assert len(said.code) == len(said.type) == FACT_CHARS_MAX
    assert len(said.message) == len(said.raw) == 16_384


def test_finished_means_every_choice_that_spoke():
    """One of two choices with a finish reason is not the end of the other."""
    _, state = capture(delta(content="a"), delta(content="b", index=1), delta("stop"))
    assert not state.finished
    state.capture(SseEvent(None, delta("length", index=1), None, None))
    assert state.finished
    assert [state.finishes[i].finish_reason for i in (0, 1)] == ["stop", "length"]


def test_surrogate_pair_over_two_chunks():
    """A character that JSON escapes cut in two is whole in what was understood, and in the assembled answer."""
    halves = '{"choices":[{"index":0,"delta":{"content":"%s"}}]}'
    datas = [halves % "a\\ud83c", halves % "\\udf0db"]
    captured, _ = capture(*datas)
    assert parts_of(captured) == [(PartType.TEXT, "a"), (PartType.TEXT, "🌍b")]
    assert [c.raw for c in captured] == datas
    assert assembled(*datas)["choices"][0]["message"]["content"] == "a🌍b"


def test_half_a_pair_that_stays_alone():
    """A half without its other half becomes U+FFFD where the log needs Unicode."""
    alone = '{"id":"\\ud83c","choices":[{"index":0,"delta":{"content":"%s"}}]}'
    captured, state = capture(alone % "\\udf0d", alone % "a\\ud83c", alone % "b")
    assert parts_of(captured) == [(PartType.TEXT, "\ufffd"), (PartType.TEXT, "a"), (PartType.TEXT, "\ufffdb")]
    assert state.upstream_id == "\ufffd"


def test_running_totals_keep_one_report():
    """Usage on every chunk does not grow the attempt's record; what contradicts it stays beside it."""
    totals = [{"prompt_tokens": 9, "completion_tokens": n, "d": {"cached_tokens": n}} for n in range(100)]
    reports = []
    for total in totals:
        keep_report(reports, total)
    assert reports == [totals[-1]]
    for other in ({"prompt_tokens": 3}, {"prompt_tokens": "7"}, {"prompt_tokens": -1}, {"prompt_tokens": 8}):
        keep_report(reports, other)
    assert reports[1:] == [
        {"prompt_tokens": 3},
        {"prompt_tokens": "7"},
        {"prompt_tokens": -1},
        {"prompt_tokens": 8},
    ]


def test_reports_are_bounded():
    """Totals that jump up and down are kept, up to a bound."""
    reports = []
    for n in range(1000):
        keep_report(reports, {"prompt_tokens": -n})
    assert len(reports) == REPORTS_MAX


def test_tool_calls_are_assembled_as_they_are_understood():
    """Calls that lack an index or claim the same one stay apart in the body, and fragments find their call."""

    def call(**fields):
        return delta(tool_calls=[fields])

    body = assembled(
        call(index=0, id="k1", function={"name": "f", "arguments": '{"a'}),
        call(index=0, function={"arguments": '":1}'}),
        call(index=0, id="k2", function={"name": "g", "arguments": "{"}),
        call(function={"arguments": "}"}),
        call(id="k3", function={"name": "h", "arguments": {"b": 2}}),
        delta("tool_calls"),
    )
    calls = body["choices"][0]["message"]["tool_calls"]
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls] == [
        ("k1", "f", '{"a":1}'),
        ("k2", "g", "{}"),
        ("k3", "h", '{"b":2}'),
    ]


def test_logprobs_are_joined():
    """The first chunk and the last have none, as the provider sends it: those between are joined all the same."""

    def chunk(logprobs, **fields):
        return json.dumps({"choices": [{"index": 0, "delta": fields, "logprobs": logprobs}]})

    said = [{"content": [{"token": token}], "refusal": None} for token in "ab"]
    (choice,) = assembled(chunk(None, role="assistant"), *(chunk(p, content="x") for p in said), chunk(None))[
        "choices"
    ]
    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}], "refusal": None}


def test_unknown_fields_survive_assembly():
    """A provider's own fields are in the finished body."""
    body = assembled('{"x_own": {"a": 1}, "choices": [{"index": 0, "delta": {"content": "a", "x": "1"}}]}')
    assert body["x_own"] == {"a": 1}
    assert body["choices"][0]["message"]["x"] == "1"


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, b'{"error": {"message": "bad"}}', "bad_request"),
        (429, b"", "rate_limited"),
        (503, b"<html>", "overloaded"),
        (504, b"{}", "upstream_timeout"),
        (500, b'{"error": 1}', "upstream_error"),
        (200, b'{"error": {"message": "bad key"}}', "upstream_error"),
        (200, b"<!doctype html>", "upstream_protocol"),
        (200, b'{"choices": []}', "upstream_protocol"),
    ],
)
def test_answers_that_are_no_stream(status, body, code):
    """Status and body say what failed; a whole answer where a stream was asked for is not the dialect."""
    found, said = CHAT.failure_of_body(status, body)
    assert found == code
    assert said.raw == body.decode()
    assert said.status == (None if status == 200 else status)
