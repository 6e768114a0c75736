"""Reading the events topic as a member of the fold's group; committing offset and P together.

The client hands records out while the assignment callback still runs, so that its first statement pauses; it swallows
what the callback raises, so that failure is kept and raised by ``batches``; ``committed()`` drops the metadata, so that P
is read with the admin client; a reset policy of "none" with explicit seeks is the only one that never skips silently
(notes on Kafka, 3, 5, 9). Before: ``fold_service``. After: the broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from pipeline.fold import Safe
from pipeline.kafka.closing import close
from schemas.errors import TokentrailError, Transient
from schemas.settings import Kafka
from schemas.topics import EVENTS

SESSION_TIMEOUT_MS = 6_000  # the broker's own minimum: a killed worker's partitions move so soon
HEARTBEAT_MS = 1_500
REBALANCE_TIMEOUT_MS = (
    30_000  # a turn that waits for acknowledgements is waited for; default: the session's time
)
FETCH_WAIT_MS = 500  # adds no latency: the broker answers as soon as there is a byte
RETRY_BACKOFF_MS = 50
POLL_MS = 200
RECORDS_PER_POLL = 2_000
COMMIT_READ_TRIES = 20
COMMIT_READ_BACKOFF_S = 0.25
STOP_LIMIT_S = 3.0
"""A static member says nothing when it leaves: only its connections are closed."""
METADATA_PREFIX = "v1:"

log = structlog.get_logger(__name__)


class WorkerStopped(TokentrailError):
    """Reading cannot go on without an operator's decision."""


class Committed(NamedTuple):
    """What the group committed for a partition; ``emitted_below`` is P."""

    offset: int
    emitted_below: int


