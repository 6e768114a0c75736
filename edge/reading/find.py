"""Where a generation lies in the log: by its cursor's hint, else by the time inside its id.

A hint is believed only if the record at that offset is of this generation and seq. Without one, ``message_start`` lies
within ``resume.skew_s`` of the UUIDv7's time, either side: only that window is searched, its middle first. Nobody scans a
partition from its beginning. Who may see one tenant's generations alone has another's looked for as long as one that never
was: how long it takes says nothing either. Before: ``log``. After: ``resume``, ``past``.
"""

from typing import NamedTuple

from edge.log import EventLog, OffsetGone
from edge.reading.decode import record_of, whole_event
from schemas.codec import Codec
from schemas.cursor import Cursor
from schemas.events import LogEvent
from schemas.ids import start_ms
from schemas.partition import partition_of
from schemas.parts import Joiner

NEAR_MS = 1_000
"""Clocks that agree put ``message_start`` here, so a minute of others' records is read only where they do not."""


class Located(NamedTuple):
    """A record of the generation and its offset: the one at the hint, or the first that was found."""

    event: LogEvent
    partition: int
    offset: int
    at_hint: bool


async def at_hint(log: EventLog, codec: Codec, generation_id: str, cursor: Cursor) -> Located | None:
    """The event that the cursor's hint points at; None where it is not there."""
    partition = partition_of(generation_id.encode(), log.partitions)
    if cursor.offset is None or cursor.partition != partition:
        return None
    event = await lies_at(log, codec, generation_id, partition, cursor.offset)
    if event is None or event.seq != cursor.seq:
        return None
    return Located(event, partition, cursor.offset, at_hint=True)


async def lies_at(
    log: EventLog, codec: Codec, generation_id: str, partition: int, offset: int
) -> LogEvent | None:
    """The generation's record at an offset; None where that is gone, not there yet, or another's."""
    first, end = await log.bounds(partition)
    if not first <= offset < end:
        return None
    reader = log.reader(partition, generation_id.encode(), offset, every=True)
    try:
        progress = await reader.read()
    except OffsetGone:
        return None
    finally:
        reader.close()
    if not progress.records or progress.records[0].offset != offset:
        return None
    return await record_of(log, codec, progress.records[0].value)


async def by_time(
    log: EventLog, codec: Codec, generation_id: str, skew_ms: int, now_ms: int, tenant: str | None = None
) -> Located | None:
    """The first record of the generation that the log holds in its window; None where there is none (of the tenant)."""
    started_ms = start_ms(generation_id)
    if started_ms > now_ms + skew_ms:
        return None
    near = min(NEAR_MS, skew_ms)
    found = await first_between(log, codec, generation_id, started_ms - near, started_ms + near, tenant)
    if found is not None and found.event.seq == 0:
        return found
    return await first_between(log, codec, generation_id, started_ms - skew_ms, started_ms + skew_ms, tenant)


async def first_between(
    log: EventLog, codec: Codec, generation_id: str, from_ms: int, until_ms: int, tenant: str | None = None
) -> Located | None:
    """The generation's first whole record that was appended in a span of time; None where there is none (of the tenant)."""
    partition = partition_of(generation_id.encode(), log.partitions)
    offset = await log.offset_at(partition, from_ms)
    if offset is None:
        return None
    reader = log.reader(partition, generation_id.encode(), offset, every=True)
    joiner, foreign = Joiner(codec), False
    try:
        while True:
            progress = await reader.read()
            for raw in () if foreign else progress.records:
                whole = await whole_event(log, codec, joiner, raw.value, raw.offset)
                if whole is not None and tenant not in (None, whole.tenant):
                    foreign = True
                    break
                if whole is not None:  # one in parts is read from its first part
                    begins_at = raw.offset if joiner.first_offset is None else joiner.first_offset
                    return Located(whole, partition, begins_at, at_hint=False)
            beyond = progress.timestamp_ms is not None and progress.timestamp_ms > until_ms
            if progress.caught_up or beyond:
                return None
    except OffsetGone:
        return None
    finally:
        reader.close()


async def holds_window(log: EventLog, generation_id: str, skew_ms: int) -> bool:
    """Whether the log still holds the whole span in which a generation can have begun: what is not there never was."""
    partition = partition_of(generation_id.encode(), log.partitions)
    first, end = await log.bounds(partition)
    offset = await log.offset_at(partition, start_ms(generation_id) - skew_ms)
    return first < (end if offset is None else offset)
