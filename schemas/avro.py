"""The Avro schemas, made from the Python types: one source, no drift.

``schema_of(LogEvent)`` walks the struct: ``str``, ``int`` (long), ``bool``, ``bytes``, lists, nested structs, optional
fields (``["null", T]``, default null) and enums (whose default is their first symbol). No logical types: the CRC-64
fingerprint does not see them. The major version is in the namespace. ``python -m schemas.avro`` writes ``avro/*.avsc``;
a test compares them with what this module makes.

Before: ``records``. After: ``codec``.
"""

import json
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from schemas.avro_types import not_none
from schemas.events import LogEvent, Struct
from schemas.records import (
    AttemptRecord,
    ClaimRecord,
    ConfigRecord,
    ControlRecord,
    GenerationRecord,
    LedgerLine,
)

MAJOR = 1
FOLDER = Path(__file__).parent / "avro"
RECORDS: tuple[type[Struct], ...] = (
    LogEvent,
    AttemptRecord,
    GenerationRecord,
    LedgerLine,
    ControlRecord,
    ClaimRecord,
    ConfigRecord,
)
_PLAIN: dict[Any, str] = {str: "string", int: "long", bool: "boolean", bytes: "bytes", type(None): "null"}


def schema_of(record: type[Struct], major: int = MAJOR) -> dict[str, Any]:
    """The Avro schema of a record type, as a JSON-like dict; nested types are defined at their first use."""
    return typing.cast("dict[str, Any]", _type(record, f"tokentrail.v{major}", set()))


def _type(kind: Any, namespace: str, defined: set[str]) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin = typing.get_origin(kind)
    if origin is list:
        return {"type": "array", "items": _type(typing.get_args(kind)[0], namespace, defined)}
    if origin in (types.UnionType, typing.Union):
        inner = not_none(kind)
        return ["null", _type(inner, namespace, defined)]
    if kind.__name__ in defined:
        return f"{namespace}.{kind.__name__}"
    defined.add(kind.__name__)
    named = {"name": kind.__name__, "namespace": namespace, "doc": _first_line(kind)}
    if issubclass(kind, StrEnum):
        symbols = [symbol.value for symbol in kind]
        return named | {"type": "enum", "symbols": symbols, "default": symbols[0]}
    fields = [_field(field, namespace, defined) for field in msgspec.structs.fields(kind)]
    return named | {"type": "record", "fields": fields}


def _field(field: msgspec.structs.FieldInfo, namespace: str, defined: set[str]) -> dict[str, Any]:
    out = {"name": field.encode_name, "type": _type(field.type, namespace, defined)}
    if field.default_factory is not msgspec.NODEFAULT:
        out["default"] = msgspec.to_builtins(field.default_factory())
    elif field.default is not msgspec.NODEFAULT:
        out["default"] = msgspec.to_builtins(field.default)
    return out


def _first_line(kind: Any) -> str:
    return str(kind.__doc__).split("\n", 1)[0]


def files() -> dict[str, str]:
    """File name → text of every ``*.avsc``."""
    return {f"{r.__name__}.avsc": json.dumps(schema_of(r), indent=1) + "\n" for r in RECORDS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
