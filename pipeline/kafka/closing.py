"""The end of a client, whose broker may be gone: bounded, and without a word to whoever waits for it but the log's.

Before: ``consumer``, ``producer``, ``whole``. After: the client library.
"""

from typing import Any

import structlog

from schemas.stopping import client_closed

CONNECTIONS_S = 1.0
"""Closing a socket waits for no answer."""

log = structlog.get_logger(__name__)


async def close(client: Any, limit_s: float) -> None:
    """Stop a consumer or a producer. One that does not stop in time, or breaks off, loses its connections all the same."""

    def tell(trouble: str) -> None:
        log.warning("a client did not close", client=type(client).__name__, why=trouble)

    await client_closed(client, limit_s, CONNECTIONS_S, tell)
