"""A process's figures at an address of its own, for Prometheus: where there is no HTTP server but this one.

It answers ``GET /metrics`` and nothing else, one request a connection, each within bounds: a stranger's connection costs a
worker a few bytes and ``LIMIT_S``. It runs in the process's own loop, so that what it tells needs no lock. Before:
``settings``. After: ``pipeline.metrics``, ``sinks.metrics``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from schemas.errors import TokentrailError

HEAD_BYTES_MAX = 8_192
LIMIT_S = 5.0
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def exposed(host: str, port: int | None, render: Callable[[], bytes]) -> AsyncIterator[int | None]:
    """Tell figures while the block runs; gives the port. None: nobody is told.

    Raises TokentrailError where it cannot listen.
    """
    if port is None:
        yield None
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, render))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return  # nobody is there any more, or he asks in a way that nobody answers
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=HEAD_BYTES_MAX)
    except OSError as error:
        raise TokentrailError(
            f"cannot tell figures at {host}:{port} ({error.strerror}): each process needs a port of its own "
            "(TOKENTRAIL_METRICS__PIPELINE_PORT, TOKENTRAIL_METRICS__SINKS_PORT)"
        ) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _answer(head: bytes, render: Callable[[], bytes]) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    status, body = ("200 OK", render()) if (method, path) == (b"GET", b"/metrics") else ("404 Not Found", b"")
    fields = f"content-type: {_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n".encode() + body
