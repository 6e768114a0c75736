"""Reads topics from chosen offsets, without a group, and appends to the small ones.

Invariant: every partition has an explicit position before the first fetch, and there is no reset policy, so that a
range which Kafka no longer holds is an error and never a silent jump. Before this file: ``compose.tail``,
``compose.topics``. After it: the broker.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError as VendorError
from aiokafka.errors import OffsetOutOfRangeError

from compose.kafka.admin import REQUEST_TIMEOUT_MS, admin
from compose.kafka.errors import KafkaError, unreachable
from schemas.stopping import closed

CLOSE_S = 2.0
"""Nothing is left to be said to the broker: one that is gone is not waited for."""
_FETCH_BYTES = 1 << 20
_RECORDS_MAX = 2_000


class Record(NamedTuple):
    """A record as it lies in the log. ``timestamp_ms`` is the broker's."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class LogReader:
    """Reads topics from chosen offsets, without a group: nothing is committed, nobody is disturbed.

    Every partition has an explicit position before the first fetch, and there is no reset policy, so that a range that
    Kafka no longer holds is an error and never a silent jump.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            auto_offset_reset="none",
            enable_auto_commit=False,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            max_partition_fetch_bytes=_FETCH_BYTES,
        )

    async def __aenter__(self) -> Self:
        try:
            await self._consumer.start()
        except (VendorError, OSError) as error:
            await closed(self._consumer.stop(), CLOSE_S)
            raise unreachable(self._bootstrap_servers, error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await closed(self._consumer.stop(), CLOSE_S)

    async def partitions(self, topic: str) -> list[int]:
        """The topic's partitions, ascending; KafkaError where there is no such topic."""
        async with admin(self._bootstrap_servers) as cluster:
            count = await cluster.partition_count(topic)
        return list(range(count))

    async def offsets_at(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        """Partition → first offset whose time is at or after ``timestamp_ms``; the end where there is none."""
        wanted = [TopicPartition(topic, p) for p in partitions]
        found = await self._consumer.offsets_for_times(dict.fromkeys(wanted, timestamp_ms))
        ends = await self._consumer.end_offsets(wanted)
        return {tp.partition: found[tp].offset if found.get(tp) else ends[tp] for tp in wanted}

    async def bounds(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Partition → (first offset held, offset after the last record)."""
        wanted = [TopicPartition(topic, p) for p in partitions]
        starts, ends = await asyncio.gather(
            self._consumer.beginning_offsets(wanted), self._consumer.end_offsets(wanted)
        )
        return {tp.partition: (starts[tp], ends[tp]) for tp in wanted}

    async def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that ``read`` gives of this partition."""
        return int(await self._consumer.position(TopicPartition(topic, partition)))

    async def read(
        self, topic: str, starts: Mapping[int, int], *, wait_ms: int = 500
    ) -> AsyncIterator[Sequence[Record]]:
        """Batches of records from these offsets on, for ever; an empty batch where ``wait_ms`` brought nothing."""
        assigned = {TopicPartition(topic, p): offset for p, offset in starts.items()}
        self._consumer.assign(list(assigned))
        for (
            tp,
            offset,
        ) in assigned.items():  # no await between assign and seek: a fetch in between would start wrong
            self._consumer.seek(tp, offset)
        try:
            while True:
                batches = await self._consumer.getmany(timeout_ms=wait_ms, max_records=_RECORDS_MAX)
                yield [
                    Record(tp.partition, r.offset, r.key, r.value, r.timestamp)
                    for tp, records in batches.items()
                    for r in records
                ]
        except OffsetOutOfRangeError as error:
            raise KafkaError(
                f"{topic} no longer holds that range: its retention has passed. Use ClickHouse: `tokentrail sql`."
            ) from error


async def read_whole(bootstrap_servers: str, topic: str) -> list[Record]:
    """Every record of a small topic, up to its end at the time of asking."""
    async with LogReader(bootstrap_servers) as reader:
        bounds = await reader.bounds(topic, await reader.partitions(topic))
        left = {p: end for p, (start, end) in bounds.items() if end > start}
        records: list[Record] = []
        if not left:
            return records
        async for batch in reader.read(topic, {p: bounds[p][0] for p in left}, wait_ms=100):
            records += batch
            # The position passes records that compaction has taken away; a record's own offset would not
            left = {p: end for p, end in left.items() if await reader.position(topic, p) < end}
            if not left:
                break
        return records


async def publish(
    bootstrap_servers: str,
    topic: str,
    records: Sequence[tuple[bytes, bytes]],
    *,
    partition: int | None = None,
) -> None:
    """Append (key, value) pairs and return when all are acknowledged by every in-sync replica."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    try:
        await producer.start()
        for key, value in records:
            await producer.send_and_wait(topic, value=value, key=key, partition=partition)
    except (VendorError, OSError) as error:
        raise KafkaError(f"Kafka took no record on {topic}: {error!r}") from error
    finally:
        await closed(producer.stop(), CLOSE_S)
