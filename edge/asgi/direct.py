"""A stream's own way to the socket, past the framework's middlewares.

Each of them wraps ``send`` in one more coroutine, which a chunk pays and a stream does not need: it answers its own
errors. ``Direct`` is the outermost application and keeps the server's ``receive`` and ``send`` in the scope;
``AsgiResponse`` uses those. Before: the server. After: ``emit``, ``result``.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

Scope = dict[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]
_KEY = "tokentrail.direct"


class Direct:
    """Remembers the server's own callables in the scope."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve one request."""
        scope[_KEY] = (receive, send)
        await self._app(scope, receive, send)


def rewired(scope: Scope, receive: Any, send: Any) -> Scope:
    """A scope whose streams go through other callables; they still pass the framework's middlewares."""
    return {**scope, _KEY: (receive, send)} if _KEY in scope else {**scope}


class AsgiResponse(Response):
    """Hands the connection to one of our ASGI applications, as the framework's response."""

    def __init__(self, app: Callable[..., Any]) -> None:
        super().__init__()
        self._direct = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the connection."""
        receive, send = scope.get(_KEY, (receive, send))
        await self._direct(scope, receive, send)


class Straight(APIRoute):
    """A route whose endpoint takes the request alone and gives the response: the framework solves and turns nothing."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint itself."""
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint
