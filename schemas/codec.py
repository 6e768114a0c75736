"""Avro single-object encoding: ``C3 01``, the CRC-64-AVRO fingerprint, the body.

Decoding an own record needs no lookup, and no fastavro where it is as our own writer writes it (``avro_reader``). A
foreign fingerprint is resolved with the schema that the schemas topic gives for it (``learn``); until then it is
``SchemaUnknown`` (transient). What can never be read is ``Poison`` with its reason.
The only file of this package that imports fastavro.

Before: ``avro_writer``, ``avro_reader``. After: the shells (edge log, fold, sinks).
"""

import io
import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, fingerprint, to_parsing_canonical_form

from schemas.avro import MAJOR, RECORDS, schema_of
from schemas.avro_reader import reader_of
from schemas.avro_writer import writer_of
from schemas.errors import Poison, SchemaUnknown
from schemas.events import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"\xc3\x01"
HEADER_BYTES = 10
T = TypeVar("T", bound=Struct)


class Codec:
    """Encodes with the newest schemas, decodes whatever schema was learned.

    Not bound to a thread; building one parses all schemas (some milliseconds), so a process builds one.
    """

    def __init__(self) -> None:
        self._own: dict[type[Struct], tuple[bytes, Any]] = {}
        self._write: dict[type[Struct], tuple[bytes, Callable[[Struct], bytes]]] = {}
        self._read: dict[type[Struct], Callable[[bytes, int], Any]] = {}
        self._names: dict[type[Struct], str] = {}
        self._writers: dict[bytes, Any] = {}
        self._newer: set[bytes] = set()
        self.own_schemas: dict[str, str] = {}
        for record in RECORDS:
            schema = schema_of(record)
            fp, parsed = _parse(schema)
            self._own[record] = (MAGIC + fp, parsed)
            self._write[record] = (MAGIC + fp, writer_of(record))
            self._read[record] = reader_of(record)
            self._names[record] = record.__name__
            self._writers[fp] = parsed
            self.own_schemas[fp.hex()] = json.dumps(schema, separators=(",", ":"))

    def encode(self, value: Struct) -> bytes:
        """The single-object bytes of a record."""
        header, write = self._write[type(value)]
        return header + write(value)

    def learn(self, schema_json: str) -> str:
        """Take a schema from the schemas topic; its fingerprint in hex. A schema of a newer major is only remembered.

        Raises Poison (undecodable) for a text that is no Avro schema of a record.
        """
        try:
            schema = json.loads(schema_json)
            fp, parsed = _parse(schema)
        except (ValueError, KeyError, TypeError, SchemaParseException) as error:
            raise Poison("undecodable", f"not an Avro schema: {error}") from error
        if _major(schema) > MAJOR:
            self._newer.add(fp)
        else:
            self._writers.setdefault(fp, parsed)
        return fp.hex()

    def knows(self, fingerprint_hex: str) -> bool:
        """Whether records with this fingerprint can be judged here."""
        fp = bytes.fromhex(fingerprint_hex)
        return fp in self._writers or fp in self._newer

    def decode(self, data: bytes | None, record: type[T]) -> T:
        """One record from its bytes.

        Raises Poison (tombstone, undecodable, schema_version, missing_field, bad_field) or SchemaUnknown.
        """
        if data is None:
            raise Poison("tombstone", "the record has no value")
        if len(data) < HEADER_BYTES or data[:2] != MAGIC:
            raise Poison("undecodable", "no Avro single-object header (C3 01 and a fingerprint)")
        header, own = self._own[record]
        if data[:HEADER_BYTES] != header:
            return _by_fastavro(data, self._foreign(data[2:HEADER_BYTES], record), own, record)
        try:
            value: T = self._read[record](data, HEADER_BYTES)
        except (
            ValueError,
            IndexError,
        ):  # not as our writer writes: fastavro says whether it is poison, and why
            return _by_fastavro(data, own, None, record)
        return value

    def _foreign(self, fp: bytes, record: type[Struct]) -> Any:
        if fp in self._newer:
            raise Poison(
                "schema_version", f"schema {fp.hex()} is of a newer major version: update this process"
            )
        writer = self._writers.get(fp)
        if writer is None:
            raise SchemaUnknown(fp.hex())
        if str(writer["name"]).rsplit(".", 1)[-1] != self._names[record]:
            raise Poison("undecodable", f"a {writer['name']} where a {self._names[record]} belongs")
        return writer


def _by_fastavro(data: bytes, writer: Any, reader: Any, record: type[T]) -> T:
    stream = io.BytesIO(data)
    stream.seek(HEADER_BYTES)
    try:
        values = fastavro.schemaless_reader(stream, writer, reader)
    except fastavro.read.SchemaResolutionError as error:
        raise Poison(_resolution_reason(str(error)), str(error)) from error
    except (
        Exception
    ) as error:  # fastavro raises what the bytes lead it into: struct, index, overflow, unicode …
        raise Poison("undecodable", f"{type(error).__name__}: {error}") from error
    if stream.read(1):
        raise Poison("undecodable", "bytes are left behind the record")
    try:
        return msgspec.convert(values, record)
    except msgspec.ValidationError as error:
        raise Poison(_validation_reason(str(error)), str(error)) from error


def check_key(key: bytes | None, generation_id: str) -> None:
    """Raise Poison (key_mismatch) where a record lies under another key than its generation's."""
    if key != generation_id.encode():
        raise Poison("key_mismatch", f"key {key!r}, but the record is of generation {generation_id}")


def _parse(schema: dict[str, Any]) -> tuple[bytes, Any]:
    if schema["type"] != "record":
        raise TypeError("only records travel in the log")
    canonical = to_parsing_canonical_form(schema)
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")), fastavro.parse_schema(schema)


def _major(schema: Any) -> int:
    name = f"{schema.get('namespace', '')}.{schema.get('name', '')}" if isinstance(schema, dict) else ""
    found = re.search(r"tokentrail\.v(\d+)\.", name)
    return int(found.group(1)) if found else 0


def _resolution_reason(message: str) -> Any:
    return "missing_field" if "No default value" in message else "bad_field"


def _validation_reason(message: str) -> Any:
    return "missing_field" if "missing required field" in message else "bad_field"
