"""What small topics say, read by a process that is older than its writer."""

import io
import json

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from edge.log import LogAway
from edge.log.memory import MemoryLog
from edge.reading.decode import said_in
from schemas.avro import schema_of
from schemas.codec import MAGIC, Codec
from schemas.records import ClaimRecord, ConfigRecord, ControlKind, ControlRecord

CLAIM = ClaimRecord(
    claim_key="ab", tenant="acme", generation_id="g1", body_hash="cd", edge_id="edge-9", wall_us=1
)
CONTROL = ControlRecord(generation_id="g1", kind=ControlKind.ATTACHED, edge_id="edge-9", wall_us=1)


class Topic(MemoryLog):
    """A log whose schemas topic holds one schema that nobody has read yet."""

    def __init__(self, codec, schema):
        super().__init__(lambda: 0)
        self._codec, self._schema = codec, schema
        self.asked = 0

    async def learn(self):
        """See EventLog."""
        self.asked += 1
        if self._schema is None:
            raise LogAway("told to be away")
        self._codec.learn(json.dumps(self._schema))


def newer(record):
    """The record as a newer process writes it, whose schema has one more field; its bytes and that schema."""
    schema = schema_of(type(record))
    schema["fields"].append({"name": "of_tomorrow", "type": ["null", "string"], "default": None})
    codec = Codec()
    plain = codec.encode(record)
    own = fastavro.parse_schema(schema_of(type(record)))
    value = fastavro.schemaless_reader(io.BytesIO(plain[10:]), own, None) | {"of_tomorrow": "x"}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
    return MAGIC + mark + body.getvalue(), schema


@pytest.mark.parametrize("record", [CLAIM, CONTROL], ids=["claim", "control"])
async def test_what_a_newer_process_says_is_understood(record):
    """An unknown schema is looked up once, and the record is read as far as this version knows it."""
    value, schema = newer(record)
    codec = Codec()
    log = Topic(codec, schema)
    for _ in range(2):
        assert await said_in(log, codec, value, type(record)) == record
    assert log.asked == 1


@pytest.mark.parametrize("value", [b"", b"no record", CLAIM])
async def test_what_cannot_be_read_is_passed(value):
    """Garbage, another type's record, and a schema that cannot be looked up: None, and the reading goes on."""
    codec = Codec()
    log = Topic(codec, None)
    data = newer(value)[0] if value is CLAIM else value
    assert await said_in(log, codec, data, ConfigRecord) is None
