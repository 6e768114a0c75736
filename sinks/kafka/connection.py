"""The beginning and the end of a client, whose broker may not be there.

Before: Kafka. After: ``source``, ``small``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from aiokafka.errors import KafkaConnectionError

from schemas.errors import Transient
from schemas.stopping import closed

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
    trouble = await closed(client.stop(), CLOSE_S)
    if trouble is None:
        return
    _log.warning("a client did not close", client=type(client).__name__, why=trouble)
    connections = client.client if hasattr(client, "client") else client._client  # noqa: SLF001 - a consumer's
    await closed(connections.close(), CONNECTIONS_S)
