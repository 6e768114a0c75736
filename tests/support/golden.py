"""Golden examples of every record, and every schema that was ever in use.

``schemas/examples/<scenario>.json`` is written by hand as ``{"scenario", "record", "value"}``; then
``python -m tests.support.golden --write`` adds ``fingerprint`` and ``avro_hex`` to the examples that lack them, and to
``schemas/avro/history/`` the schemas that are not kept there yet. It never changes what is there: an old example is the
bytes that an old process wrote.
"""

import argparse
import io
import json
from pathlib import Path

import fastavro
import msgspec
from fastavro.schema import SchemaParseException

import schemas
from schemas.avro import RECORDS, schema_of
from schemas.codec import HEADER_BYTES, Codec

EXAMPLES = Path(schemas.__file__).parent / "examples"
HISTORY = Path(schemas.__file__).parent / "avro" / "history"
TYPES = {record.__name__: record for record in RECORDS}


def examples():
    """Give all examples by scenario."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(EXAMPLES.glob("*.json"))}


def history():
    """Give all schemas that were ever in use, by fingerprint."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(HISTORY.glob("*.avsc"))}


def name_of(schema):
    """Give the record type that a schema is of."""
    return schema["name"].rsplit(".", 1)[-1]


def value_of(example):
    """Give the example's value as a record."""
    return msgspec.convert(example["value"], TYPES[example["record"]])


def learned_codec():
    """Give a codec that has read every schema, as if from the schemas topic."""
    codec = Codec()
    for schema in history().values():
        codec.learn(json.dumps(schema))
    return codec


def unreadable(data, writer, reader):
    """Say why a body that was written with one schema cannot be read with the other; None where it can."""
    try:
        fastavro.schemaless_reader(io.BytesIO(data), writer, reader)
    except (fastavro.read.SchemaResolutionError, SchemaParseException, ValueError, EOFError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def write():
    """Complete what is new; give the paths that were written."""
    codec, written = Codec(), []
    HISTORY.mkdir(exist_ok=True)
    for fp, text in codec.own_schemas.items():
        path = HISTORY / f"{fp}.avsc"
        if not path.exists():
            path.write_text(json.dumps(json.loads(text), indent=1) + "\n")
            written.append(path)
    for scenario, example in examples().items():
        if "avro_hex" not in example:
            data = codec.encode(value_of(example))
            example |= {"fingerprint": data[2:HEADER_BYTES].hex(), "avro_hex": data.hex()}
            path = EXAMPLES / f"{scenario}.json"
            path.write_text(json.dumps(example, indent=1, ensure_ascii=False) + "\n")
            written.append(path)
    return written


def current_schemas():
    """Give today's schema of every record type, by its name."""
    return {name: schema_of(record) for name, record in TYPES.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="add what is missing")
    parser.parse_args()
    for path in write():
        print(path.name)  # noqa: T201 - this is a command
