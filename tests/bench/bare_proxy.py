"""Process: the reference of the edge. ASGI in, aiohttp out, bytes passed on as they come; no log, no ids, no checks.

`python -m tests.bench.bare_proxy PORT UPSTREAM_URL`: the same route as the edge, under the same server. Before: `stack`.
After: nothing.
"""

import sys
from typing import Any

import aiohttp
import uvicorn


class BareProxy:
    """The ASGI application."""

    def __init__(self, upstream_url: str) -> None:
        self._upstream_url = upstream_url
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass one request on, and its answer back."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                self._upstream_url, connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout()
            )
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {"content-type": "application/json"}
        async with self._session.request(
            scope["method"], scope["path"], data=body, headers=headers
        ) as answer:
            kind = answer.headers.get("content-type", "text/plain").encode()
            head = {
                "type": "http.response.start",
                "status": answer.status,
                "headers": [(b"content-type", kind)],
            }
            await send(head)
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


if __name__ == "__main__":
    uvicorn.run(
        BareProxy(sys.argv[2]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
