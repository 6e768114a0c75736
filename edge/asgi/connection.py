"""A client's connection before its request is whole: how large a head may be, and how long each part may take.

The server bounds neither: a head, a trailer or a chunk's extension without end grows in memory, a body that drips holds
its socket for ever, and one that never asks anything as well, all before any key was seen. Before: the listening socket.
After: ``direct``.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edge.asgi.parting import Parting
from schemas.settings import Limit

_REFUSED = "HTTP/1.1 {}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nx-should-retry: false\r\nconnection: close\r\n\r\n{}"
_TOO_LARGE = "431 Request Header Fields Too Large"
_TOO_SLOW = "408 Request Timeout"


class Connection(HttpToolsProtocol):
    """The server's protocol, with bounds on a request. ``bounded`` makes one for some limits."""

    limit = Limit()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fields_bytes = 0
        self._unread_bytes = 0
        self._moved = False
        self._parting = Parting()
        self._head_due: asyncio.TimerHandle | None = None
        self._rest_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more, and know why."""
        self._parting.lost(exc)
        self._head_came()
        self._rest_came()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """The client closed its side; the transport closes ours."""
        self._parting.by_client()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request; too many that are neither a whole head nor a body are refused."""
        self._moved = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._unread_bytes = 0 if self._moved else self._unread_bytes + len(data)
        if self._unread_bytes > self.limit.head_bytes:
            self._refuse_size()
        elif self.timeout_keep_alive_task is None and self.cycle is not None and self.cycle.response_complete:
            self._await_head()  # not a letter of the next request, but its keep-alive time is over

    def on_message_begin(self) -> None:
        """A request begins."""
        self._fields_bytes = 0
        self._await_head()
        super().on_message_begin()
        self._parting.told_in(self.scope)  # type: ignore[arg-type]  # the server's own type of it is closed

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field, of the head or of a trailer."""
        self._fields_bytes += len(name) + len(value)
        if self._fields_bytes > self.limit.head_bytes:
            raise ValueError("too many fields")  # the parser's caller answers by send_400_response
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._moved = True
        self._head_came()
        self._await_rest()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._moved = True
        self._rest_came()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, by the reason that we know."""
        if self._fields_bytes > self.limit.head_bytes:
            self._refuse_size()
        else:
            self._refuse("400 Bad Request", msg)

    def _refuse_size(self) -> None:
        self._refuse(_TOO_LARGE, f"headers are bounded by {self.limit.head_bytes} bytes (limit.head_bytes)")

    def _refuse(self, status: str, why: str) -> None:
        """Say why and close; nothing is said into an answer that is being written."""
        answering = self.cycle is not None and self.cycle.response_started
        if not answering or self.cycle.response_complete:
            self.transport.write(_REFUSED.format(status, len(why), why).encode())
        self.transport.close()

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

    def _await_rest(self) -> None:
        self._rest_came()
        self._rest_due = self.loop.call_later(self.limit.request_read_s, self._rest_late)

    def _rest_came(self) -> None:
        if self._rest_due is not None:
            self._rest_due.cancel()
            self._rest_due = None

    def _rest_late(self) -> None:
        if self.pipeline:
            self._await_rest()  # it is not read while the answer before it is being written
            return
        self._rest_due = None
        if self.cycle is not None and self.cycle.response_complete:
            self.transport.close()  # it was answered without being read whole
            return
        within = f"{self.limit.request_read_s} s (limit.request_read_s)"
        self._refuse(_TOO_SLOW, f"the request was not whole within {within}")


def bounded(limit: Limit) -> type[Connection]:
    """The protocol class for some limits, as the server takes it."""
    return type("BoundedConnection", (Connection,), {"limit": limit})
