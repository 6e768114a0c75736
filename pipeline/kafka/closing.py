"""The end of a client, whose broker may be gone: bounded, and without a word to whoever waits for it but the log's.

Before: ``consumer``, ``producer``, ``whole``. After: the client library.
"""

from typing import Any

import structlog

from schemas.stopping import closed

CONNECTIONS_S = 1.0
"""Closing a socket waits for no answer."""

log = structlog.get_logger(__name__)


async def close(client: Any, limit_s: float) -> None:
    """Stop a consumer or a producer. One that does not stop in time, or breaks off, loses its connections all the same."""
    trouble = await closed(client.stop(), limit_s)
    if trouble is None:
        return
    log.warning("a client did not close", client=type(client).__name__, why=trouble)
    connections = client.client if hasattr(client, "client") else client._client  # noqa: SLF001 - a consumer has no public one
    await closed(connections.close(), CONNECTIONS_S)
