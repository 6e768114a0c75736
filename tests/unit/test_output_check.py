"""Whole JSON, the beginning of it, or neither: what is said of tool arguments and JSON-mode content at the end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.attempts.output_check import CHECKED_CHARS_MAX, OutputCheck, json_wanted
from edge.attempts.schema_check import VISITS_AT_ONCE, keeps_to
from edge.dialects.partial_json import begins_json
from edge.dialects.reading import NESTED_MAX
from schemas.events import Canonical, PartType

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def kept(value, schema, visits_max=VISITS_AT_ONCE):
    """Give what the slices come to."""
    slices = keeps_to(value, schema, visits_max)
    while True:
        try:
            next(slices)
        except StopIteration as over:
            return over.value


def call(text, tool=0, choice=0):
    return Canonical(type=PartType.TOOL_CALL, text=text, tool_index=tool, choice_index=choice)


def said(text, choice=0):
    return Canonical(type=PartType.TEXT, text=text, choice_index=choice)


def word(*parts, wants_json=False, properly=True, body=None):
    check = OutputCheck(body or ({"response_format": {"type": "json_object"}} if wants_json else {}))
    for part in parts:
        check.note(part)
    return check.result(ended_properly=properly)


@given(VALUES, st.booleans(), st.data())
def test_every_beginning_of_json_is_one(value, ascii_only, data):
    """Cut anywhere, a JSON text could still be completed; whole, it is its own beginning."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert begins_json(text[: data.draw(st.integers(0, len(text)))])


@given(st.text(alphabet='{}[],:"\\ 01.-eEtrufalsn\n', max_size=12))
def test_what_is_whole_is_a_beginning(text):
    """Whatever a parser accepts is no broken beginning, and neither is any part of it from the left."""
    try:
        json.loads(text, parse_constant=pytest.fail)
    except ValueError:
        return
    assert all(begins_json(text[:end]) for end in range(len(text) + 1))


@pytest.mark.parametrize(
    "text",
    ['{"a" 1', '{"a":1,}', "{} x", "}", "[1 2", '{"a": 01', "tru1", "nulll", "```json\n{", "{a", '"\\x', '"\\u00g',
     "1.e", "--1", '{"a":,', "+1", "[1}", '"a\nb', "Here it is: {}", "1 2", "\ufeff{}"],
)  # fmt: skip
def test_what_no_more_text_could_complete(text):
    """A wrong mark, a second value, a word of prose: not the beginning of any JSON."""
    assert not begins_json(text)


def test_depth_is_no_trap():
    """What is nested too deep to be parsed could be a beginning, and raises nothing."""
    assert begins_json("[" * 100_000)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), "not_applicable"),
        ((said("no JSON was asked for"),), "not_applicable"),
        ((call('{"a":'), call("1}")), "ok"),
        ((call(""),), "ok"),
        ((call('{"a":'),), "truncated"),
        ((call('{"a":}'),), "malformed"),
        ((call("{}", 0), call('{"b', 1)), "truncated"),
        ((call('{"b', 1), call("}{", 0)), "malformed"),
        ((call('{"a":', choice=0), call("1}", choice=1)), "malformed"),
    ],
)
def test_tool_arguments(parts, expected):
    """Each call's fragments are one text, and the worst of them is the word for the answer."""
    assert word(*parts) == expected


@pytest.mark.parametrize(
    ("parts", "properly", "expected"),
    [
        ((said('{"a": '), said("1}")), True, "ok"),
        ((said('{"a": '),), True, "truncated"),
        ((said("Sure: {}"),), True, "malformed"),
        ((), True, "truncated"),
        ((), False, "not_applicable"),
        ((call("{}"),), True, "ok"),
        ((said("{}"), said("{", 1)), True, "truncated"),
        ((Canonical(type=PartType.REFUSAL, text="no"),), True, "not_applicable"),
        ((said(" "),), True, "truncated"),
    ],
)
def test_content_that_was_asked_for_as_json(parts, properly, expected):
    """Every choice must be JSON; a tool call or a refusal may stand instead of it."""
    assert word(*parts, wants_json=True, properly=properly) == expected


