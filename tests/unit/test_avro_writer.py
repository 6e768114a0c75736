"""Our own writer and fastavro's give the same bytes."""

import io

import fastavro
import msgspec
import pytest
from hypothesis import given, settings

from schemas.avro import RECORDS, schema_of
from schemas.avro_writer import writer_of
from tests.support.structs import structs


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_the_bytes_are_fastavros(record):
    """For any value of any record type the writer gives exactly what fastavro gives."""
    schema, write = fastavro.parse_schema(schema_of(record)), writer_of(record)

    @settings(max_examples=40)
    @given(structs(record))
    def compare(value):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, msgspec.to_builtins(value, builtin_types=(bytes,)))
        assert write(value) == out.getvalue()

    compare()
