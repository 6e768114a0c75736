"""What stands on a bill: the ledger minus what was billed, line by line. Pure.

A line of the month itself is a ``line``. What the ledger says otherwise of a month that was closed before is an
``adjustment`` that names that month: a late line as it is, and what was billed and no longer holds with its sign turned.
So the bills that were closed and the next one always add up to the ledger, exactly. A content that was set aside for
another one of the same line is ``quarantined``: named once, in no sum. What belongs to an earlier month that was never
closed is ``left`` for that month's own bill, unless the terms take it along.

Before: ``books`` gives the entries. After: ``tally`` counts and ``render`` writes them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.money import month_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CONFLICT = "conflict"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Kind(StrEnum):
    """Why a line is here."""

    LINE = "line"
    ADJUSTMENT = "adjustment"
    QUARANTINED = "quarantined"
    LEFT = "left"

    @property
    def billed(self) -> bool:
        """Whether it stands on the bill and in its sum."""
        return self in (Kind.LINE, Kind.ADJUSTMENT)


class Terms(NamedTuple):
    """Which bill it is: of this month in this zone, when these months were closed before.

    ``with_earlier``: what earlier months hold that were never closed comes as an adjustment, too.
    """

    period: str
    zone: str
    closed: frozenset[str]
    with_earlier: bool = False


class Item(NamedTuple):
    """One line: the ledger's own fields by name, signed as billed; ``period`` is the month of its attempt."""

    kind: Kind
    period: str
    sign: int
    fields: Mapping[str, Any]


def statement(entries: Iterable[Mapping[str, Any]], terms: Terms) -> Iterator[Item]:
    """The items of a bill, in the order of the entries.

    Args:
        entries: one per content of a ledger line whose attempt started before the month's end, where ledger and bills
            differ: ``owed`` is how often it stands in the ledger minus how often it was billed; ``aside``: it was set
            aside, and ``owed`` counts how often it was named.
        terms: which bill it is.
    """
    for entry in entries:
        period = month_of((entry["started"] - _EPOCH) // _MICROSECOND, terms.zone)
        owed = int(entry["owed"])
        if entry["aside"]:
            if owed > 0 and _is_due(period, terms):
                yield Item(Kind.QUARANTINED, period, 1, _flagged(entry))
            continue
        for _ in range(abs(owed)):
            if owed < 0:
                yield Item(Kind.ADJUSTMENT, period, -1, _turned(entry))
            elif period == terms.period:
                yield Item(Kind.LINE, period, 1, _flagged(entry))
            elif _is_due(period, terms):
                yield Item(Kind.ADJUSTMENT, period, 1, _flagged(entry))
            else:
                yield Item(Kind.LEFT, period, 1, entry)


def _is_due(period: str, terms: Terms) -> bool:
    return period == terms.period or period in terms.closed or terms.with_earlier


def _turned(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """What takes back a line; of an unknown amount nothing can be taken back, it stays unknown."""
    turned = {name: None if entry[name] is None else -entry[name] for name in ("quantity", "amount")}
    return {**entry, **turned}


def _flagged(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line that another content contradicts says so among its flags."""
    if not (entry["aside"] or entry["conflicts"]):
        return entry
    return {**entry, "flags": sorted({*entry["flags"], CONFLICT})}
