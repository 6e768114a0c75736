"""The two small topics beside a sink's own: the dead letters, which it writes, and the schemas, which it reads.

Before: Kafka. After: ``loop``.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import aiokafka
import structlog
from aiokafka.structs import TopicPartition

from schemas.errors import Poison
from schemas.topics import DEAD_LETTER_HEADERS, DEAD_LETTERS, SCHEMAS
from sinks.kafka.connection import close, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.codec import Codec
    from schemas.settings import Kafka
    from sinks.batch import RawRecord

_log = structlog.get_logger("sinks")


class KafkaGraveyard:
    """The dead letters: the original bytes, with where they lay and why, acknowledged before anything moves on."""

    def __init__(self, settings: Kafka, now_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._settings = settings
        self._now_us = now_us
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=settings.request_timeout_ms,
            metadata_max_age_ms=settings.metadata_max_age_ms,
        )

    async def start(self) -> None:
        """Connect; raises Transient where no broker answers."""
        await connect(self._producer, self._settings)

    async def stop(self) -> None:
        """Let go. Every letter was waited for by whoever buried it."""
        await close(self._producer)

    async def bury(self, record: RawRecord, stage: str, reason: str, detail: str) -> None:
        """Write a dead letter; returns when Kafka has acknowledged it."""
        said = (
            record.topic,
            str(record.partition),
            str(record.offset),
            stage,
            reason,
            detail,
            str(self._now_us()),
        )
        headers = [(name, text.encode()) for name, text in zip(DEAD_LETTER_HEADERS, said, strict=True)]
        value = (
            b"" if record.key is None and record.value is None else record.value
        )  # aiokafka sends no two nulls
        await self._producer.send_and_wait(DEAD_LETTERS.name, value=value, key=record.key, headers=headers)


class KafkaSchemas:
    """The schemas topic, read from its beginning by whoever meets a fingerprint that it does not know."""

    def __init__(self, settings: Kafka, codec: Codec) -> None:
        self._settings = settings
        self._codec = codec
        self._one_at_a_time = asyncio.Lock()

    async def refresh(self) -> None:
        """Learn what is published. What is no schema there is left to those who need it."""
        async with self._one_at_a_time:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._settings.bootstrap_servers,
                auto_offset_reset="none",
                enable_auto_commit=False,
                request_timeout_ms=self._settings.request_timeout_ms,
            )
            await connect(consumer, self._settings)
            try:
                await self._read_all(consumer)
            finally:
                await close(consumer)

    async def _read_all(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        tp = TopicPartition(SCHEMAS.name, 0)
        begin = (await consumer.beginning_offsets([tp]))[tp]
        end = (await consumer.end_offsets([tp]))[tp]
        consumer.assign([tp])
        consumer.seek(tp, begin)
        while await consumer.position(tp) < end:
            for record in (await consumer.getmany(tp, timeout_ms=1000)).get(tp, []):
                try:
                    self._codec.learn((record.value or b"").decode())
                except (Poison, UnicodeDecodeError) as error:
                    _log.warning("not a schema", offset=record.offset, error=str(error))
