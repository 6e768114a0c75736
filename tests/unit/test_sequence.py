"""``sequence_number`` becomes our seq: its own characters change, and nothing else."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.dialects.sequence import at_seq


@pytest.mark.parametrize(
    ("raw", "numbered"),
    [
        ('{"type":"x","sequence_number":4,"a":1}', '{"type":"x","sequence_number":77,"a":1}'),
        ('{"a": {"sequence_number": 1}, "sequence_number" : 4 }', '{"a": {"sequence_number": 1}, "sequence_number" : 77 }'),
        ('{"sequence_number":null}', '{"sequence_number":77}'),
        ('{"sequence_number":-1.5e3,"b":[]}', '{"sequence_number":77,"b":[]}'),
        ('{"a":"\\"sequence_number\\":5","sequence_number":6}', '{"a":"\\"sequence_number\\":5","sequence_number":77}'),
        ('{"a":{"sequence_number":5}}', '{"a":{"sequence_number":5},"sequence_number":77}'),
        ('{"a":[{"sequence_number":5}] , "b":1 }\n', '{"a":[{"sequence_number":5}] , "b":1,"sequence_number":77}'),
        ("{}", '{"sequence_number":77}'),
        (' {"\\u0073equence_number":5}', ' {"\\u0073equence_number":77}'),
    ],
)  # fmt: skip
def test_the_objects_own_number(raw, numbered):
    """The top level's number is replaced wherever it stands, a nested one never; a missing one is added."""
    assert at_seq(raw, 77) == numbered


@pytest.mark.parametrize("raw", ["", "x", "[1]", '{"a', '"text"', '{"a":1', '[{"sequence_number":1}'])
def test_no_object(raw):
    """Text that is no object is left as it is."""
    assert at_seq(raw, 77) == raw


JSON = st.recursive(
    st.none() | st.integers(0, 99) | st.text(max_size=4) | st.just("sequence_number"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.just("sequence_number"), inner, max_size=3)
    ),
)


@given(
    st.dictionaries(st.text(max_size=3) | st.just("sequence_number"), JSON, max_size=5), st.integers(0, 10**9)
)
def test_nothing_else_changes(value, seq):
    """Of any object, only the number differs; every other character stays where the number itself is a number."""
    raw = json.dumps(value)
    numbered = at_seq(raw, seq)
    assert json.loads(numbered) == value | {"sequence_number": seq}
    if isinstance(value.get("sequence_number"), int):
        assert len(numbered) - len(raw) == len(str(seq)) - len(str(value["sequence_number"]))
        assert re.sub("[0-9]+", "", numbered) == re.sub("[0-9]+", "", raw)
