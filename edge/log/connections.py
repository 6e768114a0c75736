"""The beginning and the end of a client: a producer that may be poisoned, a consumer, either without its broker.

Before: ``kafka`` and ``small`` own the clients. After: the client library.
"""

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from schemas.settings import Kafka
from schemas.stopping import client_closed

log = structlog.get_logger()
STOP_LIMIT_S = 1.5
"""A client with nothing to wait for stops in milliseconds; the session's or the socket's end tells the rest."""
CONNECTIONS_S = 0.5
"""Closing a socket waits for no answer."""


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
        await stopped(producer)
        raise
    return producer


async def stopped(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Stop a client. One that waits for a broker that is gone, or breaks off, loses its connections all the same."""

    def tell(trouble: str) -> None:
        log.warning("a client did not stop", client=type(client).__name__, why=trouble)

    await client_closed(client, STOP_LIMIT_S, CONNECTIONS_S, tell)
