"""The committed Avro schemas are those of the Python types, and keep to what every Avro reader understands."""

import json

import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas.avro import FOLDER, MAJOR, RECORDS, files, schema_of


def walk(node):
    """Give every named type and every other JSON object below a schema."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from walk(value)


@pytest.mark.parametrize(("name", "text"), files().items(), ids=files())
def test_committed(name, text):
    """Each file equals what the types make; after a change: python -m schemas.avro."""
    assert (FOLDER / name).read_text() == text


def test_no_other_file():
    """The folder holds the schemas of our records and no left-over."""
    assert {path.name for path in FOLDER.glob("*.avsc")} == set(files())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_plain_avro(record):
    """No logical type (the fingerprint does not see them), every enum has a default, every name is in our namespace."""
    for node in walk(schema_of(record)):
        assert "logicalType" not in node
        if node.get("type") == "enum":
            assert node["default"] == node["symbols"][0]
            assert node["default"] in {"unknown", "none"}
        if node.get("type") in ("enum", "record"):
            assert node["namespace"] == f"tokentrail.v{MAJOR}"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_optional_is_null_by_default(record):
    """A union is null or one type, null first, so that its default is null; a union of records is never made."""
    for node in walk(schema_of(record)):
        if isinstance(node.get("type"), list):
            assert node["type"][0] == "null"
            assert len(node["type"]) == 2
            assert node.get("default", None) is None


def test_fingerprints_differ():
    """No two record types share a fingerprint, and another major has another one."""
    schemas = [schema_of(record, major) for record in RECORDS for major in (MAJOR, MAJOR + 1)]
    assert len({fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO") for schema in schemas}) == len(
        schemas
    )


def test_files_are_json():
    """The committed text is plain JSON, as any tool reads it."""
    assert all(json.loads(text)["type"] == "record" for text in files().values())
