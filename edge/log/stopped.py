"""The end of a producer that may have no broker any more.

Before: ``kafka`` owns the producers. After: the client library, which waits for what it has queued.
"""

import asyncio

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

log = structlog.get_logger()
STOP_LIMIT_S = 5.0
"""A producer with nothing to wait for stops in milliseconds."""


async def stopped(producer: AIOKafkaProducer) -> None:
    """Stop a producer; one that waits for a broker that is gone is left alone."""
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await producer.stop()
    except (KafkaError, TimeoutError) as error:
        log.warning("a producer did not stop", error=repr(error))
