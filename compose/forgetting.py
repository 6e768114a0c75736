"""Forget a generation: what it said goes from every reader's sight at once, from ClickHouse soon, from Kafka in time.

In this order: the word to all edges (they end it if it runs, and answer 410 from then on), its end in the log, then
``forgotten`` under its key, which the sinks obey. Behind the end nothing is said any more, so nothing comes after the
erasure. Every step may be taken twice: a run that died is simply run again. The receipt names the day by which Kafka's
own copy is gone. Before this file: ``commands.forget``. After it: ``kafka``, edges and sinks.
"""

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime

from compose.kafka import admin, publish
from compose.keys import say
from compose.tail import NotInLog, follow_one
from compose.target import Target
from compose.warehouse import query
from schemas.codec import Codec
from schemas.events import Kind, LogEvent
from schemas.ids import is_uuid7
from schemas.partition import partition_of
from schemas.records import ConfigKind, ConfigRecord, ForgottenEntry
from schemas.topics import EVENTS

WRITER = "cli"
LOOK_S = 10.0
"""The log is read from the generation's time on: it is found within this, or it is not there."""
_POLL_S = 0.2
_OWNER = """
SELECT tenant, any(key_id) AS key_id, any(dialect) AS dialect, max(seq) AS last_seq,
    countIf(kind IN ('message_end', 'error')) > 0 OR countIf(kind = 'forgotten') > 0 AS ended
FROM events WHERE generation_id = {id:UUID} GROUP BY tenant
"""
_LEFT = "SELECT count() AS rows FROM events WHERE generation_id = {id:UUID} AND kind != 'forgotten'"
_MARKED = "SELECT count() AS rows FROM events WHERE generation_id = {id:UUID} AND kind = 'forgotten'"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was done. ``warehouse``: erased, pending (its sink is behind), or none. ``log_copy_gone_by``: null is never."""

    generation_id: str
    tenant: str
    ended: bool
    warehouse: str
    log_copy_gone_by: datetime | None


@dataclass(slots=True)
class _Seen:
    tenant: str
    key_id: str
    dialect: str
    last_seq: int | None = None
    ended: bool = False


async def forget(target: Target, generation_id: str, wait_s: float) -> Receipt:
    """Forget it; ``wait_s`` bounds the wait for its end and for ClickHouse. Raises NotInLog where nobody knows it."""
    if not is_uuid7(generation_id):
        raise NotInLog(f"{generation_id!r} is no generation id.")
    seen = await _look(target, generation_id, LOOK_S, first=True) or await _in_warehouse(
        target, generation_id
    )
    if seen is None:
        raise NotInLog(
            f"Neither the log nor ClickHouse holds a generation {generation_id}: nothing to forget."
        )
    entry = ForgottenEntry(tenant=seen.tenant, key_id=seen.key_id)
    await say(
        target.kafka,
        ConfigRecord(kind=ConfigKind.FORGOTTEN, name=generation_id, wall_us=_now_us(), forgotten=entry),
    )
    if not seen.ended:
        seen = await _look(target, generation_id, wait_s, first=False) or seen
    await _append(target.kafka, generation_id, seen)
    return Receipt(
        generation_id,
        seen.tenant,
        seen.ended,
        await _erased(target, generation_id, wait_s),
        await _log_copy_gone_by(target.kafka),
    )


async def _look(target: Target, generation_id: str, within_s: float, *, first: bool) -> _Seen | None:
    """What the log holds of it: up to its first record, or up to its end; None where it is not there."""
    seen: _Seen | None = None
    try:
        async with (
            asyncio.timeout(within_s),
            aclosing(
                follow_one(target.kafka, generation_id, skew_s=target.settings.resume.skew_s)
            ) as records,
        ):
            async for record in records:
                event = record.event
                if event is None:
                    continue
                seen = seen or _Seen(event.tenant, event.key_id, event.dialect)
                if event.seq is not None:
                    seen.last_seq, seen.ended = event.seq, event.is_terminal
                if first:
                    break
    except (TimeoutError, NotInLog):
        return seen
    return seen


async def _in_warehouse(target: Target, generation_id: str) -> _Seen | None:
    if target.clickhouse is None:
        return None
    rows = await asyncio.to_thread(query, target.clickhouse, _OWNER, {"id": generation_id})
    if not rows:
        return None
    row = rows[0]
    return _Seen(row["tenant"], row["key_id"], row["dialect"], row["last_seq"], bool(row["ended"]))


async def _append(bootstrap_servers: str, generation_id: str, seen: _Seen) -> None:
    event = LogEvent(
        generation_id=generation_id,
        tenant=seen.tenant,
        key_id=seen.key_id,
        dialect=seen.dialect,
        kind=Kind.FORGOTTEN,
        wall_us=_now_us(),
        edge_id=WRITER,
        after_seq=seen.last_seq,
    )
    key = generation_id.encode()
    partition = partition_of(key, EVENTS.partitions)
    await publish(bootstrap_servers, EVENTS.name, [(key, Codec().encode(event))], partition=partition)


async def _erased(target: Target, generation_id: str, wait_s: float) -> str:
    """Whether ClickHouse holds nothing but the mark."""
    if target.clickhouse is None:
        return "none"
    deadline_s = time.monotonic() + wait_s
    while True:
        marked, left = [
            (await asyncio.to_thread(query, target.clickhouse, sql, {"id": generation_id}))[0]["rows"]
            for sql in (_MARKED, _LEFT)
        ]
        if marked and not left:
            return "erased"
        if time.monotonic() > deadline_s:
            return "pending"
        await asyncio.sleep(_POLL_S)  # the sink's own pace: another process, which says nothing


async def _log_copy_gone_by(bootstrap_servers: str) -> datetime | None:
    """The latest day: a segment is closed at its own age, and deleted when its last record is past retention."""
    async with admin(bootstrap_servers) as cluster:
        live = (await cluster.topics([EVENTS.name]))[EVENTS.name].effective
    retention_ms, segment_ms = int(live.get("retention.ms", -1)), int(live.get("segment.ms", -1))
    if min(retention_ms, segment_ms) < 0:
        return None
    return datetime.fromtimestamp(_now_us() / 1e6 + (retention_ms + segment_ms) / 1000, UTC)


def _now_us() -> int:
    return time.time_ns() // 1000
