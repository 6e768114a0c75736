"""Bytes to records and back: what is read, what waits, and what is poison with which reason."""

import copy
import io
import json

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro import RECORDS, schema_of
from schemas.codec import HEADER_BYTES, MAGIC, Codec, check_key
from schemas.errors import Poison, SchemaUnknown, Transient
from schemas.events import Canonical, Kind, LogEvent, PartType, Usage
from schemas.records import ClaimRecord, ControlKind, ControlRecord, GenerationRecord
from schemas.registry import missing
from tests.support.events import GENERATION_ID, log_event, text

CODEC = Codec()
CLAIM = ClaimRecord(
    claim_key="c", tenant="acme", generation_id=GENERATION_ID, body_hash="b", edge_id="edge-1", wall_us=1
)


def foreign(record, change):
    """Give a schema that differs from ours by `change(schema)`, and its fingerprint."""
    schema = copy.deepcopy(schema_of(record))
    change(schema)
    return schema, bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def written(schema, fp, value):
    """Give the single-object bytes of a dict under a schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return MAGIC + fp + out.getvalue()


def field(schema, name):
    return next(one for one in schema["fields"] if one["name"] == name)


def add_field(schema):
    schema["fields"].append({"name": "added_later", "type": "string", "default": "x"})


def learned(record, change, value):
    """Give a codec that learned the changed schema, and bytes written with it."""
    codec = Codec()
    schema, fp = foreign(record, change)
    codec.learn(json.dumps(schema))
    return codec, written(schema, fp, value)


CLAIM_VALUE = {name: getattr(CLAIM, name) for name in CLAIM.__struct_fields__}
LONG = st.integers(-(2**63), 2**63 - 1)


def test_header():
    """A record begins with C3 01 and the little-endian CRC-64-AVRO of its schema's canonical form."""
    data = CODEC.encode(CLAIM)
    assert data[:2] == b"\xc3\x01"
    canonical = to_parsing_canonical_form(schema_of(ClaimRecord))
    assert data[2:HEADER_BYTES].hex() == fingerprint(canonical, "CRC-64-AVRO")


def test_fingerprint_is_the_published_one():
    """The fingerprint of the plain schema "int" is the one of Avro's own table, in little-endian order."""
    assert fingerprint('"int"', "CRC-64-AVRO") == (0x7275D51A3F395C8F).to_bytes(8, "little").hex()


ANY_EVENT = st.builds(
    log_event,
    kind=st.sampled_from(Kind),
    seq=st.none() | LONG,
    tenant=st.text(max_size=20),
    raw=st.none() | st.text(max_size=50),
    raw_event=st.none() | st.text(max_size=20),
    wall_us=LONG,
    slice=st.none() | st.binary(max_size=20),
    canonical=st.lists(
        st.builds(Canonical, type=st.sampled_from(PartType), text=st.text(max_size=20)), max_size=3
    ),
)


@settings(max_examples=50)
@given(ANY_EVENT)
def test_round_trip(event):
    """Any text, any 64-bit number and any bytes come back as they were."""
    assert CODEC.decode(CODEC.encode(event), LogEvent) == event


def test_null_is_not_zero_and_empty_is_not_null():
    """What is unmeasured, zero and empty stays apart."""
    event = log_event(Kind.USAGE, after_seq=0, raw="", usage=Usage(input=0, output=None))
    found = CODEC.decode(CODEC.encode(event), LogEvent)
    assert (found.usage.input, found.usage.output, found.raw, found.raw_event) == (0, None, "", None)


def test_tombstone():
    """A record without a value is a tombstone."""
    with pytest.raises(Poison) as caught:
        CODEC.decode(None, LogEvent)
    assert caught.value.reason == "tombstone"


GOOD = CODEC.encode(text(3, "Grüß Gott", raw_event="delta"))
UNDECODABLE = {
    "nothing": b"",
    "a short header": GOOD[:9],
    "no magic": b"\x00\x01" + GOOD[2:],
    "another magic": b"\xc3\x02" + GOOD[2:],
    "JSON": b'{"kind": "delta", "seq": 1}',
    "only the header": GOOD[:HEADER_BYTES],
    "cut": GOOD[:-1],
    "cut in a text": GOOD[:20],
    "bytes behind it": GOOD + b"\0",
    "a negative length": GOOD[:HEADER_BYTES] + b"\x01" * 60,
    "an endless number": GOOD[:HEADER_BYTES] + b"\xff" * 60,
    "a huge length": GOOD[:HEADER_BYTES] + b"\xfe\xff\xff\xff\x0f" + b"x" * 40,
    "a record of another type": CODEC.encode(CLAIM),
}


@pytest.mark.parametrize("data", UNDECODABLE.values(), ids=UNDECODABLE)
def test_undecodable(data):
    """Bytes that are no such record are poison, whatever they make the reader stumble over."""
    with pytest.raises(Poison) as caught:
        CODEC.decode(data, LogEvent)
    assert caught.value.reason == "undecodable"


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_body_is_read_or_poison(body):
    """No bytes behind a good header raise anything but poison."""
    try:
        CODEC.decode(GOOD[:HEADER_BYTES] + body, LogEvent)
    except Poison as poison:
        assert poison.reason in {"undecodable", "bad_field"}  # noqa: PT017 - either outcome is right, no third one


@settings(max_examples=200)
@given(st.integers(HEADER_BYTES, len(GOOD) - 1), st.integers(1, 255))
def test_a_flipped_byte_never_crashes(index, mask):
    """One damaged byte gives another record or poison, never a crash of the fold."""
    data = bytearray(GOOD)
    data[index] ^= mask
    try:
        CODEC.decode(bytes(data), LogEvent)
    except Poison as poison:
        assert poison.reason in {"undecodable", "bad_field"}  # noqa: PT017


