"""A client's connection before its request is whole: how large a head may be, and how long it may take.

The server bounds neither: a head without end grows in memory, and a socket that never asks anything is kept for ever,
both before any key was seen. Before: the listening socket. After: ``direct``.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from schemas.settings import Limit

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(HttpToolsProtocol):
    """The server's protocol, with bounds on the head. ``bounded`` makes one for some limits."""

    limit = Limit()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request; what is one read above the limit is refused."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > self.limit.head_bytes and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._head_bytes = True, 0
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._in_head = False
        self._head_came()
        super().on_headers_complete()

    def _await_head(self) -> None:
        if self._head_due is None:
            self._head_due = self.loop.call_later(self.limit.head_s, self._head_late)

    def _head_came(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _head_late(self) -> None:
        self._head_due = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()  # the half request stands behind an answer that is still being written
        else:
            self.transport.close()


def bounded(limit: Limit) -> type[Connection]:
    """The protocol class for some limits, as the server takes it."""
    return type("BoundedConnection", (Connection,), {"limit": limit})
