"""The short way from a delta's bytes to its row: a fifth of the time of decoding the whole record.

Almost every record of a stream says the same as the one before it, but for its time, seq, raw data and text. So the
bytes in front (generation, tenant, key, dialect) and behind (the rest of its one canonical part, and all the fields
that are null) are compared with those of a record that was decoded in full, and only what differs is read. Whatever
looks otherwise is not judged here: it takes the long way (``intake``), from which this file learns.

Invariant: for every record the row is the one of the long way, or none (``tests/unit/test_express.py``).
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from schemas.codec import HEADER_BYTES, MAGIC
from schemas.events import Canonical, Kind, LogEvent, PartType
from sinks.rows import EVENTS, ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.codec import Codec
    from sinks.batch import RawRecord
    from sinks.store import Row

HEADS_MAX = 20_000
"""Generations whose front is remembered, some 300 bytes each; then all are forgotten and learned anew."""
TAILS_MAX = 1_000
TAIL_BYTES_MAX = 64
"""A longer end holds a sub-record: such records are rare, and no two are alike."""
READ_HERE = (
    "generation_id",
    "tenant",
    "key_id",
    "dialect",
    "kind",
    "wall_us",
    "edge_id",
    "seq",
    "after_seq",
    "attempt",
    "elapsed_us",
    "paused_us",
    "raw_event",
    "raw",
    "canonical",
)
"""The fields that are read one by one, in the order of the record; all behind them belong to the end."""

_KINDS = [kind.value for kind in Kind]
_NULL, _SOME = 0, 2  # indexes of ["null", T], as Avro writes them
_TEXT = 2 * list(PartType).index(PartType.TEXT)
_OPENING = '[{"type":"text","text":'
_AT = {name: i for i, name in enumerate(EVENTS.columns)}
_json = msgspec.json.Encoder()
T = TypeVar("T")


class _Head(NamedTuple):
    """What all records of one generation and edge begin with."""

    data: bytes
    edge: bytes
    tenant: str
    generation_id: str
    start: int
    key_id: str
    dialect: str
    edge_id: str


class Express:
    """Remembers how records begin and end.

    Raises ValueError where the contract's fields are no longer those that this file reads.
    """

    def __init__(self, codec: Codec) -> None:
        if LogEvent.__struct_fields__[: len(READ_HERE)] != READ_HERE or Canonical.__struct_fields__[:2] != (
            "type",
            "text",
        ):
            raise ValueError(
                "LogEvent begins with other fields than sinks/express.py reads: bring both together"
            )
        self._header = MAGIC + _fingerprint(codec)
        self._heads: dict[bytes | None, _Head] = {}
        self._ends: dict[bytes, str] = {}  # of records without a canonical part → nothing
        self._text_ends: dict[bytes, str] = {}  # behind the text of the one part → rest of its JSON

    def row(self, record: RawRecord) -> Row | None:
        """The row of a record that looks like one before it; None: take the long way."""
        head = self._heads.get(record.key)
        data = record.value
        if head is None or data is None or not data.startswith(head.data):
            return None
        try:
            return self._read(record, data, head)
        except (IndexError, UnicodeDecodeError):
            return None

    def learn(self, record: RawRecord, row: Row) -> None:
        """Remember how a record looks that the long way has read."""
        data = record.value or b""
        if data.startswith(self._header) and not row[_AT["payload"]]:
            with suppress(IndexError):  # it has no seq, or other fields that are not read here
                self._learn(record, data, row)

    def _learn(self, record: RawRecord, data: bytes, row: Row) -> None:
        at = HEADER_BYTES
        for _ in range(4):
            _, at = _string(data, at)
        _, edge_at = _long(data, at + 1)
        _, edge_end = _string(data, edge_at)
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        named = (
            row[_AT[name]] for name in ("tenant", "generation_id", "start", "key_id", "dialect", "edge_id")
        )
        self._heads[record.key] = head = _Head(data[:at], data[edge_at:edge_end], *named)  # type: ignore[arg-type]
        self._learn_end(data, row, head)

    def _learn_end(self, data: bytes, row: Row, head: _Head) -> None:
        *_, canonical_at = _fields(data, head)
        text, canonical = str(row[_AT["text"]]), str(row[_AT["canonical"]])
        if not canonical:
            ends, at, rest = self._ends, canonical_at, ""
        elif data[canonical_at : canonical_at + 2] == bytes((2, _TEXT)) and text:
            said, at = _string(data, canonical_at + 2)
            opening = _OPENING + _json.encode(said).decode()
            if said != text or not canonical.startswith(opening):
                return
            ends, rest = self._text_ends, canonical[len(opening) :]
        else:
            return
        if len(data) - at <= TAIL_BYTES_MAX:
            if len(ends) >= TAILS_MAX:
                ends.clear()
            ends[data[at:]] = rest

    def _read(self, record: RawRecord, data: bytes, head: _Head) -> Row | None:
        kind, wall_us, seq, attempt, elapsed_us, paused_us, raw_event, raw, at = _fields(data, head)
        if data[at] == _NULL:
            if self._ends.get(data[at:]) is None:
                return None
            text = canonical = ""
        elif data[at] == _SOME and data[at + 1] == _TEXT:
            text, at = _string(data, at + 2)
            rest = self._text_ends.get(data[at:])
            if rest is None or not text:
                return None
            canonical = f"{_OPENING}{_json.encode(text).decode()}{rest}"
        else:
            return None
        return (
            record.partition,
            record.offset,
            head.tenant,
            head.generation_id,
            head.start,
            head.key_id,
            head.dialect,
            _KINDS[kind],
            seq,
            None,
            attempt,
            wall_us,
            head.edge_id,
            ms(elapsed_us),
            paused_us / 1000,
            raw_event,
            raw,
            text,
            canonical,
            "",
            1,
        )


def _fields(
    data: bytes, head: _Head
) -> tuple[int, int, int, int, int | None, int, str | None, str | None, int]:
    """kind, wall_us, seq, attempt, elapsed_us, paused_us, raw_event, raw, and where canonical begins.

    Raises IndexError where the record looks otherwise.
    """
    at = len(head.data)
    kind, at = _long(data, at)
    wall_us, at = _long(data, at)
    if kind < 0 or not data.startswith(head.edge, at):
        raise IndexError
    seq, at = _optional(_long, data, at + len(head.edge))
    if seq is None or data[at] != _NULL:
        raise IndexError
    attempt, at = _long(data, at + 1)
    elapsed_us, at = _optional(_long, data, at)
    paused_us, at = _long(data, at)
    raw_event, at = _optional(_string, data, at)
    raw, at = _optional(_string, data, at)
    return kind, wall_us, seq, attempt, elapsed_us, paused_us, raw_event, raw, at


def _optional(read: Callable[[bytes, int], tuple[T, int]], data: bytes, at: int) -> tuple[T | None, int]:
    """A value of ``["null", T]``, and where it ends."""
    branch = data[at]
    if branch == _SOME:
        return read(data, at + 1)
    if branch != _NULL:
        raise IndexError
    return None, at + 1


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends; IndexError for one that may not fit 63 bits."""
    byte = data[at]
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    if shift > 63:  # noqa: PLR2004 - seven bits a byte, nine bytes
        raise IndexError
    return (value >> 1) ^ -(value & 1), at + 1


def _string(data: bytes, at: int) -> tuple[str, int]:
    """A string, and where it ends; IndexError where its length is negative."""
    length, at = _long(data, at)
    if length < 0:
        raise IndexError
    end = at + length
    return data[at:end].decode(), end


def _fingerprint(codec: Codec) -> bytes:
    (found,) = (
        fp for fp, schema in codec.own_schemas.items() if json.loads(schema)["name"] == LogEvent.__name__
    )
    return bytes.fromhex(found)
