"""Where a generation lies in the log: by its cursor's hint, else by the time inside its id.

A hint is believed only if the record at that offset is of this generation and seq. Without one, ``message_start`` lies
within ``resume.skew_s`` of the UUIDv7's time, either side: only that window is searched. Nobody scans a partition from
its beginning. Before: ``log``. After: ``resume``.
"""

from typing import NamedTuple

from edge.decode import record_of, whole_event
from edge.log import EventLog, OffsetGone
from schemas.codec import Codec
from schemas.cursor import Cursor
from schemas.events import LogEvent
from schemas.ids import start_ms
from schemas.partition import partition_of
from schemas.parts import Joiner


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
    first, end = await log.bounds(partition)
    if not first <= cursor.offset < end:
        return None
    reader = log.reader(partition, generation_id.encode(), cursor.offset, every=True)
    try:
        progress = await reader.read()
    except OffsetGone:
        return None
    finally:
        reader.close()
    if not progress.records or progress.records[0].offset != cursor.offset:
        return None
    event = await record_of(log, codec, progress.records[0].value)
    if event is None or event.seq != cursor.seq:
        return None
    return Located(event, partition, cursor.offset, at_hint=True)


async def by_time(
    log: EventLog, codec: Codec, generation_id: str, skew_ms: int, now_ms: int
) -> Located | None:
    """The first record of the generation that the log holds in its window; None where there is none."""
    started_ms = start_ms(generation_id)
    if started_ms > now_ms + skew_ms:
        return None
    partition = partition_of(generation_id.encode(), log.partitions)
    offset = await log.offset_at(partition, started_ms - skew_ms)
    if offset is None:
        return None
    reader = log.reader(partition, generation_id.encode(), offset, every=True)
    joiner = Joiner(codec)
    try:
        while True:
            progress = await reader.read()
            for raw in progress.records:
                whole = await whole_event(log, codec, joiner, raw.value, raw.offset)
                if whole is not None:
                    return Located(whole, partition, raw.offset, at_hint=False)
            beyond = progress.timestamp_ms is not None and progress.timestamp_ms > started_ms + skew_ms
            if progress.caught_up or beyond:
                return None
    except OffsetGone:
        return None
    finally:
        reader.close()
