"""Changed prompts: shortened or asked again for its JSON, only where the key allows it, and the client is told."""

import pytest

from edge.dialects.spoken import dialect_of
from edge.policy.changes import go_on, repair, shrink
from schemas.digest import ContentDigest
from schemas.events import Canonical, Kind, Outcome, PartType
from schemas.settings import ApiKey
from tests.support.running import ends_of, starts_of
from tests.support.upstream import DONE, HANG, Script, chunk, finish
from tests.support.virtual import run_virtually

LONG = [
    {"role": "system", "content": "rules"},
    {"role": "user", "content": "first " * 200},
    {"role": "assistant", "content": "answer " * 200},
    {"role": "user", "content": "second " * 20},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "t1", "function": {"name": "f"}}]},
    {"role": "tool", "tool_call_id": "t1", "content": "result"},
    {"role": "user", "content": "last"},
]
SHRINKS = ApiKey(id="key-1", tenant="acme", sha256="0" * 64, allow={"shrink"})
REPAIRS = ApiKey(id="key-1", tenant="acme", sha256="0" * 64, allow={"repair"})
CAREFUL = {"retry": {"long_context_tokens": 200}, "stream": {"ttft_timeout_s": 20, "stall_timeout_s": 20}}
OK = Script(chunk("ok"), finish(), DONE)
JSON_CALL = {"stream": False, "response_format": {"type": "json_object"}}


def asked(dialect="openai.chat", **body):
    spoken = dialect_of(dialect)
    return spoken, spoken.request_of({"model": "gpt-x", "max_tokens": 10, **body})


def roles(request):
    return [message.get("role") for message in request.body["messages"]]


def test_whole_turns_go_the_oldest_first():
    """System messages and the last turn stay; a tool's answer never loses its call."""
    dialect, request = asked(messages=LONG)
    found = shrink(dialect, request, 200)
    assert roles(found.request) == ["system", "user", "assistant", "tool", "user"]
    assert (found.dropped, found.budget_tokens) == (2, 200)
    assert found.request.prompt_hash != request.prompt_hash
    assert found.request.prompt_bytes < request.prompt_bytes
    assert roles(shrink(dialect, request, 1).request) == ["system", "user"]
    assert shrink(dialect, request, 100_000) is None
    assert shrink(dialect, asked(messages=LONG[-1:])[1], 1) is None


def test_a_tools_result_of_anthropic_is_no_persons_turn():
    """It stands in a user's message there, and goes with the call that it answers."""
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
    messages = [{"role": "user", "content": "q"}, call, result, {"role": "user", "content": "more"}]
    dialect, request = asked("anthropic.messages", messages=messages)
    assert shrink(dialect, request, 1).request.body["messages"] == messages[-1:]
    assert shrink(dialect, asked("anthropic.messages", messages=messages[:3])[1], 1) is None


@pytest.mark.parametrize("dialect", ["openai.chat", "anthropic.messages", "openai.responses"])
@pytest.mark.parametrize("change", [lambda *a: repair(*a, "why"), go_on])
def test_what_was_said_is_shown_to_the_model(dialect, change):
    """In each dialect the answer so far and what is asked of it stand behind the conversation, which stays as it is."""
    given = (
        {"input": "q"} if dialect == "openai.responses" else {"messages": [{"role": "user", "content": "q"}]}
    )
    spoken, request = asked(dialect, **given)
    changed = change(spoken, request, "half an ans")
    said = changed.body.get("messages") or changed.body["input"]
    assert said[0] == {"role": "user", "content": "q"}
    assert said[1] == {"role": "assistant", "content": "half an ans"}
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert change(spoken, request, " ") is None


def test_a_long_prompt_is_shortened():
    """A first-content time-out of a long prompt: the next attempt is sent less, and its record and the client say so."""
    records, edge = run_virtually(Script(HANG), OK, body={"messages": LONG}, caller=SHRINKS, **CAREFUL)
    again = starts_of(records)[1]
    assert (again.reason, again.retry_reason, again.dropped_segments) == ("shrink", "ttft_timeout", 2)
    assert (again.new_token_budget, again.same_prompt_hash) == (200, False)
    assert "context" in again.changed_inputs
    assert len(edge.upstream.calls[1].body["messages"]) == 5
    assert edge.entry.generation.changed_inputs == ("context",)
    assert records[-1].kind is Kind.MESSAGE_END


