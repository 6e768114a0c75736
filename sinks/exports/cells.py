"""How a value stands in a cell: plain, the same each time, and nothing that a spreadsheet would execute. Pure.

Before: ``render``, ``focus``. After: nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from schemas.money import plain

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would execute; a client chooses its request ids."""


def cell(value: Any) -> str:
    """A CSV cell; an unknown value is empty."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return " ".join(sorted(value))
    said = text(value)
    return f"'{said}" if isinstance(value, str) and said.startswith(_FORMULA) else said


def text(value: Any) -> str:
    """Money without an exponent, instants in UTC to the microsecond, anything else as it is."""
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return str(value)
