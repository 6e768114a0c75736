"""The HTTP library under us: ``httpx2`` where it is there (the present SDKs take nothing else), else ``httpx``.

Both have one API and unrelated types, so whoever builds an answer for an SDK must build it from the SDK's own library.
The one file that imports either. Before: ``store``. After: ``shell``.
"""

import importlib
import socket
import ssl
import sys
from collections.abc import Mapping
from typing import Any, Literal

import anyio

from tokentrail_client.effects import Ask, Head

Name = Literal["httpx2", "httpx"]
CONNECT_S = 10.0
WRITE_S = 60.0
_OURS = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers that speak of bytes on the wire; what is handed on is decoded."""


class Flavour:
    """One of the two libraries: its types under one name each."""

    def __init__(self, name: Name | None = None) -> None:
        self.http = _installed(name)
        self._streams: dict[type, type] = {}
        http = self.http
        self.lost: tuple[type[Exception], ...] = (
            http.NetworkError,
            http.RemoteProtocolError,
            http.ProxyError,
            http.DecodingError,
            http.ConnectTimeout,
            http.ReadTimeout,
            http.WriteTimeout,
            ssl.SSLError,
            anyio.EndOfStream,
            anyio.BrokenResourceError,
        )

    def request(self, ask: Ask, timeout: Mapping[str, float | None] | None = None) -> Any:
        """The library's request for what a course asks; ``timeout`` is the caller's own, of which ``read`` is ours."""
        given = {"connect": CONNECT_S, "write": WRITE_S, "pool": None, **(timeout or {}), "read": ask.read_s}
        content = ask.body or (b"" if ask.method == "POST" else None)
        return self.http.Request(
            ask.method, ask.url, headers=dict(ask.headers), content=content, extensions={"timeout": given}
        )

    def head(self, response: Any) -> Head:
        """An answer's head."""
        return Head(response.status_code, {name.lower(): value for name, value in response.headers.items()})

    def headers(self, response: Any) -> list[tuple[bytes, bytes]]:
        """An answer's headers as they go on to the SDK."""
        return [
            (name, value)
            for name, value in response.headers.raw
            if name.lower().decode("latin-1") not in _OURS
        ]

    def stopped(self, reason: str, *, timed_out: bool) -> Exception:
        """What an SDK understands: its own connection error, or its own time-out."""
        kind = self.http.ReadTimeout if timed_out else self.http.RemoteProtocolError
        error: Exception = kind(reason)
        return error

    def streams(self, mixin: type, *, blocking: bool) -> type:
        """A class of the library's response streams, made of what the mixin does."""
        made = self._streams.get(mixin)
        if made is None:
            base = self.http.SyncByteStream if blocking else self.http.AsyncByteStream
            made = self._streams[mixin] = type(mixin.__name__, (mixin, base), {})
        return made

    def defaults(self, read_s: float) -> dict[str, Any]:
        """What an SDK sets for a client of its own; our read time-out becomes the SDK's."""
        return {"follow_redirects": True, "timeout": self.http.Timeout(read_s, connect=CONNECT_S)}

    def transport(self, *, blocking: bool) -> Any:
        """The library's own transport, with what the SDKs set for theirs: many connections, kept alive by TCP."""
        kind = self.http.HTTPTransport if blocking else self.http.AsyncHTTPTransport
        limits = self.http.Limits(max_connections=1000, max_keepalive_connections=100)
        return kind(limits=limits, socket_options=_keep_alive())


def _installed(name: Name | None) -> Any:
    if name is not None:
        return importlib.import_module(name)
    try:
        return importlib.import_module("httpx2")
    except ModuleNotFoundError:
        return importlib.import_module("httpx")


def _keep_alive() -> list[tuple[int, int, int]]:
    """TCP keep-alive: a peer that vanished is noticed within about a minute and a half, whatever was read before."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    if sys.platform == "linux":
        options += [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        ]
    return options