@pytest.mark.parametrize("caller", [None, REPAIRS])
def test_a_long_prompt_is_not_repeated_as_it_is(caller):
    """Where the key does not allow a shorter one, the time-out is the answer: the same prompt would wait as long."""
    records, edge = run_virtually(Script(HANG), OK, body={"messages": LONG}, caller=caller, **CAREFUL)
    assert len(edge.upstream.calls) == 1
    assert records[-1].error.code == "ttft_timeout"


def hash_of(text):
    digest = ContentDigest()
    digest.update([Canonical(type=PartType.TEXT, text=text)])
    return digest.output_hash()


def test_json_that_does_not_parse_is_asked_for_again():
    """The client is given the second answer alone; the first is on record as what it was."""
    bad, good = Script(chunk('{"a": 1]'), finish(), DONE), Script(chunk('{"a": 1}'), finish(), DONE)
    records, edge = run_virtually(bad, good, body=JSON_CALL, caller=REPAIRS)
    again = starts_of(records)[1]
    assert (again.reason, again.parse_error, again.repair_prompt_version) == ("repair", "malformed", "1")
    assert again.previous_output_hash == hash_of('{"a": 1]')
    assert again.changed_inputs == ["prompt"]
    assert [part.text for event in records for part in event.canonical if part.text] == ['{"a": 1}']
    first, second = sorted(ends_of(records), key=lambda end: end.committed)
    assert (first.outcome, first.committed, second.committed) == (Outcome.OK, False, True)
    assert edge.upstream.calls[1].body["messages"][-2]["content"] == '{"a": 1]'
    assert records[-1].message_end.postprocess_result == "ok"


@pytest.mark.parametrize(
    "second",
    [
        Script(b"{}", status=500, content_type="application/json"),
        Script(chunk("{]"), finish(), DONE),
        Script(HANG),
    ],
    ids=["an error", "no JSON either", "silence"],
)
def test_a_repair_that_fails_makes_nothing_worse(second):
    """There is an answer all the same, and the end says that it is no JSON."""
    bad = Script(chunk("{oops"), finish(), DONE)
    sections = {"retry": {"max_attempts": 2}, "stream": {"ttft_timeout_s": 20, "stall_timeout_s": 20}}
    records, _ = run_virtually(bad, second, body=JSON_CALL, caller=REPAIRS, **sections)
    assert records[-1].message_end.postprocess_result in ("malformed", "truncated")
    shown = "".join(part.text for event in records for part in event.canonical)
    assert shown in ("{oops", "{]")
    assert [end.committed for end in ends_of(records)].count(True) == 1


def test_a_repair_that_the_time_ends():
    """Where the request's time is over meanwhile, the answer that there is is given."""
    bad = Script(chunk("{oops"), finish(), DONE)
    sections = {"stream": {"ttft_timeout_s": 20, "stall_timeout_s": 20}}
    headers = {"x-deadline-ms": "5000"}
    records, _ = run_virtually(bad, Script(HANG), body=JSON_CALL, caller=REPAIRS, headers=headers, **sections)
    assert records[-1].message_end.postprocess_result in ("malformed", "truncated")
    assert [end.outcome for end in ends_of(records)] == [Outcome.FAILED, Outcome.OK]
    assert "".join(part.text for event in records for part in event.canonical) == "{oops"


@pytest.mark.parametrize(
    ("body", "caller", "word"),
    [
        (JSON_CALL, None, "stop"),
        (JSON_CALL | {"stream": True}, REPAIRS, "stop"),
        ({"stream": False}, REPAIRS, "stop"),
        (JSON_CALL, REPAIRS, "length"),
    ],
    ids=["not allowed", "a stream", "no JSON asked for", "cut by the output limit"],
)
def test_what_is_not_repaired(body, caller, word):
    """A key that does not allow it, a client that has seen it, prose, an answer that only needs more room."""
    records, edge = run_virtually(Script(chunk("{oops"), finish(word), DONE), body=body, caller=caller)
    assert len(edge.upstream.calls) == 1
    assert records[-1].kind is Kind.MESSAGE_END


def test_the_answer_before_is_counted_as_its_own():
    """What a repaired attempt cost is estimated by what it said itself, not by what the client was given."""
    bad, good = Script(chunk("{" + "x" * 39), finish(), DONE), Script(chunk("{}"), finish(), DONE)
    records, _ = run_virtually(bad, good, body=JSON_CALL, caller=REPAIRS)
    first, second = sorted(ends_of(records), key=lambda end: end.committed)
    assert first.usage.output == 10
    assert second.usage.output == 1