def test_a_call_without_arguments_is_whole_only_where_the_answer_is():
    """Cut before the arguments came, the call is cut off, too."""
    assert word(call(""), properly=False) == "truncated"


def test_what_is_too_long_is_not_judged():
    """Beyond the bound nobody looked: null, no word; at the bound there still is one."""
    quoted = '"' + "x" * (CHECKED_CHARS_MAX - 2) + '"'
    assert word(call(quoted)) == "ok"
    assert word(call(quoted), call(" ")) is None


def test_what_could_not_be_written_again_is_malformed_or_cut():
    """A value deeper than we could hand on is not called whole."""
    assert word(call("[" * (NESTED_MAX + 1) + "]" * (NESTED_MAX + 1))) != "ok"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, True),
        ({"response_format": {"type": "text"}}, False),
        ({"text": {"format": {"type": "json_schema"}}}, True),
        ({"output_format": {"type": "json_schema"}}, True),
        ({"output_config": {"format": {"type": "json_schema"}}}, True),
        ({"response_format": "json_object", "text": [], "output_config": 3}, False),
        ({"response_format": {"type": []}}, False),
        ({}, False),
    ],
)
def test_who_asks_for_json(body, wanted):
    """Each dialect's own way to ask for it; anything of another shape asks for nothing."""
    assert json_wanted(body) is wanted


WEATHER = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
CHAT_TOOL = {"tools": [{"type": "function", "function": {"name": "f", "parameters": WEATHER}}]}
CHAT_JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER}}}


@pytest.mark.parametrize(
    "body",
    [
        CHAT_TOOL,
        {"tools": [{"type": "function", "name": "f", "parameters": WEATHER}]},
        {"tools": [{"name": "f", "input_schema": WEATHER}]},
    ],
    ids=["openai.chat", "openai.responses", "anthropic.messages"],
)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"city": "Rome"}', "ok"), ('{"city": 3}', "malformed"), ("{}", "malformed"), ('{"city', "truncated")],
)
def test_arguments_keep_to_their_tools_schema(body, arguments, expected):
    """In each dialect's words for a tool; what was cut off is not judged by a schema."""
    named = Canonical(type=PartType.TOOL_CALL, text="", tool_index=0, name="f")
    assert word(named, call(arguments), body=body) == expected


def test_a_call_of_no_known_tool_is_checked_as_json_only():
    """Whatever the provider made up: without a schema there is nothing that it breaks."""
    named = Canonical(type=PartType.TOOL_CALL, text="", tool_index=0, name="g")
    assert word(named, call("[3]"), body=CHAT_TOOL) == "ok"


@pytest.mark.parametrize("plain", ["custom", "code_interpreter", "shell"])
def test_input_that_is_no_json_is_not_judged(plain):
    """Where a tool takes free text, code or a command, only the named functions' arguments must be JSON."""
    body = {
        "tools": [{"type": plain, "name": "free"}, {"type": "function", "name": "f", "parameters": WEATHER}]
    }
    free = Canonical(type=PartType.TOOL_CALL, text="print(1)", tool_index=0, name="free")
    code = Canonical(type=PartType.TOOL_CALL, text="rm -r x", tool_index=1)
    function = Canonical(type=PartType.TOOL_CALL, text='{"city"', tool_index=2, name="f")
    assert word(free, code, body=body) == "not_applicable"
    assert word(free, code, function, body=body) == "truncated"


@pytest.mark.parametrize(
    "body",
    [
        CHAT_JSON,
        {"text": {"format": {"type": "json_schema", "schema": WEATHER}}},
        {"output_format": {"type": "json_schema", "schema": WEATHER}},
        {"output_config": {"format": {"type": "json_schema", "schema": WEATHER}}},
    ],
)
@pytest.mark.parametrize(
    ("text", "expected"), [('{"city": "Rome"}', "ok"), ("{}", "malformed"), ('"Rome"', "malformed")]
)
def test_content_keeps_to_its_schema(body, text, expected):
    """In each dialect's words for structured output."""
    assert word(said(text), body=body) == expected


