"""JSON that was cut off: what it says so far is what the SDKs' own parser says of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jiter import from_json

from edge.dialects.partial_json import load_partial
from edge.dialects.reading import NESTED_MAX, NotJson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.sampled_from([0.5, -1e10, 2.5e-7])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES, st.booleans(), st.data())
def test_a_beginning_says_what_the_sdk_reads(value, ascii_only, data):
    """Cut anywhere, a text gives the value that the SDK's accumulator shows, or nothing where that raises."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    text = text[: data.draw(st.integers(0, len(text)))]
    try:
        expected = from_json(text.encode(), partial_mode=True)
    except ValueError:
        with pytest.raises(NotJson):
            load_partial(text)
        return
    assert load_partial(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 01', {}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a" 1}', {}),
        ('{"a": [1}', {"a": [1]}),
        ('{"a": 1}x', {"a": 1}),
        ('{"a": "x\x01"}', {}),
    ],
)
def test_what_is_wrong_ends_it(text, value):
    """What cannot be JSON is where it ends; what stood before it counts."""
    assert load_partial(text) == value


@pytest.mark.parametrize("text", ["", "x", '"ab', "]", "}", ","])
def test_nothing_to_say(text):
    """A text without the beginning of a container or a whole value says nothing."""
    with pytest.raises(NotJson):
        load_partial(text)


def test_nesting_is_bounded():
    """A text that opens without end is read to the deepest level that is taken."""
    value = load_partial("[" * 1_000_000)
    for _ in range(NESTED_MAX - 1):
        (value,) = value
    assert value == []
