"""The shell around the fold: read → fold → send → commit, and the finder beside it.

The order of one turn is written once, in ``_turn``: records are folded, everything that came out of them (rows and dead
letters) is acknowledged, only then may a commit say so. A rebalance waits for the turn in progress; what was read before
it and folded after it is dropped, since those partitions begin anew at their commit.

This file owns the clock, the lock and the errors: Poison → dead letter; Transient → the same again, bounded backoff, no
end and no overtaking; anything else leaves ``run`` and ends the worker. Before: ``app``. After: ``fold``, ``finder``,
``kafka``.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from pipeline.dead_letters import STAGE_FOLD, Source, letter
from pipeline.finder import Finder, Watched
from pipeline.fold import FoldPartition, Limits, Output, Safe
from pipeline.kafka import Committed, FoldConsumer, Message, Producer
from pipeline.orphans import LogWatch, Patience
from pipeline.schema_topic import SchemaTopic
from pipeline.schema_wait import SchemaPatience, Waiting
from schemas.codec import Codec, check_key
from schemas.errors import Poison, SchemaUnknown, TokentrailError, Transient
from schemas.events import LogEvent
from schemas.records import AttemptRecord
from schemas.settings import Settings
from schemas.stopping import to_the_end
from schemas.topics import ATTEMPTS, DEAD_LETTERS, EVENTS, FOLD_GROUP, GENERATIONS

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
STATUS_EVERY_S = 10.0
STRAYS_MIN = 1_000
"""Strays of one partition at least, whatever the worker's share of them."""

_TOLD = (
    *("records", "duplicates", "conflicts", "late", "unknown_kinds", "strays_dropped", "gaps"),
    *("attempts", "generations"),
)

log = structlog.get_logger(__name__)


class Stopping(TokentrailError):
    """The worker is asked to end while something cannot be acknowledged: nothing is committed, it is read again."""


