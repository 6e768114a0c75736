"""What was ever written stays readable: every example with the newest schema, the newest with every old one."""

import copy
import io
import json

import fastavro
import msgspec
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas.avro import RECORDS
from schemas.codec import HEADER_BYTES, Codec
from schemas.events import Kind
from schemas.kinds import Word
from schemas.records import ClaimRecord
from tests.support.golden import (
    TYPES,
    current_schemas,
    examples,
    history,
    learned_codec,
    name_of,
    unreadable,
    value_of,
)

EXAMPLES = examples()
HISTORY = history()
CURRENT = current_schemas()
OWN = Codec()
CODEC = learned_codec()
HELP = "python -m tests.support.golden --write"


def every(mapping):
    return pytest.mark.parametrize("name", mapping, ids=str)


@every(EXAMPLES)
def test_well_formed(name):
    """An example is named by its scenario and says in plain JSON what it is, without defaults or unknown fields."""
    example = EXAMPLES[name]
    assert example.keys() == {"scenario", "record", "fingerprint", "value", "avro_hex"}, HELP
    assert example["scenario"] == name
    assert msgspec.to_builtins(value_of(example)) == example["value"]


@every(EXAMPLES)
def test_read_with_the_newest_schema(name):
    """The bytes of an example, however old, are read today as the value that stands beside them."""
    example = EXAMPLES[name]
    data = bytes.fromhex(example["avro_hex"])
    assert data[2:HEADER_BYTES].hex() == example["fingerprint"]
    assert CODEC.decode(data, TYPES[example["record"]]) == value_of(example)


@every(EXAMPLES)
def test_written_the_same_today(name):
    """A value is written as the same bytes as long as its schema is the same."""
    example = EXAMPLES[name]
    data = OWN.encode(value_of(example))
    assert data.hex() == example["avro_hex"] or data[2:HEADER_BYTES].hex() != example["fingerprint"]


@every(EXAMPLES)
def test_written_today_read_by_every_old_schema(name):
    """What is written today can be read by a process that only knows an old schema of the same record."""
    record = EXAMPLES[name]["record"]
    body = OWN.encode(value_of(EXAMPLES[name]))[HEADER_BYTES:]
    for fp, old in HISTORY.items():
        if name_of(old) == record:
            assert unreadable(body, CURRENT[record], old) is None, fp


@every(CURRENT)
def test_todays_schema_is_kept(name):
    """Today's schema is in the history already, so that its successor finds it there; a major in use is never left."""
    own = {name_of(json.loads(text)): fp for fp, text in OWN.own_schemas.items()}
    assert own[name] in HISTORY, HELP


@every(HISTORY)
def test_history_is_what_it_says(name):
    """A kept schema has the fingerprint that it is named by, and some example was written with it."""
    assert fingerprint(to_parsing_canonical_form(HISTORY[name]), "CRC-64-AVRO") == name
    assert any(example["fingerprint"] == name for example in EXAMPLES.values()), (
        "a schema needs an example of its own"
    )


def test_no_schema_was_dropped():
    """Every example's schema is kept: without it nobody could read the bytes."""
    assert {example["fingerprint"] for example in EXAMPLES.values()} <= HISTORY.keys()


def test_every_kind_and_record():
    """There is an example of every kind of the log and of every record type."""
    kinds = {value_of(example).kind for example in EXAMPLES.values() if example["record"] == "LogEvent"}
    assert kinds >= set(Kind) - {Kind.UNKNOWN}
    assert {example["record"] for example in EXAMPLES.values()} == set(TYPES)


def used_fields(value, seen):
    """Collect (struct type, field) of every field that has another value than its default."""
    if isinstance(value, msgspec.Struct):
        for name in msgspec.to_builtins(value):
            seen.add((type(value).__name__, name))
            used_fields(getattr(value, name), seen)
    elif isinstance(value, list):
        for item in value:
            used_fields(item, seen)
    return seen


def all_fields(schema, seen):
    """Collect (record name, field) of every field below an Avro schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "record":
            seen.update((schema["name"], field["name"]) for field in schema["fields"])
        for value in schema.values():
            all_fields(value, seen)
    elif isinstance(schema, list):
        for value in schema:
            all_fields(value, seen)
    return seen


def test_every_field_has_an_example():
    """Every field of every record has another value than its default in some example: a new field needs a new one."""
    used, known = set(), set()
    for example in EXAMPLES.values():
        used_fields(value_of(example), used)
    for schema in CURRENT.values():
        all_fields(schema, known)
    assert known - used == set()


def test_enums_begin_with_their_default():
    """The first symbol of each vocabulary means that nothing is known: old readers get it for new symbols."""
    for symbols in Word.__subclasses__():
        if symbols.__module__ in {"schemas.kinds", "schemas.records"}:
            assert next(iter(symbols)).value in {"unknown", "none"}, symbols


CLAIM = next(value_of(e) for e in EXAMPLES.values() if e["record"] == "ClaimRecord")


def body_of(schema, value):
    """Give the Avro body of a dict under a schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, copy.deepcopy(schema), value)
    return out.getvalue()


def changed(change):
    """Give the claim's schema with its fields changed in place."""
    schema = copy.deepcopy(CURRENT["ClaimRecord"])
    change(schema["fields"])
    return schema


ALLOWED = {
    "a field with a default is added": lambda fields: fields.append(
        {"name": "later", "type": ["null", "string"], "default": None}
    ),
    "fields change their order": lambda fields: fields.reverse(),
}
REFUSED = {
    "a field without a default is added": lambda fields: fields.append({"name": "later", "type": "string"}),
    "a field is renamed": lambda fields: fields[0].update(name="renamed"),
    "a field gets another type": lambda fields: fields[-1].update(type="string"),
    "a field without default is removed": lambda fields: fields.pop(),
}


def problems(schema):
    """Give what is unreadable between today's claim and the same under a changed schema, in either direction."""
    value = msgspec.to_builtins(CLAIM)
    other = value | {"later": "x", "renamed": "x"}
    if any(field["name"] == "wall_us" and field["type"] == "string" for field in schema["fields"]):
        other["wall_us"] = "x"
    today = CURRENT["ClaimRecord"]
    return [
        unreadable(body_of(today, value), today, schema),
        unreadable(body_of(schema, other), schema, today),
    ]


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED)
def test_allowed_change(change):
    """A compatible change is readable in both directions."""
    assert problems(changed(change)) == [None, None]


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_refused_change(change):
    """An incompatible change is seen by the check that holds the history together."""
    assert any(problems(changed(change)))


def test_records_are_the_ones_that_travel():
    """The examples cover exactly the record types that the codec writes."""
    assert set(TYPES.values()) == set(RECORDS)
    assert ClaimRecord in RECORDS
