"""A small topic as every edge reads it: all that it holds, then what comes, without a group.

Control, config and claims are such topics. Every partition has an explicit position before the first fetch. After an
outage or a long sleep the reading begins again, so what is said may be heard twice: whoever listens must not mind.

Before: ``kafka`` owns one for each topic. After: the broker.
"""

import asyncio
from collections.abc import AsyncIterator

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from edge.log import Placed
from edge.log.connections import stopped
from schemas.topics import Topic

log = structlog.get_logger()
RETRY_S = 1.0
"""The pace of asking again while the broker is away."""
WAIT_MS = 250


class SmallTopic:
    """One of them. ``whole``: it was read to the end that it had when the reading began."""

    def __init__(self, bootstrap_servers: str, topic: Topic, metadata_age_ms: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._metadata_age_ms = metadata_age_ms
        self.whole = False

    async def values(self) -> AsyncIterator[bytes]:
        """Every value that is not a tombstone, in log order within a partition; for ever."""
        async for placed in self.records():
            yield placed.value

    async def records(self) -> AsyncIterator[Placed]:
        """The same with where each lies."""
        while True:
            try:
                async for placed in self._once():
                    yield placed
            except (KafkaError, OSError) as error:
                log.warning(
                    "a topic cannot be read, beginning again", topic=self._topic.name, error=repr(error)
                )
                await asyncio.sleep(RETRY_S)

    async def _once(self) -> AsyncIterator[Placed]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            auto_offset_reset="none",
            metadata_max_age_ms=self._metadata_age_ms,
        )
        try:
            await consumer.start()
            parts = [TopicPartition(self._topic.name, p) for p in range(self._topic.partitions)]
            first, end = await consumer.beginning_offsets(parts), await consumer.end_offsets(parts)
            consumer.assign(parts)
            for tp in parts:
                consumer.seek(tp, first[tp])
            left = {tp for tp in parts if first[tp] < end[tp]}
            while True:
                self.whole = self.whole or not left
                for tp, records in (await consumer.getmany(timeout_ms=WAIT_MS)).items():
                    for record in records:
                        if record.value is not None:
                            yield Placed(tp.partition, record.offset, record.timestamp, record.value)
                # The position passes records that compaction has taken away; a record's own offset would not
                left = {tp for tp in left if await consumer.position(tp) < end[tp]}
        finally:
            await stopped(consumer)