class FoldService:
    """The fold of this worker's partitions.

    Args:
        settings: everything.
        codec: of the process.
        producer: started by its owner.
        schemas: the schemas topic.
        instance_id: stable over restarts of this worker.
    """

    def __init__(
        self, settings: Settings, codec: Codec, producer: Producer, schemas: SchemaTopic, instance_id: str
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._producer = producer
        self._schemas = schemas
        self._consumer = FoldConsumer(settings.kafka, FOLD_GROUP, instance_id, self._assigned, self._revoked)
        self._patience = Patience(
            orphan_after_us=round(settings.pipeline.orphan_after_s * 1e6),
            generation_us=round(settings.timeout.generation_s * 1e6),
        )
        self._schema_patience = SchemaPatience(round(settings.pipeline.schema_wait_s * 1e6))
        self._limits = Limits(
            stall_threshold_us=settings.stream.stall_threshold_ms * 1000,
            stray_records_max=max(STRAYS_MIN, settings.pipeline.stray_records_max // EVENTS.partitions),
            closed_ids_max=settings.pipeline.closed_ids_max // EVENTS.partitions,
        )
        self._partitions: dict[int, Watched] = {}
        self._committed: dict[int, Safe] = {}
        self._lock = asyncio.Lock()
        self._epoch = 0
        self._ready = False
        self._stopping = asyncio.Event()
        self.dead_letters = 0

    def stop(self) -> None:
        """Finish the turn in progress, commit, and let ``run`` return."""
        self._stopping.set()

    def left(self) -> str | None:
        """What was folded and is not committed, in words; None where nothing is."""
        committed = self._committed
        behind = [str(p) for p, at in sorted(self._partitions.items()) if committed.get(p) != at.fold.safe()]
        return f"not committed in partitions {', '.join(behind)}" if behind else None

    def lag(self) -> int:
        """Records behind the ends of this worker's partitions, as of their last fetch."""
        ends = {partition: self._consumer.end_seen(partition) for partition in self._partitions}
        return sum(end - self._partitions[p].fold.position for p, end in ends.items() if end is not None)

    def open_count(self) -> int:
        """Generations without a terminal."""
        return sum(watched.fold.open_count for watched in self._partitions.values())

    def total(self, name: str) -> int:
        """A counter of all folds of the partitions that are this worker's now."""
        return sum(getattr(watched.fold.counters, name) for watched in self._partitions.values())

    async def run(self) -> None:
        """Fold until ``stop``. What leaves it besides its return is a reason to end the worker."""
        await self._consumer.start()
        finder = Finder(self._consumer, self._producer, self._codec, self._patience, self._partitions)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(to_the_end(self._fold_until_stopped()))
                tasks.create_task(to_the_end(finder.run(self._stopping)))
        finally:
            await self._consumer.stop()

    async def _fold_until_stopped(self) -> None:
        next_commit_us = next_status_us = 0
        while not self._stopping.is_set():
            batches = await self._consumer.batches()
            epoch = self._epoch
            async with self._lock:
                if epoch == self._epoch:
                    await self._turn(batches)
                if now_us() >= next_commit_us:
                    await self._commit(list(self._partitions))
                    next_commit_us = now_us() + round(self._settings.pipeline.commit_interval_s * 1e6)
            if now_us() >= next_status_us:
                self._tell()
                next_status_us = now_us() + round(STATUS_EVERY_S * 1e6)
            await asyncio.sleep(0)  # the client may have more at hand: let the others run first
        async with self._lock:
            await self._commit(list(self._partitions))

    async def _turn(self, batches: Mapping[int, Sequence[Any]]) -> None:
        """Fold what was read, and have everything that comes out of it acknowledged."""
        messages: list[Message] = []
        for partition, watched in self._partitions.items():
            records = batches.get(partition, ())
            if watched.waiting is not None:
                records = await self._resumed(partition, watched, watched.waiting, records)
            if records:
                messages += self._folded(partition, watched, records)
        for partition, watched in self._partitions.items():
            fold = watched.fold
            if fold.waits_for_end and fold.position == self._consumer.end_seen(partition):
                messages += [self._message(output) for output in fold.at_end()]
        await self._acknowledged(messages)
        open_count = self.open_count()
        if open_count > self._settings.pipeline.open_generations_max:
            raise TokentrailError(
                f"{open_count} generations are open, more than pipeline.open_generations_max: "
                "raise it (about 2 KiB each) or start another worker"
            )

    def _folded(self, partition: int, watched: Watched, records: Sequence[Any]) -> list[Message]:
        """Fold records in order, up to the first one whose schema is to be waited for."""
        messages: list[Message] = []
        read_us = now_us()
        fold, decode = watched.fold, self._codec.decode
        for index, record in enumerate(records):
            try:
                try:
                    event = decode(record.value, LogEvent)
                except SchemaUnknown as unknown:
                    if self._waits(partition, watched, unknown.fingerprint, records[index:]):
                        break
                    raise Poison("schema_version", str(unknown)) from unknown
                check_key(record.key, event.generation_id)
                outputs = fold.step(record.offset, event, read_us)
            except Poison as poison:
                fold.skip(record.offset)
                if record.offset >= fold.emit_from:
                    messages.append(self._letter(partition, record, poison))
                continue
            if outputs:
                messages += [self._message(output) for output in outputs]
        return messages

    def _waits(self, partition: int, watched: Watched, fingerprint: str, records: Sequence[Any]) -> bool:
        """Stop the partition at a record of an unknown schema, unless that was settled before."""
        if records[0].offset < watched.fold.emit_from:
            return False
        watched.waiting = self._schema_patience.wait(fingerprint, records, now_us())
        if watched.waiting is None:
            return False
        self._consumer.pause(partition)
        log.warning("a partition waits for a schema", partition=partition, fingerprint=fingerprint)
        return True

    async def _resumed(
        self, partition: int, watched: Watched, waiting: Waiting, records: Sequence[Any]
    ) -> Sequence[Any]:
        """What can be folded now that was waited with: nothing, or all of it."""
        waiting.records += records
        if not waiting.is_due(now_us()):
            return ()
        try:
            await self._schemas.learn()
        except Transient as failure:
            log.warning("the schemas topic cannot be read", error=str(failure))
        known = self._codec.knows(waiting.fingerprint)
        if not known and not self._schema_patience.give_up(waiting, now_us()):
            waiting.again(now_us())
            return ()
        watched.waiting = None
        self._consumer.resume(partition)
        return waiting.records

    async def _acknowledged(self, messages: Sequence[Message]) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                await self._producer.send_all(messages)
            except Transient as failure:
                backoff_s = await self._pause(backoff_s, failure)
            else:
                return

    async def _pause(self, backoff_s: float, failure: Transient) -> float:
        """Wait before the next try; the backoff after that. Stopping where the worker is asked to end."""
        log.warning("waiting for the log", error=str(failure), backoff_s=backoff_s)
        try:
            async with asyncio.timeout(backoff_s):
                await self._stopping.wait()
        except TimeoutError:
            return min(backoff_s * 2, BACKOFF_MAX_S)
        raise Stopping("stopped while the log takes no records; what was read is read again") from failure

    async def _commit(self, partitions: Sequence[int]) -> None:
        """Commit what changed. The caller holds the lock and every output is acknowledged."""
        safe = {partition: self._partitions[partition].fold.safe() for partition in partitions}
        changed = {partition: at for partition, at in safe.items() if self._committed.get(partition) != at}
        try:
            await self._consumer.commit(changed)
        except Transient as failure:
            log.warning("no commit this time", error=str(failure))
        else:
            self._committed |= changed

    async def _assigned(self, committed: Mapping[int, Committed]) -> None:
        self._epoch += 1
        async with self._lock:
            for partition, at in committed.items():
                fold = FoldPartition(
                    self._codec, self._limits, position=at.offset, emit_from=at.emitted_below
                )
                self._partitions[partition] = Watched(fold, LogWatch(now_us()))
        log.info("pipeline ready" if not self._ready else "partitions taken over", partitions=len(committed))
        self._ready = True

    async def _revoked(self, partitions: Sequence[int]) -> None:
        self._epoch += 1
        async with self._lock:
            mine = [partition for partition in partitions if partition in self._partitions]
            await self._commit(mine)
            for partition in mine:
                del self._partitions[partition]
                self._committed.pop(partition, None)

    def _message(self, output: Output) -> Message:
        topic = ATTEMPTS if isinstance(output, AttemptRecord) else GENERATIONS
        return Message(topic.name, output.generation_id.encode(), self._codec.encode(output))

    def _letter(self, partition: int, record: Any, poison: Poison) -> Message:
        source = Source(EVENTS.name, partition, record.offset, record.key, record.value)
        self.dead_letters += 1
        log.error(
            "dead letter",
            partition=partition,
            offset=record.offset,
            reason=poison.reason,
            detail=poison.detail,
        )
        return Message(
            DEAD_LETTERS.name, *letter(source, poison, stage=STAGE_FOLD, failed_us=time.time_ns() // 1000)
        )

    def _tell(self) -> None:
        """One line of numbers."""
        log.info(
            "fold",
            lag=self.lag(),
            open=self.open_count(),
            dead_letters=self.dead_letters,
            **{name: self.total(name) for name in _TOLD},
        )


def now_us() -> int:
    """The finder's own monotonic clock."""
    return time.monotonic_ns() // 1000
