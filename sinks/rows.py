"""Rows: what each record becomes in its table. Pure.

One column, one line: the tables' columns are the keys of the maps below, in this order (a test compares them with the
DDL of ``sql/001_tables.sql``). Durations become milliseconds (Float64, exact to the microsecond), instants stay integer
microseconds (DateTime64(6, 'UTC') takes them as they are), money becomes Decimal. A value that its column could not
hold exactly is Poison here, so that a refusal by the store stays the exception.

Before: ``intake`` gives decoded records. After: ``derived`` has the maps of attempts, generations and ledger;
``batch`` collects.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from schemas.errors import Poison
from schemas.events import LogEvent, PartType
from schemas.ids import start_ms
from schemas.money import fits
from schemas.topics import DEAD_LETTERS as DEAD_LETTERS_TOPIC
from schemas.topics import EVENTS as EVENTS_TOPIC
from sinks.store import Row, Table

if TYPE_CHECKING:
    from sinks.batch import RawRecord

Column = Callable[[Any], object]
Columns = dict[str, Column]

START_US_MAX = 9_000_000_000_000_000
"""An id of a later time than the year 2255 is no id of ours: DateTime64(6) ends in 2299."""

_json = msgspec.json.Encoder()
_SUBRECORDS = (
    "message_start",
    "message_end",
    "error",
    "usage",
    "heartbeat",
    "attempt_start",
    "attempt_end",
    "cancel",
    "tool_status",
    "client",
)
_subrecords = attrgetter(*_SUBRECORDS)
_NO_SUBRECORDS = (None,) * len(_SUBRECORDS)

EVENTS = Table(
    name="events",
    topic=EVENTS_TOPIC,
    columns=(
        "partition",
        "offset",
        "tenant",
        "generation_id",
        "start",
        "key_id",
        "dialect",
        "kind",
        "seq",
        "after_seq",
        "attempt",
        "wall",
        "edge_id",
        "elapsed_ms",
        "paused_ms",
        "raw_event",
        "raw",
        "text",
        "canonical",
        "payload",
        "parts",
    ),
    key=("tenant", "generation_id", "partition", "offset"),
)

DEAD_LETTERS = Table(
    name="dead_letters",
    topic=DEAD_LETTERS_TOPIC,
    columns=(
        "topic",
        "partition",
        "offset",
        "stage",
        "reason",
        "detail",
        "failed",
        "key",
        "value",
        "letter_partition",
        "letter_offset",
    ),
    key=("topic", "partition", "offset", "stage"),
    binary=frozenset({"key", "value"}),
)


def event_row(event: LogEvent, partition: int, offset: int) -> Row:
    """The row of a log record; of a record in parts: joined, at the offset of its last part. Raises Poison."""
    subs = _subrecords(event)
    return (
        partition,
        offset,
        event.tenant,
        event.generation_id,
        start_us(event.generation_id),
        event.key_id,
        event.dialect,
        event.kind.value,
        event.seq,
        event.after_seq,
        event.attempt,
        event.wall_us,
        event.edge_id,
        ms(event.elapsed_us),
        event.paused_us / 1000,
        event.raw_event,
        event.raw,
        "".join([part.text for part in event.canonical if part.type is PartType.TEXT]),
        _json.encode(event.canonical).decode() if event.canonical else "",
        "" if subs == _NO_SUBRECORDS else _payload(subs),
        event.parts or 1,
    )


def dead_letter_row(record: RawRecord) -> Row:
    """The row of a dead letter. Never raises: what its headers do not say is taken from where the letter itself lies."""
    said = {name: value.decode(errors="replace") for name, value in record.headers if value is not None}
    known = all(_is_int64(said.get(name)) for name in ("partition", "offset")) and "topic" in said
    return (
        said["topic"] if known else record.topic,
        int(said["partition"]) if known else record.partition,
        int(said["offset"]) if known else record.offset,
        said.get("stage", ""),
        said.get("reason", ""),
        said.get("detail", ""),
        int(said["failed_us"]) if _is_int64(said.get("failed_us")) else record.timestamp * 1000,
        record.key or b"",
        record.value or b"",
        record.partition,
        record.offset,
    )


@lru_cache(maxsize=20_000)
def start_us(generation_id: str) -> int:
    """Unix microseconds of the time in a UUIDv7; raises Poison for any other id."""
    try:
        at_us = start_ms(generation_id) * 1000
    except ValueError as error:
        raise Poison("bad_field", f"generation_id: {error}") from error
    if at_us > START_US_MAX:
        raise Poison("bad_field", f"generation_id: the time in {generation_id} is out of range")
    return at_us


def ms(us: int | None) -> float | None:
    """Microseconds in milliseconds; null stays null."""
    return None if us is None else us / 1000


def money(text: str | None, field: str) -> Decimal | None:
    """The exact decimal of a plain decimal string; raises Poison for what Decimal(38, 18) could not hold exactly."""
    if text is None:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise Poison("bad_field", f"{field}: {text!r} is not a decimal") from error
    if not fits(value):
        raise Poison("bad_field", f"{field}: {text!r} does not fit Decimal(38, 18)")
    return value


def same(*names: str, of: str = "") -> Columns:
    """Columns that are fields of the record (or of the struct at the path ``of``), unchanged."""
    return {name: attrgetter(f"{of}{name}") for name in names}


def in_ms(*names: str, of: str = "", prefix: str = "") -> Columns:
    """Columns ``<name>_ms`` from fields ``<name>_us``."""

    def column(path: str) -> Column:
        get = attrgetter(path)
        return lambda record: ms(get(record))

    return {f"{prefix}{name}_ms": column(f"{of}{name}_us") for name in names}


def _payload(subs: tuple[object, ...]) -> str:
    held = {name: sub for name, sub in zip(_SUBRECORDS, subs, strict=True) if sub is not None}
    return _json.encode(held).decode()


def _is_int64(text: str | None) -> bool:
    return text is not None and text.lstrip("-").isdecimal() and abs(int(text)) < 1 << 63