def test_unknown_fingerprint_waits():
    """A schema that has not been seen is transient, with the fingerprint to look for; never poison."""
    data = MAGIC + bytes(range(8)) + b"x"
    with pytest.raises(SchemaUnknown) as caught:
        CODEC.decode(data, LogEvent)
    assert caught.value.fingerprint == "0001020304050607"
    assert isinstance(caught.value, Transient)
    assert not CODEC.knows("0001020304050607")


def test_learned_schema():
    """Once the schemas topic gave the schema, its records are read; a field we do not know is left out."""
    codec, data = learned(ClaimRecord, add_field, CLAIM_VALUE | {"added_later": "y"})
    with pytest.raises(SchemaUnknown):
        Codec().decode(data, ClaimRecord)
    assert codec.knows(data[2:HEADER_BYTES].hex())
    assert codec.decode(data, ClaimRecord) == CLAIM


def test_learning_twice():
    """A schema that the topic repeats, and our own, are learned without harm."""
    codec = Codec()
    for fp, schema in codec.own_schemas.items():
        assert codec.learn(schema) == fp
        assert codec.learn(schema) == fp
    assert codec.decode(GOOD, LogEvent).seq == 3


def test_newer_symbol_is_unknown():
    """A kind that a later minor version added is read as unknown, wherever the enum is first defined."""

    def add_symbol(schema):
        field(schema, "kind")["type"]["symbols"].append("handover")

    value = {"generation_id": GENERATION_ID, "kind": "handover", "edge_id": "e", "wall_us": 1}
    codec, data = learned(ControlRecord, add_symbol, value)
    assert codec.decode(data, ControlRecord).kind is ControlKind.UNKNOWN


def test_missing_field():
    """A writer without a field that we need and have no default for: poison, missing_field."""

    def drop_tenant(schema):
        schema["fields"].remove(field(schema, "tenant"))

    codec, data = learned(ClaimRecord, drop_tenant, {k: v for k, v in CLAIM_VALUE.items() if k != "tenant"})
    with pytest.raises(Poison) as caught:
        codec.decode(data, ClaimRecord)
    assert caught.value.reason == "missing_field"


def test_field_of_another_type():
    """A writer whose field has another type than ours: poison, bad_field."""

    def text_for_number(schema):
        field(schema, "wall_us")["type"] = "string"

    codec, data = learned(ClaimRecord, text_for_number, CLAIM_VALUE | {"wall_us": "now"})
    with pytest.raises(Poison) as caught:
        codec.decode(data, ClaimRecord)
    assert caught.value.reason == "bad_field"


def major_two(schema):
    schema["namespace"] = "tokentrail.v2"


def test_newer_major():
    """A newer major version is poison without decoding: no byte of its body is looked at."""
    codec = Codec()
    schema, fp = foreign(ClaimRecord, major_two)
    assert codec.learn(json.dumps(schema)) == fp.hex()
    assert codec.knows(fp.hex())
    with pytest.raises(Poison) as caught:
        codec.decode(MAGIC + fp, ClaimRecord)
    assert caught.value.reason == "schema_version"


@pytest.mark.parametrize(
    "text_",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        '"nonsense"',
        '"long"',
        '["null", "long"]',
        '{"type": "record"}',
        '{"type": "x"}',
    ],
)
def test_no_schema(text_):
    """A value of the schemas topic that is no schema is poison, and teaches nothing."""
    codec = Codec()
    with pytest.raises(Poison) as caught:
        codec.learn(text_)
    assert caught.value.reason == "undecodable"


def test_record_of_a_stranger():
    """A record type that is none of ours is learned without harm: bytes under it are poison."""
    codec = Codec()
    fp = codec.learn('{"type": "record", "name": "Stranger", "fields": []}')
    with pytest.raises(Poison) as caught:
        codec.decode(MAGIC + bytes.fromhex(fp), ClaimRecord)
    assert caught.value.reason == "undecodable"


def test_own_schemas_are_what_is_missing():
    """A process announces each of its schemas that the topic lacks, and none twice."""
    own = CODEC.own_schemas
    assert len(own) == len(RECORDS)
    assert missing(CODEC, []) == own
    some = next(iter(own))
    assert missing(CODEC, [some, "ffffffffffffffff"]) == {fp: s for fp, s in own.items() if fp != some}
    assert missing(CODEC, own) == {}


def test_key():
    """A record lies under its own generation's key; another, none, or another spelling is key_mismatch."""
    check_key(GENERATION_ID.encode(), GENERATION_ID)
    for key in (None, b"", GENERATION_ID.upper().encode(), GENERATION_ID.encode() + b" "):
        with pytest.raises(Poison) as caught:
            check_key(key, GENERATION_ID)
        assert caught.value.reason == "key_mismatch"


def test_a_generations_row_of_many_parts():
    """Nested lists and a nested record whose fields all have their defaults come back equal."""
    record = GenerationRecord(
        tenant="acme",
        generation_id=GENERATION_ID,
        key_id="key-1",
        revision=3,
        status="complete",
        dialect="openai.chat",
        edge_id="edge-1",
        terminal="message_end",
        terminal_seq=2,
    )
    assert CODEC.decode(CODEC.encode(record), GenerationRecord) == record


def test_too_large_a_number_is_refused_before_it_is_written():
    """A number beyond 64 bits raises where it is written, not where it is read."""
    with pytest.raises((OverflowError, ValueError)):
        CODEC.encode(log_event(Kind.FRAME, 2**63))
