"""The real log: Apache Kafka through aiokafka. This folder is the only place of the edge that knows aiokafka.

One idempotent producer (``acks=all``, no compression, one pinned partitioner outside of it), two clients for the
reading passes, one consumer that only answers questions about offsets, one for each small topic. A producer is replaced
when a batch failed (``lanes``). Measured settings and traps: docs/decisions.md.

Before: ``lanes``, ``fetcher``, ``questions``, ``small``. After: ``edge.app`` builds it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.structs import TopicPartition

from edge.log import LogAway, OnAck, OnFail, Placed, Reader
from edge.log.connections import CONNECTIONS_S, started, stopped
from edge.log.fetcher import Fetcher
from edge.log.lanes import Item, Lanes
from edge.log.questions import Questions
from edge.log.small import SmallTopic
from schemas.codec import Codec
from schemas.partition import partition_of
from schemas.registry import missing
from schemas.settings import Settings
from schemas.stopping import closed
from schemas.topics import CLAIMS, CONFIG, CONTROL, EVENTS, SCHEMAS

log = structlog.get_logger()
_TOPICS = (EVENTS, CONTROL, CLAIMS, CONFIG, SCHEMAS)
DRAIN_S = 1.0
"""At the stop of an edge: its generations have waited for their ends already."""
SETTLE_MARGIN_S = 5.0
"""A future of a producer that was stopped may never resolve: it is given up so long after its request time-out."""


class KafkaLog:
    """EventLog on a real broker."""

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._settings = settings
        self._codec = codec
        self._bootstrap = settings.kafka.bootstrap_servers
        self._producers: list[AIOKafkaProducer] = []
        self._retired: set[asyncio.Task[None]] = set()
        self._lanes = Lanes(self._send, settings.log.gather_us / 1e6)
        self._clients: list[AIOKafkaClient] = []
        self._bounds = Questions(self._ask_bounds)
        self.partitions = EVENTS.partitions
        self._control = SmallTopic(self._bootstrap, CONTROL, self._age_ms)
        self._config = SmallTopic(self._bootstrap, CONFIG, self._age_ms)
        self._claims = SmallTopic(self._bootstrap, CLAIMS, self._age_ms)

    @property
    def control_read(self) -> bool:
        """See EventLog."""
        return self._control.whole

    @property
    def config_read(self) -> bool:
        """See EventLog."""
        return self._config.whole

    @property
    def claims_read(self) -> bool:
        """See EventLog."""
        return self._claims.whole

    async def start(self) -> None:
        """See EventLog."""
        self._asker = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, metadata_max_age_ms=self._age_ms)
        self._clients = [
            AIOKafkaClient(
                bootstrap_servers=self._bootstrap,
                metadata_max_age_ms=self._age_ms,
                request_timeout_ms=self._settings.kafka.request_timeout_ms,
            )
            for _ in range(2)
        ]
        try:
            await self._connect()
        except (KafkaError, OSError) as error:
            await self._close()
            raise LogAway(
                f"Kafka at {self._bootstrap} does not answer ({error!r}): start it, or set "
                "TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS"
            ) from error
        except BaseException:
            await self._close()
            raise
        self._fetcher = Fetcher(self._clients[0], self._clients[1], EVENTS.name)
        self._fetcher.start()

    async def _connect(self) -> None:
        await self._asker.start()
        await self._check_topics()
        self._producers = [await started(self._settings.kafka)]
        for client in self._clients:
            await client.bootstrap()
            client.set_topics([EVENTS.name])
            await client.force_metadata_update()
        await self._announce()

    async def stop(self) -> None:
        """See EventLog. What no broker has taken by then is given up: whose end it was, the finder ends."""
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._lanes.drain()
        except TimeoutError:
            log.warning("the log does not take what is left, stopping without")
            await self._lanes.abandon()
        await self._fetcher.stop()
        await self._close()

    async def _close(self) -> None:
        clients = [closed(client.close(), CONNECTIONS_S) for client in self._clients]
        producers = map(stopped, self._producers)
        await asyncio.gather(
            *clients, *producers, stopped(self._asker), *self._retired, return_exceptions=True
        )

    def append(
        self, partition: int, key: bytes, values: Sequence[bytes], on_ack: OnAck, on_fail: OnFail
    ) -> None:
        """See EventLog."""
        self._lanes.append(partition, key, values, on_ack, on_fail)

    def hurry(self, partition: int) -> None:
        """See EventLog."""
        self._lanes.hurry(partition)

    def reader(self, partition: int, key: bytes, offset: int, *, every: bool = False) -> Reader:
        """See EventLog."""
        return self._fetcher.reader(partition, key, offset, every=every)

    async def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """See EventLog."""
        tp = TopicPartition(EVENTS.name, partition)
        try:
            found = (await self._asker.offsets_for_times({tp: max(0, timestamp_ms)}))[tp]
        except (KafkaError, OSError) as error:
            raise LogAway(f"the log does not answer ({error!r})") from error
        return None if found is None else found.offset

    async def bounds(self, partition: int) -> tuple[int, int]:
        """See EventLog."""
        if self._fetcher.broken:
            raise LogAway("this edge cannot read the log any more: restart it")
        return await self._bounds.answer(partition)

    async def _ask_bounds(self, partition: int) -> tuple[int, int]:
        tps = [TopicPartition(EVENTS.name, partition)]
        asked = self._asker.beginning_offsets(tps), self._asker.end_offsets(tps)
        try:
            first, end = await asyncio.gather(*asked)
        except (KafkaError, OSError) as error:
            raise LogAway(f"the log does not answer ({error!r})") from error
        return first[tps[0]], end[tps[0]]

    async def learn(self) -> None:
        """See EventLog."""
        try:
            await self._learn()
        except (KafkaError, OSError) as error:
            raise LogAway(f"{SCHEMAS.name} does not answer ({error!r})") from error

    async def tell(self, key: bytes, value: bytes) -> None:
        """See EventLog."""
        partition = partition_of(key, CONTROL.partitions)
        await self._send_one(CONTROL.name, key, value, partition)

    async def control(self) -> AsyncIterator[bytes]:
        """See EventLog. After an outage or a long sleep it begins again: what control says may be heard twice."""
        async for value in self._control.values():
            yield value

    async def config(self) -> AsyncIterator[bytes]:
        """See EventLog. As control: it may be heard twice."""
        async for value in self._config.values():
            yield value

    async def claim(self, key: bytes, value: bytes) -> tuple[int, int]:
        """See EventLog."""
        partition = partition_of(key, CLAIMS.partitions)
        return partition, await self._send_one(CLAIMS.name, key, value, partition)

    def claims(self) -> AsyncIterator[Placed]:
        """See EventLog. As control: it may be heard twice."""
        return self._claims.records()

    @property
    def _age_ms(self) -> int:
        return self._settings.kafka.metadata_max_age_ms

    async def _check_topics(self) -> None:
        parts = {t.name: self._asker.partitions_for_topic(t.name) for t in _TOPICS}
        if any(not p for p in parts.values()):
            parts = {name: await self._partitions(name) for name in parts}
        for topic in _TOPICS:
            found = len(parts[topic.name] or ())
            if found != topic.partitions:
                raise LogAway(
                    f"topic {topic.name} has {found} partitions instead of {topic.partitions}: run `tokentrail topics apply`"
                )

    async def _partitions(self, topic: str) -> set[int]:
        with suppress(KafkaError):
            await self._asker._client._wait_on_metadata(topic)  # noqa: SLF001 - no public call asks for one topic
        return set(self._asker.partitions_for_topic(topic) or ())

    async def _announce(self) -> None:
        for fingerprint, schema in missing(self._codec, await self._learn()).items():
            await self._send_one(SCHEMAS.name, fingerprint.encode(), schema.encode(), 0)

    async def _learn(self) -> list[str]:
        """Read the schemas topic from its beginning to its end; the fingerprints that it holds."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="none")
        await consumer.start()
        try:
            tp = TopicPartition(SCHEMAS.name, 0)
            first, end = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
            consumer.assign([tp])
            consumer.seek(tp, first)
            held, position = [], first
            while position < end:
                for record in (await consumer.getmany(tp, timeout_ms=250)).get(tp, []):
                    position = record.offset + 1
                    if record.value is not None:
                        held.append(self._codec.learn(record.value.decode()))
            return held
        finally:
            await stopped(consumer)

    async def _send_one(self, topic: str, key: bytes, value: bytes, partition: int) -> int:
        """Append one record to a topic beside the events; its offset. A producer that failed is not used again."""
        wait_s = self._settings.kafka.request_timeout_ms / 1000 + SETTLE_MARGIN_S
        producer = self._producers[-1]
        try:
            async with asyncio.timeout(wait_s):
                done = await producer.send_and_wait(topic, value, key=key, partition=partition)
        except (KafkaError, OSError, TimeoutError) as error:
            await self._replace(producer)
            raise LogAway(f"{topic} takes no records ({error!r})") from error
        if done is None or done.offset is None or done.offset < 0:
            raise LogAway(f"{topic} acknowledged a record without an offset")
        return int(done.offset)

    async def _send(self, partition: int, batch: Sequence[Item]) -> int:
        producer = self._producers[-1]
        builder = producer.create_batch()
        for item in batch:
            if builder.append(key=item.key, value=item.value, timestamp=None) is None:
                raise LogAway(
                    "a batch of ours is above the producer's limit: BATCH_BYTES_MAX must be below it"
                )
        builder.close()
        wait_s = self._settings.kafka.request_timeout_ms / 1000 + SETTLE_MARGIN_S
        while True:
            try:
                future = await producer.send_batch(builder, EVENTS.name, partition=partition)
                break
            except KafkaTimeoutError:
                log.warning("the producer has no room yet, the batch was not queued", partition=partition)
        try:
            async with asyncio.timeout(wait_s):
                done = await future
        except Exception as error:
            await self._replace(producer)
            raise LogAway(f"partition {partition} did not take a batch ({error!r})") from error
        if done is None or done.offset is None or done.offset < 0:
            await self._replace(producer)
            raise LogAway(f"partition {partition} acknowledged a batch without an offset")
        return int(done.offset)

    async def _replace(self, producer: AIOKafkaProducer) -> None:
        """A failed batch leaves a hole in the producer's sequence: this lane, then every other, goes on with a new one."""
        if producer is not self._producers[-1]:
            return
        try:
            self._producers.append(await started(self._settings.kafka))
        except (KafkaError, OSError) as error:
            log.warning("no new producer yet", error=repr(error))
            return
        self._producers.remove(producer)
        task = asyncio.get_running_loop().create_task(stopped(producer))
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)
