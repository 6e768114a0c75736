"""A row of the archive as the record that it was made of. Pure.

A row of ``events`` has all that its record had, so an event read from it is the record's own: the same frames, byte for
byte, and under the same ids, since partition and offset are kept. Before: ``archive`` asks. After: ``past``.
"""

from typing import Any, NamedTuple

import msgspec

from edge.generation import Delivered
from schemas.events import (
    AttemptEnd,
    AttemptStart,
    CancelRequested,
    Canonical,
    ClientReader,
    ErrorEnd,
    Heartbeat,
    Kind,
    LogEvent,
    MessageEnd,
    MessageStart,
    Struct,
    ToolStatus,
    Usage,
)

COLUMNS = (
    "`partition`, `offset`, key_id, dialect, kind, seq, after_seq, attempt, wall, edge_id, elapsed_ms, paused_ms, "
    "raw_event, raw, canonical, payload"
)
"""In the order in which ``event_of`` takes them."""


class Found(NamedTuple):
    """What the archive knows of a generation.

    ``first_seq`` is the lowest that it holds, None for none; ``ended``: with a terminal. ``last_offset`` and
    ``last_wall_us`` are those of the last record of any kind; ``erased``: forgotten on request; ``readable``: with the
    text that was streamed, which can be switched off.
    """

    generation_id: str
    tenant: str
    key_id: str
    dialect: str
    partition: int
    first_seq: int | None
    last_offset: int
    last_wall_us: int
    ended: bool
    erased: bool
    readable: bool


class _Payload(Struct, frozen=True, kw_only=True):
    """What a record's kind had of its own, as the column ``payload`` holds it."""

    message_start: MessageStart | None = None
    message_end: MessageEnd | None = None
    error: ErrorEnd | None = None
    usage: Usage | None = None
    heartbeat: Heartbeat | None = None
    attempt_start: AttemptStart | None = None
    attempt_end: AttemptEnd | None = None
    cancel: CancelRequested | None = None
    tool_status: ToolStatus | None = None
    client: ClientReader | None = None


_canonical = msgspec.json.Decoder(list[Canonical])
_payload = msgspec.json.Decoder(_Payload)
_KINDS = {kind.value: kind for kind in Kind}


def event_of(found: Found, row: tuple[Any, ...]) -> Delivered | None:
    """The record that a row was made of, and where it lay; None for one that this version cannot read."""
    partition, offset, key_id, dialect, kind, seq, after_seq, attempt, wall_us, edge_id, *said = row
    elapsed_ms, paused_ms, raw_event, raw, canonical, payload = said
    try:
        own = _payload.decode(payload) if payload else _Payload()
        parts = _canonical.decode(canonical) if canonical else []
    except msgspec.MsgspecError:
        return None
    event = LogEvent(
        generation_id=found.generation_id,
        tenant=found.tenant,
        key_id=key_id,
        dialect=dialect,
        kind=_KINDS.get(kind, Kind.UNKNOWN),
        wall_us=wall_us,
        edge_id=edge_id,
        seq=seq,
        after_seq=after_seq,
        attempt=attempt,
        elapsed_us=None if elapsed_ms is None else round(elapsed_ms * 1000),
        paused_us=round(paused_ms * 1000),
        raw_event=raw_event,
        raw=raw,
        canonical=parts,
        **{name: getattr(own, name) for name in _Payload.__struct_fields__},
    )
    return Delivered(event, partition, offset)
