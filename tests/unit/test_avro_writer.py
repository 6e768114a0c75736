"""Our own writer and fastavro's give the same bytes."""

import io
import typing
from enum import StrEnum

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro import RECORDS, schema_of
from schemas.avro_writer import writer_of

_PLAIN = {
    str: st.text(max_size=20),
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
}


def _values(kind):
    if kind in _PLAIN:
        return _PLAIN[kind]
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return st.lists(_values(arguments[0]), max_size=2)
    if arguments:
        return st.none() | _values(next(a for a in arguments if a is not type(None)))
    if issubclass(kind, StrEnum):
        return st.sampled_from(list(kind))
    return _structs(kind)


def _structs(kind):
    fields = {}
    for field in msgspec.structs.fields(kind):
        values = _values(field.type)
        default = field.default
        if default is not msgspec.NODEFAULT:
            values = st.just(default) | values
        fields[field.name] = values
    return st.fixed_dictionaries(fields).map(lambda given: kind(**given))


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_the_bytes_are_fastavros(record):
    """For any value of any record type the writer gives exactly what fastavro gives."""
    schema, write = fastavro.parse_schema(schema_of(record)), writer_of(record)

    @settings(max_examples=40, deadline=None)
    @given(_structs(record))
    def compare(value):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, msgspec.to_builtins(value, builtin_types=(bytes,)))
        assert write(value) == out.getvalue()

    compare()
