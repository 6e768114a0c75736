"""The beginning and the end of a producer: one that may be poisoned, or whose broker may be gone.

Before: ``kafka`` owns the producers, and says which of them is used. After: the client library.
"""

import asyncio

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schemas.settings import Kafka

log = structlog.get_logger()
STOP_LIMIT_S = 5.0
"""A producer with nothing to wait for stops in milliseconds."""


async def started(kafka: Kafka) -> AIOKafkaProducer:
    """A new one, connected. Raises KafkaError, OSError."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        max_batch_size=1_000_000,
        request_timeout_ms=kafka.request_timeout_ms,
        retry_backoff_ms=50,
        metadata_max_age_ms=kafka.metadata_max_age_ms,
    )
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise
    return producer


async def stopped(producer: AIOKafkaProducer) -> None:
    """Stop a producer; one that waits for a broker that is gone is left alone."""
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await producer.stop()
    except (KafkaError, TimeoutError) as error:
        log.warning("a producer did not stop", error=repr(error))
