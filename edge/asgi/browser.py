"""What a browser asks beside the calls themselves, and HEAD, as one layer around all routes.

CORS for ``/v1/``: a page of an allowed origin (``edge.cors_origins``) may call, and read what a client must read. Keys and
tickets travel in headers and addresses, never in cookies, so credentials are never allowed and ``*`` gives nobody anything
that he has no key for. HEAD is GET without its body; a stream is not opened for it. A request without ``Origin`` pays the
look for it. Before: ``direct``. After: the routes.
"""

import re
from collections.abc import Sequence
from typing import Any

from edge.asgi.direct import Application, Scope, rewired
from edge.asgi.emit import HEAD_ONLY

PATHS = "/v1/"
METHODS = b"GET, HEAD, POST, OPTIONS"
EXPOSED = (
    "X-Generation-Id",
    "X-Request-Id",
    "Request-Id",
    "X-Reader-Id",
    "X-Resumed-From",
    "X-Resume-Mode",
    "X-Should-Retry",
    "X-Tokentrail-Changed-Inputs",
    "Idempotent-Replayed",
    "Preference-Applied",
    "Retry-After",
    "WWW-Authenticate",
)
"""What a client must read, beyond what every page may."""
MAX_AGE_S = 7_200
"""Longer is cut to this by browsers."""
HEADERS_BYTES_MAX = 4_096
_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:[ \t]*,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")


class Browser:
    """The layer.

    Args:
        app: what is behind it.
        origins: whose pages may call; ``*`` for all.

    """

    def __init__(self, app: Application, origins: Sequence[str]) -> None:
        self._app = app
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            send = _without_body(send)
            scope = rewired(scope, receive, send) | {"method": "GET", HEAD_ONLY: True}
        origin = _header(scope, b"origin")
        if origin is None or not scope["path"].startswith(PATHS):
            await self._app(scope, receive, send)
            return
        allowed = self._any or origin in self._origins
        if scope["method"] == "OPTIONS" and _header(scope, b"access-control-request-method") is not None:
            await self._preflight(scope, origin, send, allowed=allowed)
            return
        if allowed:
            send = self._readable(origin, send)
            scope = rewired(scope, receive, send)
        await self._app(scope, receive, send)

    async def _preflight(self, scope: Scope, origin: bytes, send: Any, *, allowed: bool) -> None:
        """What the call behind it may be; 403 without a word of permission to anybody else's page."""
        headers = [(b"vary", b"Origin, Access-Control-Request-Headers")]
        if allowed:
            headers += self._of(origin)
            headers += [
                (b"access-control-allow-methods", METHODS),
                (b"access-control-max-age", str(MAX_AGE_S).encode()),
            ]
            asked = _header(scope, b"access-control-request-headers") or b""
            if len(asked) <= HEADERS_BYTES_MAX and _NAMES.fullmatch(asked):
                headers.append((b"access-control-allow-headers", asked))
        await send({"type": "http.response.start", "status": 204 if allowed else 403, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _of(self, origin: bytes) -> list[tuple[bytes, bytes]]:
        return [(b"access-control-allow-origin", b"*" if self._any else origin)]

    def _readable(self, origin: bytes, send: Any) -> Any:
        """A ``send`` whose heads may be read by the page."""
        more = [
            *self._of(origin),
            (b"access-control-expose-headers", ", ".join(EXPOSED).encode()),
            (b"vary", b"Origin"),
        ]

        async def readable(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        return readable


def _without_body(send: Any) -> Any:
    async def bodyless(message: Any) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return bodyless


def _header(scope: Scope, name: bytes) -> bytes | None:
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None
