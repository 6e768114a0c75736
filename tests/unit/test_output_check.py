"""Whole JSON, the beginning of it, or neither: what is said of tool arguments and JSON-mode content at the end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.dialects.partial_json import begins_json
from edge.dialects.reading import NESTED_MAX
from edge.output_check import CHECKED_CHARS_MAX, OutputCheck, json_wanted
from schemas.events import Canonical, PartType

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def call(text, tool=0, choice=0):
    return Canonical(type=PartType.TOOL_CALL, text=text, tool_index=tool, choice_index=choice)


def said(text, choice=0):
    return Canonical(type=PartType.TEXT, text=text, choice_index=choice)


def word(*parts, wants_json=False, properly=True):
    check = OutputCheck(wants_json=wants_json)
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
    """Very deep beginnings are read without recursion."""
    assert begins_json("[" * 100_000)
    assert not begins_json("[" * 100_000 + "}")


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
        ((), False, "truncated"),
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
