"""The short way from a delta's bytes to its row: a third of the time of decoding the whole record.

Almost every record of a stream says the same as the one before it, but for its time, seq, raw data and text. So the
bytes in front (generation, tenant, key, dialect), those of the edge and those behind (the rest of its one canonical part,
and all the fields that are null) are compared with those of a record that was decoded in full, and only what differs is
read. Whatever looks otherwise is not judged here: it takes the long way (``intake``), from which this file learns.

``_read`` is one straight function, since a call costs as much as a field. A text that ends behind the bytes is not looked
at where it stands: what follows it is then nothing, which is no known end.

Invariant: for every record the row is the one of the long way, or none (``tests/unit/test_express.py``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from schemas.avro_reader import Unusual, unsigned
from schemas.avro_writer import string_bytes
from schemas.codec import MAGIC
from schemas.events import Canonical, Kind, LogEvent, PartType
from sinks.rows import EVENTS

if TYPE_CHECKING:
    from schemas.codec import Codec
    from sinks.batch import RawRecord
    from sinks.store import Row

HEADS_MAX = 20_000
"""Generations whose front is remembered, some 300 bytes each; then all are forgotten and learned anew."""
ENDS_MAX = 1_000
END_BYTES_MAX = 64
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

_NULL, _SOME = b"\0", b"\2"  # branches of ["null", T], as Avro writes them
_KINDS = {2 * nth: kind.value for nth, kind in enumerate(Kind)}
_ATTEMPTS = {_NULL + bytes([2 * attempt]) + _SOME: attempt for attempt in range(64)}
"""No after_seq, the number of the attempt, some elapsed_us."""
_PAUSE_AND_EVENT = b"\0" + _NULL
"""Not paused, no raw_event."""
_ONE_PART = _SOME
"""How a list begins that holds one value, and no size before it."""
_AT = {name: i for i, name in enumerate(EVENTS.columns)}
_SAID = [_AT[name] for name in ("generation_id", "tenant", "key_id", "dialect", "edge_id")]
_json = msgspec.json.Encoder().encode


class _Head(NamedTuple):
    """What all records of one generation and edge have in common: from the first byte, and from the edge to the seq."""

    front: bytes
    edge: bytes
    generation_id: str
    tenant: str
    key_id: str
    dialect: str
    edge_id: str
    start: object


class _Part(NamedTuple):
    """Canonical as one part of a type: how its JSON begins, and the rest of it by what is behind the text."""

    opening: str
    is_text: bool
    ends: dict[bytes, str]


class _Unknown(NamedTuple):
    """An end that was not known, where it belongs, and what the row's text and the beginning of its JSON would have been."""

    record: RawRecord
    end: bytes
    ends: dict[bytes, str]
    text: str
    opening: str


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
        self._parts = {
            _ONE_PART + bytes([2 * nth]): _Part(f'[{{"type":"{each}","text":', each is PartType.TEXT, {})
            for nth, each in enumerate(PartType)
        }
        self._ends: dict[bytes, str] = {}  # of records without a text: from canonical on → all of its JSON
        self._unknown: _Unknown | None = None

    def row(self, record: RawRecord) -> Row | None:
        """The row of a record that looks like one before it; None: take the long way."""
        head = self._heads.get(record.key)
        data = record.value
        if head is None or data is None or not data.startswith(head.front):
            return None
        try:
            return self._read(record, data, head)
        except (KeyError, IndexError, UnicodeDecodeError, Unusual):
            return None

    def learn(self, record: RawRecord, row: Row) -> None:
        """Remember how a record looks that has a seq, and that the long way has read."""
        if row[_AT["payload"]]:
            return
        unknown = self._unknown
        if unknown is not None and unknown.record is record:
            _learn_end(unknown, row)
        else:
            self._learn_head(record, row)

    def _learn_head(self, record: RawRecord, row: Row) -> None:
        generation_id, tenant, key_id, dialect, edge_id = said = [str(row[at]) for at in _SAID]
        front = self._header + b"".join(map(string_bytes, said[:-1]))
        if (record.value or b"").startswith(front):
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            edge = string_bytes(edge_id) + _SOME
            self._heads[record.key] = _Head(
                front, edge, generation_id, tenant, key_id, dialect, edge_id, row[_AT["start"]]
            )

    def _read(self, record: RawRecord, data: bytes, head: _Head) -> Row | None:
        front, edge, generation_id, tenant, key_id, dialect, edge_id, start = head
        at = len(front)
        kind = _KINDS[data[at]]
        wall, at = unsigned(data, at + 1)
        if not data.startswith(edge, at):
            return None
        seq, at = unsigned(data, at + len(edge))
        attempt = _ATTEMPTS[data[at : at + 3]]
        elapsed, at = unsigned(data, at + 3)
        if data.startswith(_PAUSE_AND_EVENT, at):
            paused, raw_event, at = 0, None, at + 2
        else:
            paused, at = unsigned(data, at)
            raw_event, at = _text_or_none(data, at)
        raw, at = _text_or_none(data, at)
        if (wall | seq | elapsed | paused) & 1:
            return None  # a negative number
        part = self._parts.get(data[at : at + 2])
        if part is not None and data[at + 2]:
            opening, is_text, ends = part
            said, at = _string(data, at + 2)
            if not said:
                return None  # its zero is written at length: the JSON of no text is another
            opening += _json(said).decode()
            text = said if is_text else ""
        else:
            opening, text, ends = "", "", self._ends
        rest = ends.get(data[at:])
        if rest is None:
            self._unknown = _Unknown(record, data[at:], ends, text, opening)
            return None
        return (
            record.partition,
            record.offset,
            tenant,
            generation_id,
            start,
            key_id,
            dialect,
            kind,
            seq >> 1,
            None,
            attempt,
            wall >> 1,
            edge_id,
            (elapsed >> 1) / 1000,
            (paused >> 1) / 1000,
            raw_event,
            raw,
            text,
            opening + rest,
            "",
            1,
        )


def _learn_end(unknown: _Unknown, row: Row) -> None:
    _, end, ends, text, opening = unknown
    canonical = str(row[_AT["canonical"]])
    if len(end) <= END_BYTES_MAX and row[_AT["text"]] == text and canonical.startswith(opening):
        if len(ends) >= ENDS_MAX:
            ends.clear()
        ends[end] = canonical[len(opening) :]


def _string(data: bytes, at: int) -> tuple[str, int]:
    """A string, and where it ends."""
    size, at = unsigned(data, at)
    if size & 1:
        raise Unusual("a negative length")
    end = at + (size >> 1)
    return data[at:end].decode(), end


def _text_or_none(data: bytes, at: int) -> tuple[str | None, int]:
    """A value of ``["null", "string"]``, and where it ends."""
    if data.startswith(_NULL, at):
        return None, at + 1
    if not data.startswith(_SOME, at):
        raise Unusual("a branch that is not there")
    return _string(data, at + 1)


def _fingerprint(codec: Codec) -> bytes:
    (found,) = (
        fp for fp, schema in codec.own_schemas.items() if json.loads(schema)["name"] == LogEvent.__name__
    )
    return bytes.fromhex(found)
