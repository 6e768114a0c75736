"""Any value of a record type, for properties: made from the struct's own field types."""

import typing
from enum import StrEnum
from typing import Any

import msgspec
from hypothesis import strategies as st

LONG_MAX = 2**63


def structs(record: Any, long_max: int = LONG_MAX) -> st.SearchStrategy[Any]:
    """Values of a struct type; each field often has its default. Its longs lie within ±``long_max``."""
    fields = {}
    for field in msgspec.structs.fields(record):
        values = _values(field.type, long_max)
        if field.default is not msgspec.NODEFAULT:
            values = st.just(field.default) | values
        fields[field.name] = values
    return st.fixed_dictionaries(fields).map(lambda given: record(**given))


def _values(kind: Any, long_max: int) -> st.SearchStrategy[Any]:
    plain = {
        str: st.text(max_size=20),
        int: st.integers(-long_max, long_max - 1),
        bool: st.booleans(),
        bytes: st.binary(max_size=20),
    }
    if kind in plain:
        return plain[kind]
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return st.lists(_values(arguments[0], long_max), max_size=2)
    if arguments:
        return st.none() | _values(next(a for a in arguments if a is not type(None)), long_max)
    if issubclass(kind, StrEnum):
        return st.sampled_from(list(kind))
    return structs(kind, long_max)
