"""One connection of an ASGI application for tests: what was sent, when it hangs up, and a socket that can be slow."""

import asyncio
import json

from edge.sse import SseDecoder
from tests.support.waiting import until


class Connection:
    """Runs an ASGI application on one connection in a task of its own."""

    def __init__(self, app, scope=None, body=b""):
        self.sent = []
        self.hung_up = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self._body = [{"type": "http.request", "body": body, "more_body": False}]
        self.task = asyncio.ensure_future(app(scope or {"type": "http"}, self._receive, self._send))

    async def _receive(self):
        if self._body:
            return self._body.pop()
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        await self.writable.wait()
        self.sent.append(message)

    @property
    def status(self):
        """Give the status, None before the head went out."""
        return self.sent[0]["status"] if self.sent else None

    @property
    def headers(self):
        """Give the headers of the head."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self):
        """Give the bytes that were written so far."""
        return b"".join(message["body"] for message in self.sent if message["type"].endswith("body"))

    @property
    def events(self):
        """Give the events that a WHATWG parser reads from the body."""
        return SseDecoder(1 << 24).feed(self.body)

    async def until(self, text):
        """Wait until the body holds a text."""
        await until(lambda: text in self.body)

    async def done(self, within_s=10):
        """Wait for the end of the response; it is a whole one."""
        await asyncio.wait_for(self.task, within_s)
        assert [message["type"] for message in self.sent].count("http.response.start") == 1
        assert self.sent[0]["type"] == "http.response.start"
        assert not self.sent[-1].get("more_body", False)
        return self

    async def hang_up(self):
        """Close the connection from the client's side and wait until the application has noticed."""
        self.hung_up.set()
        await asyncio.wait_for(asyncio.gather(self.task, return_exceptions=True), 10)


def post(app, path, body, headers=None):
    """Send a POST with a JSON body on a connection of its own."""
    return _request(app, "POST", path, headers, json.dumps(body).encode())


def get(app, path, headers=None, method="GET"):
    """Send a GET, or what else has no body, on a connection of its own."""
    return _request(app, method, path, headers, b"")


def _request(app, method, path, headers, body):
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
    }
    return Connection(app, scope, body)
