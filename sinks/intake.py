"""Intake: from a record's bytes to its row. Pure but for the parts of unfinished records that it holds.

A record of the log may come in parts (``schemas.parts``): its row is made when the last part came, at that part's
offset. While parts are missing nothing at or above the first part may be committed (``floor``), or a crash would lose
the beginning. A run of parts ends unfinished only where its edge died; it is given up when a numbered record behind it
comes, or when it is PARTS_AGE_MS old by the log's own time.

Before: ``kafka`` reads. After: ``batch`` collects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from schemas.codec import check_key
from schemas.events import Kind, LogEvent
from schemas.parts import Joiner
from schemas.records import AttemptRecord, GenerationRecord, LedgerLine
from sinks import derived, rows
from sinks.express import Express

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.codec import Codec
    from sinks.batch import RawRecord
    from sinks.store import Row, Table

PARTS_AGE_MS = 900_000
"""TIMEOUT__GENERATION_S: no edge publishes for longer than that, so parts of that age will never be whole."""

FORGOTTEN_MAX = 10_000
"""Keys erased lately: what a writer still had on its way is not stored. Seconds matter, so this is far too many."""

R = TypeVar("R", AttemptRecord, GenerationRecord, LedgerLine)

TABLES: tuple[Table, ...] = (
    rows.EVENTS,
    derived.ATTEMPTS,
    derived.GENERATIONS,
    derived.LEDGER,
    rows.DEAD_LETTERS,
)


class Intake(Protocol):
    """How the records of one topic become rows."""

    def row(self, record: RawRecord) -> Row | None:
        """The row, or None where the record is only a part of one. Raises Poison or SchemaUnknown."""

    def floor(self, partition: int) -> int | None:
        """The offset that must not be committed past, if any."""


def intake_of(table: Table, codec: Codec) -> Intake:
    """A fresh intake for a table."""
    if table is rows.EVENTS:
        return EventIntake(codec)
    if table is rows.DEAD_LETTERS:
        return PlainIntake(rows.dead_letter_row)
    if table is derived.ATTEMPTS:
        return PlainIntake(lambda r: _keyed(r, codec.decode(r.value, AttemptRecord), derived.attempt_row))
    if table is derived.GENERATIONS:
        return PlainIntake(
            lambda r: _keyed(r, codec.decode(r.value, GenerationRecord), derived.generation_row)
        )
    if table is derived.LEDGER:
        return PlainIntake(lambda r: _keyed(r, codec.decode(r.value, LedgerLine), derived.ledger_row))
    raise ValueError(f"no topic is stored in a table {table.name!r}")


class PlainIntake:
    """One record, one row."""

    def __init__(self, make: Callable[[RawRecord], Row]) -> None:
        self._make = make

    def row(self, record: RawRecord) -> Row:
        """The row of a record."""
        return self._make(record)

    def floor(self, partition: int) -> int | None:
        """Nothing is held."""
        del partition
        return None


@dataclass(slots=True)
class _Run:
    """The parts of one record so far."""

    partition: int
    first_offset: int
    since_ms: int
    seq: int | None
    joiner: Joiner = field(repr=False)


class EventIntake:
    """Rows of log records; joins what came in parts."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._express = Express(codec)
        self._runs: dict[str, _Run] = {}
        self._forgotten: dict[bytes | None, None] = {}
        self.given_up = 0

    def row(self, record: RawRecord) -> Row | None:
        """The row of a log record, None while parts of it are missing, and for what comes behind an erasure."""
        if self._forgotten and record.key in self._forgotten:
            return None
        if not self._runs and (known := self._express.row(record)) is not None:
            return known
        event = self._codec.decode(record.value, LogEvent)
        check_key(record.key, event.generation_id)
        if self._runs:
            self._give_up(event, record)
        if event.kind is Kind.FORGOTTEN:
            self._forget(record.key)
        if event.part is None:
            row = rows.event_row(event, record.partition, record.offset)
            if event.seq is not None:
                self._express.learn(record, row)
            return row
        whole = self._join(event, record)
        if whole is None:
            return None
        *values, _ = rows.event_row(whole, record.partition, record.offset)
        return (*values, event.parts)

    def _forget(self, key: bytes | None) -> None:
        if len(self._forgotten) >= FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]
        self._forgotten[key] = None

    def floor(self, partition: int) -> int | None:
        """The first part of the oldest unfinished record of the partition."""
        if not self._runs:
            return None
        return min((r.first_offset for r in self._runs.values() if r.partition == partition), default=None)

    def _join(self, event: LogEvent, record: RawRecord) -> LogEvent | None:
        if event.part == 0:
            self._runs[event.generation_id] = _Run(
                record.partition, record.offset, record.timestamp, event.seq, Joiner(self._codec)
            )
        run = self._runs.get(event.generation_id)
        if run is None:
            return None
        if event.part is not None and event.parts == event.part + 1:
            del self._runs[event.generation_id]
        return run.joiner.offer(event, record.offset)

    def _give_up(self, event: LogEvent, record: RawRecord) -> None:
        run = self._runs.get(event.generation_id)
        if run and event.part is None and event.seq is not None:
            del self._runs[event.generation_id]
            self.given_up += 1
        oldest = record.timestamp - PARTS_AGE_MS
        for generation_id, other in list(self._runs.items()):
            if other.partition == record.partition and other.since_ms < oldest:
                del self._runs[generation_id]
                self.given_up += 1


def _keyed(record: RawRecord, value: R, make: Callable[[R, int, int], Row]) -> Row:
    check_key(record.key, value.generation_id)
    return make(value, record.partition, record.offset)
