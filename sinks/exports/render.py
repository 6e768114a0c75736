"""The forms of a bill's file: how one line becomes bytes, the same each time. Pure but for the file that it writes to.

CSV is for spreadsheets: an unknown value is an empty cell, and no cell is one that a spreadsheet would execute. JSON Lines is for
programs: the same fields by name, money as text, an unknown value null. Before: ``statement``. After: ``bill``.
"""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from schemas.money import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from sinks.exports.statement import Item

COLUMNS = (
    "kind",
    "period",
    "started",
    "generation_id",
    "attempt",
    "bucket",
    "quantity",
    "unit_price",
    "amount",
    "currency",
    "provider",
    "model",
    "key_id",
    "request_id",
    "usage_source",
    "status",
    "flags",
    "revision",
    "price_hash",
    "policy_hash",
    "content_hash",
    "conflicts",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would execute; a client chooses its request ids."""


class Form(StrEnum):
    """The file's form."""

    CSV = "csv"
    JSONL = "jsonl"


def writer_of(form: Form, file: IO[str]) -> Callable[[Item], None]:
    """What writes the lines of a bill to a file; the head of the form, if it has one, is written at once."""
    if form is Form.JSONL:
        return lambda item: _write_json(file, item)
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(COLUMNS)
    return lambda item: rows.writerow([_cell(value) for value in _values(item)]) and None


def _values(item: Item) -> list[Any]:
    said = {**item.fields, "kind": item.kind.value, "period": item.period}
    return [said[name] for name in COLUMNS]


def _write_json(file: IO[str], item: Item) -> None:
    said = {name: _jsonable(value) for name, value in zip(COLUMNS, _values(item), strict=True)}
    file.write(json.dumps(said, ensure_ascii=False) + "\n")


def _jsonable(value: Any) -> Any:
    if isinstance(value, (Decimal, datetime, UUID)):
        return _text(value)
    return sorted(value) if isinstance(value, (list, tuple)) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return " ".join(sorted(value))
    text = _text(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return str(value)
