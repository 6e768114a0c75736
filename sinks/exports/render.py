"""The forms of a bill's file: how one line becomes bytes, the same each time. Pure but for the file that it writes to.

CSV is for spreadsheets: an unknown value is an empty cell, and no cell is one that a spreadsheet would execute. JSON Lines is for
programs: the same fields by name, money as text, an unknown value null. FOCUS is in ``focus``. Before: ``statement``. After:
``bill``.
"""

from __future__ import annotations

import csv
import json
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any, Protocol
from uuid import UUID

from sinks.exports.cells import cell, text
from sinks.exports.focus import FocusWriter, Invoice

if TYPE_CHECKING:
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


class Form(StrEnum):
    """The file's form."""

    CSV = "csv"
    JSONL = "jsonl"
    FOCUS = "focus"


class Writer(Protocol):
    """Takes the lines of a bill in their order."""

    def write(self, item: Item) -> None:
        """Take a line."""

    def end(self) -> None:
        """That was the last one."""


def writer_of(form: Form, file: IO[str], invoice: Invoice) -> Writer:
    """What writes the lines of a bill to a file; the head of the form, if it has one, is written at once."""
    if form is Form.FOCUS:
        return FocusWriter(file, invoice)
    return _JsonLines(file) if form is Form.JSONL else _Csv(file)


class _Csv:
    """One row per line."""

    def __init__(self, file: IO[str]) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(COLUMNS)

    def write(self, item: Item) -> None:
        """Take a line."""
        self._rows.writerow([cell(value) for value in _values(item)])

    def end(self) -> None:
        """All is written."""


class _JsonLines:
    """One object per line."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, item: Item) -> None:
        """Take a line."""
        said = {name: _jsonable(value) for name, value in zip(COLUMNS, _values(item), strict=True)}
        self._file.write(json.dumps(said, ensure_ascii=False) + "\n")

    def end(self) -> None:
        """All is written."""


def _values(item: Item) -> list[Any]:
    said = {**item.fields, "kind": item.kind.value, "period": item.period}
    return [said[name] for name in COLUMNS]


def _jsonable(value: Any) -> Any:
    if isinstance(value, (Decimal, datetime, UUID)):
        return text(value)
    return sorted(value) if isinstance(value, (list, tuple)) else value