@pytest.mark.parametrize(
    ("value", "schema", "keeps"),
    [
        (1, {"type": "integer"}, True), (1.0, {"type": "integer"}, True), (1.5, {"type": "integer"}, False),
        (1, {"type": "number"}, True), (True, {"type": "integer"}, False), (True, {"type": "boolean"}, True),
        (None, {"type": ["string", "null"]}, True), (3, {"type": ["string", "null"]}, False),
        (1, {"const": True}, False), (0, {"enum": [False]}, False), ("b", {"enum": ["a", "b"]}, True),
        ({"a": 1}, {"additionalProperties": False}, False),
        ({"a": 1}, {"additionalProperties": False, "properties": {"a": {}}}, True),
        ({"a": "x"}, {"additionalProperties": {"type": "integer"}}, False),
        ([1, "x"], {"items": {"type": "integer"}}, False), ([], {"items": {"type": "integer"}}, True),
        (3, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, True), (3, {"anyOf": [{"type": "string"}]}, False),
        ({"a": {"b": [{"c": 1}]}}, {"properties": {"a": {"properties": {"b": {"items": {"required": ["d"]}}}}}}, False),
        (3, {"$ref": "#/x"}, True), (3, {"minimum": 9}, True), (3, {"type": "something"}, True), (3, {"type": 7}, True),
        (3, True, True), (3, False, False), (3, "schema", True), (3, None, True), ({}, {"required": [[], 3]}, True),
        (3, {"enum": "abc", "anyOf": [], "items": [], "properties": []}, True),
    ],
)  # fmt: skip
def test_what_is_understood_of_a_schema(value, schema, keeps):
    """Types, words, required and further fields, items, alternatives; what is not understood breaks nothing."""
    assert kept(value, schema) is keeps


def test_a_schema_without_end_ends():
    """Alternatives within alternatives are bounded by visits, not by their product."""
    schema = {"type": "string"}
    for _ in range(12):
        schema = {"anyOf": [schema, schema]}
    assert kept(3, schema) is False
    for _ in range(5_000):
        schema = {"anyOf": [schema, schema]}
    assert kept(3, schema) is True, "what lies deeper than we look breaks nothing"


def doubled(levels):
    """Give a schema of alternatives within alternatives, none of which holds a number."""
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"anyOf": [schema, schema]}
    return schema


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (3, doubled(16)),
        (3, {"enum": ["x"] * VISITS_AT_ONCE}),
        ({}, {"required": [3] * VISITS_AT_ONCE}),
        ([1] * VISITS_AT_ONCE + ["x"], {"items": {"type": "integer"}}),
    ],
    ids=["alternatives", "words", "names", "items"],
)
def test_what_takes_too_long_is_not_called_whole(value, schema):
    """Where the visits do not suffice there is no word, neither for the one nor for the other."""
    assert kept(value, schema) is None


def long_call(last):
    """Give a check of an answer that is a list of 60,000 numbers, and one more thing."""
    schema = {"type": "object", "properties": {"l": {"items": {"type": "integer"}}}}
    body = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    check = OutputCheck(body)
    check.note(said(json.dumps({"l": [1] * 60_000 + [last]})))
    return check


@pytest.mark.parametrize(("last", "expected"), [(2, "ok"), ("x", "malformed")])
def test_a_long_answer_is_judged_to_its_end_in_slices(last, expected):
    """Slice by slice there is a word for all of it, where at once there would be none; who gives up has none, either."""
    check = long_call(last)
    assert check.result(ended_properly=True) is None
    assert sum(1 for _ in check.judge()) > 50
    assert check.result(ended_properly=True) == expected
    check.give_up()
    assert check.result(ended_properly=True) is None


def test_many_short_texts_are_slices_too():
    """A thousand calls are not judged in one go."""
    check = OutputCheck()
    for tool in range(1_000):
        check.note(call("{}", tool))
    assert sum(1 for _ in check.judge()) > 1
    assert check.result(ended_properly=True) == "ok"


@given(VALUES, VALUES)
def test_no_schema_raises(value, schema):
    """Whatever a client calls a schema: there is an answer."""
    assert kept(value, schema) in (True, False)
    assert OutputCheck({"tools": schema, "response_format": schema}).result(ended_properly=True)
