"""Records for tests of what reads the log: built short, encoded as the edge would."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from schemas.codec import Codec
from schemas.events import (
    AttemptEnd,
    Canonical,
    Dispatch,
    Kind,
    LogEvent,
    MessageStart,
    Outcome,
    PartType,
    Struct,
    Usage,
    UsageSource,
)
from schemas.ids import uuid7
from schemas.records import (
    AttemptRecord,
    AttemptSummary,
    GenerationRecord,
    LedgerLine,
    Side,
    StallRow,
    Timings,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

CODEC = Codec()
T0_US = 1_796_000_000_000_000
"""2026-11-29 or so; tests which store rows take the time of their run instead (tables have a time to live)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Raw:
    """A record as a consumer gives it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = T0_US // 1000
    headers: Sequence[tuple[str, bytes]] = ()


def raw_of(topic: str, partition: int, offset: int, value: Struct, **changes: Any) -> Raw:
    """The record that carries a value under its generation's key."""
    key = changes.pop("key", value.generation_id.encode())  # type: ignore[attr-defined]
    return Raw(topic, partition, offset, key, CODEC.encode(value), **changes)


def generation_id(number: int, at_us: int = T0_US) -> str:
    """The id of the n-th generation of a test."""
    return uuid7(at_us // 1000, number)


def event(gid: str, kind: Kind = Kind.DELTA, seq: int | None = 0, **changes: Any) -> LogEvent:
    """A log record with the usual fields filled in."""
    usual: dict[str, Any] = {
        "generation_id": gid,
        "tenant": "acme",
        "key_id": "key-1",
        "dialect": "openai.chat",
        "kind": kind,
        "wall_us": T0_US,
        "edge_id": "edge-1",
        "seq": seq,
        "elapsed_us": 1_500,
    }
    return LogEvent(**usual | changes)


def delta(gid: str, seq: int, text: str, **changes: Any) -> LogEvent:
    """A text delta."""
    return event(
        gid, seq=seq, raw=f'{{"t":"{text}"}}', canonical=[Canonical(type=PartType.TEXT, text=text)], **changes
    )


def start(gid: str, **changes: Any) -> LogEvent:
    """The first record of a generation."""
    opened = MessageStart(request_id="req-1", model="gpt-x", model_route="default", prompt_hash="ab" * 32)
    return event(gid, Kind.MESSAGE_START, 0, message_start=opened, **changes)


def attempt(gid: str, number: int = 0, revision: int = 1, **changes: Any) -> AttemptRecord:
    """An attempt that went well."""
    usual: dict[str, Any] = {
        "provider": "simulator",
        "model": "gpt-x",
        "request_id": "req-1",
        "started_us": T0_US,
        "outcome": Outcome.OK,
        "committed": True,
        "dispatch": Dispatch.ACCEPTED,
        "usage": Usage(input=10, output=5, source=UsageSource.REPORTED),
        "first_content_us": 120_001,
        "elapsed_us": 900_000,
    }
    return AttemptRecord(
        tenant="acme",
        key_id="key-1",
        generation_id=gid,
        attempt=number,
        revision=revision,
        dialect="openai.chat",
        edge_id="edge-1",
        wall_us=T0_US,
        end=AttemptEnd(**usual | changes),
    )


def generation(gid: str, revision: int = 7, **changes: Any) -> GenerationRecord:
    """A finalized generation with one stall."""
    usual: dict[str, Any] = {
        "status": "complete",
        "dialect": "openai.chat",
        "edge_id": "edge-1",
        "terminal": "message_end",
        "terminal_seq": 5,
        "start_wall_us": T0_US,
        "model": "gpt-x",
        "finish_reason": "stop",
        "timings": Timings(ttft_us=120_001, e2e_us=4_000_000, stall_us=2_500_500, stall_count=1),
        "usage": Usage(input=10, output=5, source=UsageSource.REPORTED),
        "attempts": [AttemptSummary(attempt=0, provider="simulator", model="gpt-x", committed=True)],
        "stalls": [StallRow(attempt=0, seq=2, content_index=1, start_us=200_000, length_us=2_500_500)],
    }
    return GenerationRecord(
        tenant="acme", generation_id=gid, key_id="key-1", revision=revision, **usual | changes
    )


def ledger(gid: str, bucket: str = "output", revision: int = 1, **changes: Any) -> LedgerLine:
    """A priced ledger line."""
    usual: dict[str, Any] = {
        "side": Side.CUSTOMER_CHARGE,
        "started_us": T0_US,
        "request_id": "req-1",
        "provider": "simulator",
        "model": "gpt-x",
        "quantity": 5,
        "unit_price": "0.000002",
        "amount": "0.00001",
        "usage_source": "reported",
        "content_hash": f"{bucket}-{revision}-{changes.get('amount', '')}",
    }
    return LedgerLine(
        tenant="acme",
        key_id="key-1",
        generation_id=gid,
        attempt=0,
        bucket=bucket,
        revision=revision,
        **usual | changes,
    )