class FoldConsumer:
    """This worker's share of the events topic.

    Args:
        settings: how to reach the broker.
        group: consumer group.
        instance_id: stable over restarts of one worker, so that a restart takes its partitions over at once.
        assigned: partitions → where to start reading each, having taken over what was committed.
        revoked: partitions are given up; called before anybody else gets them.
    """

    def __init__(
        self,
        settings: Kafka,
        group: str,
        instance_id: str,
        assigned: Callable[[Mapping[int, Committed]], Awaitable[None]],
        revoked: Callable[[Sequence[int]], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._group = group
        self._instance_id = instance_id
        self._assigned = assigned
        self._revoked = revoked
        self._failure: BaseException | None = None
        self._client: Any = None

    async def start(self) -> None:
        """Join the group. WorkerStopped where the topic does not exist."""
        self._client = AIOKafkaConsumer(
            bootstrap_servers=self._settings.bootstrap_servers,
            group_id=self._group,
            group_instance_id=self._instance_id,
            enable_auto_commit=False,
            auto_offset_reset="none",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            request_timeout_ms=self._settings.request_timeout_ms,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            metadata_max_age_ms=self._settings.metadata_max_age_ms,
        )
        await self._client.start()
        if EVENTS.name not in await self._client.topics():
            raise WorkerStopped(f"there is no topic {EVENTS.name}: run `tokentrail topics apply`")
        self._client.subscribe([EVENTS.name], listener=_Listener(self))

    async def stop(self) -> None:
        """Leave; commit before. Where no broker answers, the process ends without saying so to it."""
        if self._client is not None:
            await close(self._client, STOP_LIMIT_S)

    async def batches(self) -> Mapping[int, Sequence[Any]]:
        """The next records by partition (``key``, ``value``, ``offset``), empty after ``POLL_MS`` without any.

        Raises WorkerStopped where the log no longer holds what is to be read, and whatever a callback raised.
        """
        try:
            batches = await self._client.getmany(timeout_ms=POLL_MS, max_records=RECORDS_PER_POLL)
        except OffsetOutOfRangeError as error:
            raise WorkerStopped(
                f"the log does not hold these offsets any more: {error.args[0]}; going on would skip records. "
                f"Move the group {self._group} yourself if that loss is accepted"
            ) from error
        except NoOffsetForPartitionError:
            batches = {}  # a new group's partition, between its assignment and the seek that follows
        if self._failure is not None:
            raise self._failure
        return {tp.partition: records for tp, records in batches.items()}

    def pause(self, partition: int) -> None:
        """Read no more of a partition of ours."""
        self._client.pause(TopicPartition(EVENTS.name, partition))

    def resume(self, partition: int) -> None:
        """Read on."""
        self._client.resume(TopicPartition(EVENTS.name, partition))

    def end_seen(self, partition: int) -> int | None:
        """The partition's end as of its last fetch; None before any, or when it is not ours."""
        tp = TopicPartition(EVENTS.name, partition)
        if tp not in self._client.assignment():
            return None
        end: int | None = self._client.highwater(tp)
        return end

    async def ends(self, partitions: Iterable[int], limit_s: float) -> dict[int, int]:
        """The log's end of each partition that answers within the limit, asked one by one when not all do at once."""
        tps = [TopicPartition(EVENTS.name, partition) for partition in partitions]
        if not tps:
            return {}
        answer = await self._ends(tps, limit_s)
        if answer is None:
            each = await asyncio.gather(*(self._ends([tp], limit_s) for tp in tps))
            answer = {tp: end for one in each if one is not None for tp, end in one.items()}
        return {tp.partition: end for tp, end in answer.items()}

    async def _ends(self, tps: list[Any], limit_s: float) -> dict[Any, int] | None:
        try:
            async with asyncio.timeout(limit_s):
                ends: dict[Any, int] = await self._client.end_offsets(tps)
        except (KafkaError, TimeoutError):
            return None
        return ends

    async def commit(self, offsets: Mapping[int, Safe]) -> None:
        """Commit offset and P of each partition. A commit that a rebalance overtook is logged: the rows are safe."""
        if not offsets:
            return
        wanted = {
            TopicPartition(EVENTS.name, partition): OffsetAndMetadata(
                safe.commit_offset, f"{METADATA_PREFIX}{safe.emitted_below}"
            )
            for partition, safe in offsets.items()
        }
        try:
            await self._client.commit(wanted)
        except (CommitFailedError, IllegalStateError) as error:
            log.warning("commit came too late", partitions=sorted(offsets), error=repr(error))
        except KafkaError as error:
            raise Transient(f"not committed: {error!r}") from error

    async def take_over(self, assigned: Iterable[Any]) -> None:
        """Read where to start, hand it over, seek, resume; a failure ends the worker."""
        tps = sorted(assigned)
        self._client.pause(*tps)
        try:
            committed = await self._committed(tps)
            await self._assigned({tp.partition: committed[tp] for tp in tps})
            for tp in tps:
                self._client.seek(tp, committed[tp].offset)
            self._client.resume(*tps)
        except Exception as error:  # noqa: BLE001 - the client would swallow it: ``batches`` raises it instead
            self._failure = error

    async def give_up(self, revoked: Iterable[Any]) -> None:
        """Let the owner of the state finish with these partitions."""
        try:
            await self._revoked(sorted(tp.partition for tp in revoked))
        except Exception as error:  # noqa: BLE001 - as above
            self._failure = error

    async def _committed(self, tps: list[Any]) -> dict[Any, Committed]:
        """What the group committed; a partition without a commit starts at the log's beginning."""
        if not tps:
            return {}
        for attempt in range(COMMIT_READ_TRIES):
            try:
                stored = await self._stored()
                fresh = [tp for tp in tps if tp not in stored or stored[tp].offset < 0]
                begins = await self._client.beginning_offsets(fresh) if fresh else {}
                break
            except KafkaError as error:
                if attempt == COMMIT_READ_TRIES - 1:
                    raise
                log.warning("the group's commits cannot be read yet", error=repr(error))
                await asyncio.sleep(COMMIT_READ_BACKOFF_S)
        known = {tp: parse_commit(stored[tp].offset, stored[tp].metadata) for tp in tps if tp not in begins}
        return known | {tp: Committed(begin, begin) for tp, begin in begins.items()}

    async def _stored(self) -> dict[Any, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._settings.bootstrap_servers)
        await admin.start()
        try:
            stored: dict[Any, Any] = await admin.list_consumer_group_offsets(self._group)
        finally:
            await admin.close()
        return stored


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """The client's callbacks."""

    def __init__(self, consumer: FoldConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        await self._consumer.take_over(assigned)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        await self._consumer.give_up(revoked)


def parse_commit(offset: int, metadata: str) -> Committed:
    """Offset and P of a commit; without metadata P is the offset. WorkerStopped for metadata of another kind."""
    if not metadata:
        return Committed(offset, offset)
    number = metadata.removeprefix(METADATA_PREFIX)
    if number == metadata or not number.isdecimal():
        raise WorkerStopped(
            f"the commit's metadata {metadata!r} is not {METADATA_PREFIX}<offset>: update this worker"
        )
    return Committed(offset, int(number))
