"""Watch streams from the log itself: one generation from its first record, or everything that is published now.

A generation is found by the time in its UUIDv7 (``offsets_for_times`` less the allowed skew), read by the one rule of
all readers, and followed to its terminal. No consumer group, nothing committed, no edge asked.
Before this file: the CLI. After it: ``kafka`` and ``schemas.reading``.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple

from compose.kafka import LogReader, Record, read_whole
from schemas.codec import Codec
from schemas.errors import Poison, SchemaUnknown, TokentrailError
from schemas.events import LogEvent
from schemas.ids import is_uuid7, start_ms
from schemas.partition import partition_of
from schemas.parts import Joiner
from schemas.reading import Reading, Verdict
from schemas.topics import EVENTS, SCHEMAS


class NotInLog(TokentrailError):
    """The log does not hold this generation."""


class Seen(NamedTuple):
    """One record as a watcher shows it. ``event`` None: it could not be decoded, and ``note`` says why."""

    partition: int
    offset: int
    timestamp_ms: int
    event: LogEvent | None
    note: str = ""


class Decoder:
    """Decodes events and joins their parts; asks the schemas topic for schemas that it does not know yet."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._codec = Codec()
        self._joiners: dict[bytes, Joiner] = {}

    async def decode(self, record: Record) -> Seen | None:
        """The record, decoded; None for a part whose record is not complete yet."""
        try:
            event = await self._event(record)
        except Poison as poison:
            return Seen(record.partition, record.offset, record.timestamp_ms, None, str(poison))
        if event.part is not None:
            joiner = self._joiners.setdefault(record.key or b"", Joiner(self._codec))
            whole = joiner.offer(event, record.offset)
            if whole is None:
                return None
            del self._joiners[record.key or b""]
            event = whole
        return Seen(record.partition, record.offset, record.timestamp_ms, event)

    async def _event(self, record: Record) -> LogEvent:
        try:
            return self._codec.decode(record.value, LogEvent)
        except SchemaUnknown as unknown:
            for announced in await read_whole(self._bootstrap_servers, SCHEMAS.name):
                if announced.value is not None:
                    self._codec.learn(announced.value.decode())
            if not self._codec.knows(unknown.fingerprint):
                raise Poison("undecodable", f"nobody has announced schema {unknown.fingerprint}") from unknown
            return self._codec.decode(record.value, LogEvent)


async def follow_one(
    bootstrap_servers: str, generation_id: str, *, skew_s: int
) -> AsyncGenerator[Seen, None]:
    """Every delivered and every trace record of one generation, from its start to its terminal, waiting where it runs.

    Raises NotInLog where the log holds no record of it, or no longer its beginning.
    """
    if not is_uuid7(generation_id):
        raise NotInLog(
            f"{generation_id!r} is no generation id. `tokentrail tail` without an id shows those that run."
        )
    key = generation_id.encode()
    earliest_ms, latest_ms = start_ms(generation_id) - skew_s * 1000, start_ms(generation_id) + skew_s * 1000
    decoder, reading, opened = Decoder(bootstrap_servers), Reading(), False
    async with LogReader(bootstrap_servers) as log:
        partition = partition_of(key, len(await log.partitions(EVENTS.name)))
        (start,) = (await log.offsets_at(EVENTS.name, [partition], earliest_ms)).values()
        async for batch in log.read(EVENTS.name, {partition: start}):
            for record in batch:
                if record.key == key:
                    opened = True
                    seen = await decoder.decode(record)
                    if seen is not None and _is_shown(seen, reading):
                        yield seen
                    if reading.ended:
                        return
                elif not opened and record.timestamp_ms > latest_ms:
                    raise _not_in_log(generation_id)
            if not batch and not opened and time.time_ns() // 1_000_000 > latest_ms:
                raise _not_in_log(generation_id)


async def follow_all(bootstrap_servers: str) -> AsyncIterator[Seen]:
    """Every record of every generation that is published from now on."""
    decoder = Decoder(bootstrap_servers)
    async with LogReader(bootstrap_servers) as log:
        bounds = await log.bounds(EVENTS.name, await log.partitions(EVENTS.name))
        async for batch in log.read(EVENTS.name, {p: end for p, (_, end) in bounds.items()}):
            for record in batch:
                seen = await decoder.decode(record)
                if seen is not None:
                    yield seen


def text_of(event: LogEvent) -> str:
    """What a record says, in one line for people: its content, else what its kind has of its own."""
    said = "".join(part.text for part in event.canonical if part.is_content)
    if said:
        return said
    if event.message_start is not None:
        said = f"model {event.message_start.model}, request {event.message_start.request_id}"
    elif event.attempt_start is not None:
        start = event.attempt_start
        said = f"attempt {event.attempt}: {start.provider} / {start.model} ({start.reason})"
    elif event.attempt_end is not None:
        end = event.attempt_end
        said = f"attempt {event.attempt}: {end.outcome.value}" + (
            f", {end.error_code}" if end.error_code else ""
        )
    elif event.message_end is not None:
        said = f"finish {event.message_end.finish_reason}"
    elif event.error is not None:
        said = f"{event.error.code}: {event.error.message}"
    elif event.heartbeat is not None:
        said = f"{event.heartbeat.stage.value}, {event.heartbeat.elapsed_ms} ms"
    elif event.cancel is not None:
        said = f"{event.cancel.mode}, {event.cancel.reason}"
    elif event.client is not None:
        said = f"reader {event.client.reader_id}" + (
            f", {event.client.reason}" if event.client.reason else ""
        )
    return said


def _is_shown(seen: Seen, reading: Reading) -> bool:
    if seen.event is None or seen.event.seq is None:
        return True
    return reading.offer(seen.event) is not Verdict.SKIP


def _not_in_log(generation_id: str) -> NotInLog:
    return NotInLog(
        f"The log holds no generation {generation_id}. Where its retention has passed ClickHouse may still have it: "
        f"`tokentrail show {generation_id}`."
    )
