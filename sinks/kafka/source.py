"""The log as a sink reads it.

A partition begins where its group's commit stands, or at its beginning if there is none; aiokafka's own reset is off,
since it would skip what retention took without a word (here: ``LostRange``, which ends the process). Partitions are
paused as the first statement of the assignment callback, because aiokafka hands out records while it runs and swallows
what it raises: a failure is kept and raised by the next ``read``.

Before: Kafka, ``small``. After: ``loop``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

import aiokafka
import structlog
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import TopicPartition

from schemas.errors import TokentrailError
from schemas.topics import sink_group
from sinks.kafka.connection import close, connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.settings import Kafka
    from sinks.batch import RawRecord
    from sinks.kafka.small import KafkaGraveyard
    from sinks.store import Table

READ_RECORDS = 5_000
"""Records of one read: some 50 ms of work, so that heartbeats and other tables get their turn."""
FETCH_BYTES = 8 << 20
"""Of one answer, whatever it holds of each partition: 1 MiB of each of 32 was more than malloc keeps, and it zeroed them anew."""
SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
POLL_INTERVAL_MS = 3_600_000
"""A sink that waits for ClickHouse keeps its partitions: nobody else could store them either."""
FETCH_WAIT_MS = 500  # costs no latency: the broker answers at the first byte

_log = structlog.get_logger("sinks")


class LostRange(TokentrailError):
    """The log no longer holds what a sink has not stored yet. It does not go on by itself."""


class Member(Protocol):
    """Who reads: the loop of a table."""

    async def let_go(self) -> None:
        """Partitions are about to be given away."""

    def forget(self) -> None:
        """Reading begins anew at the commits."""


class KafkaSource:
    """A member of a table's consumer group.

    Args:
        settings: the broker.
        table: whose topic is read.
        graveyard: where a lost range is recorded.
        accept_loss: go on behind a lost range, by an operator's word.
    """

    def __init__(
        self, settings: Kafka, table: Table, graveyard: KafkaGraveyard, *, accept_loss: bool = False
    ) -> None:
        self._settings = settings
        self._table = table
        self._graveyard = graveyard
        self._accept_loss = accept_loss
        self._topic = table.topic.name
        self._placed = asyncio.Event()
        self._failure: Exception | None = None
        self._began: dict[int, int] = {}
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap_servers,
            group_id=sink_group(table.name),
            auto_offset_reset="none",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            fetch_max_bytes=FETCH_BYTES,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            request_timeout_ms=settings.request_timeout_ms,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )

    async def start(self, member: Member) -> None:
        """Join the group."""
        await connect(self._consumer, self._settings)
        self._consumer.subscribe([self._topic], listener=_Listener(self, member))

    async def stop(self) -> None:
        """Leave the group, so that another member takes over at once. Everything settled was committed before."""
        await close(self._consumer)

    async def placed(self) -> None:
        """Wait until partitions were assigned and reading can begin."""
        await self._placed.wait()
        self._raise_failure()

    async def read(self, wait_s: float) -> Sequence[RawRecord]:
        """The next records of each partition in order; none after ``wait_s`` without any. Raises LostRange."""
        if not self._placed.is_set():
            try:
                async with asyncio.timeout(wait_s):
                    await self._placed.wait()
            except TimeoutError:
                return []
        self._raise_failure()
        try:
            got = await self._consumer.getmany(
                timeout_ms=max(1, int(wait_s * 1000)), max_records=READ_RECORDS
            )
        except NoOffsetForPartitionError:
            return []  # noted by the fetcher before the assignment callback gave the partition its place
        except (
            OffsetOutOfRangeError
        ) as error:  # retention overtook us while we read: a restart says which range
            raise LostRange(f"{self._topic}: {error} is not in the log any more") from error
        # No await between getmany and here: what it gave belongs to the assignment as it stands now
        return [record for records in got.values() for record in records]

    def ends(self) -> Mapping[int, tuple[int, int]]:
        """Per partition of ours: where reading began, and its end as of the last fetch (none before that)."""
        ours = {tp.partition: self._consumer.highwater(tp) for tp in self._consumer.assignment()}
        return {p: (self._began.get(p, 0), end) for p, end in ours.items() if end is not None}

    async def commit(self, next_offsets: Mapping[int, int]) -> None:
        """Say where a restart begins. A partition that is no longer ours is left out: its new owner reads it again."""
        ours = self._consumer.assignment()
        wanted = {
            tp: offset
            for partition, offset in next_offsets.items()
            if (tp := TopicPartition(self._topic, partition)) in ours
        }
        if not wanted:
            return
        try:
            await self._consumer.commit(wanted)
        except (CommitFailedError, IllegalStateError) as error:
            _log.warning("not committed: partitions moved", table=self._table.name, error=str(error))

    async def assigned(self, partitions: set[TopicPartition], member: Member) -> None:
        """Put each partition where its group's commit stands; called with the partitions paused."""
        try:
            member.forget()
            beginnings = await self._consumer.beginning_offsets(list(partitions)) if partitions else {}
            for tp in partitions:
                await self._place(tp, beginnings[tp])
            self._consumer.resume(*partitions)
        except IllegalStateError:
            return  # assigned anew meanwhile: the next callback does it
        except Exception as error:  # noqa: BLE001 - aiokafka would swallow it; the next read raises it
            self._failure = error
        self._placed.set()

    async def revoked(self, member: Member) -> None:
        """Stop reading, settle what is under way."""
        self._placed.clear()
        await member.let_go()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give out nothing of these."""
        self._consumer.pause(*partitions)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _place(self, tp: TopicPartition, beginning: int) -> None:
        committed = await self._consumer.committed(tp)
        if committed is not None and committed < beginning:
            detail = f"offsets {committed} to {beginning - 1} left the log before they were stored"
            if not self._accept_loss:
                raise LostRange(
                    f"{tp.topic}, partition {tp.partition}: {detail}. Restore them, or go on without them by "
                    "starting once with --accept-loss, which records the range as a dead letter."
                )
            gone = _Gone(tp.topic, tp.partition, committed)
            await self._graveyard.bury(gone, f"sink.{self._table.name}", "lost_range", detail)
        self._began[tp.partition] = beginning if committed is None else max(committed, beginning)
        self._consumer.seek(tp, self._began[tp.partition])


class _Gone(NamedTuple):
    """A record that nobody can read any more: the first of a lost range."""

    topic: str
    partition: int
    offset: int
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the vendor has no types
    def __init__(self, source: KafkaSource, member: Member) -> None:
        self._source = source
        self._member = member

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        del revoked
        await self._source.revoked(self._member)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._source.pause(assigned)
        await self._source.assigned(assigned, self._member)
