"""The beginning and the end of a client, whose broker may not be there.

Before: Kafka. After: ``source``, ``small``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from aiokafka.errors import KafkaConnectionError

from schemas.errors import Transient
from schemas.stopping import client_closed

if TYPE_CHECKING:
    import aiokafka

    from schemas.settings import Kafka

CLOSE_S = 1.5
"""A broker that is there is told of the end in milliseconds; of one that is not, the session's end tells the others."""
CONNECTIONS_S = 0.5
"""Closing a socket waits for no answer."""

_log = structlog.get_logger("sinks")


async def connect(client: aiokafka.AIOKafkaConsumer | aiokafka.AIOKafkaProducer, settings: Kafka) -> None:
    """Start a client; raises Transient where no broker answers."""
    try:
        await client.start()
    except KafkaConnectionError as error:
        await close(client)
        raise Transient(f"no broker answers at {settings.bootstrap_servers}") from error


async def close(client: aiokafka.AIOKafkaConsumer | aiokafka.AIOKafkaProducer) -> None:
    """Stop a client. One that does not stop in time, or breaks off, loses its connections all the same."""

    def tell(trouble: str) -> None:
        _log.warning("a client did not close", client=type(client).__name__, why=trouble)

    await client_closed(client, CLOSE_S, CONNECTIONS_S, tell)
