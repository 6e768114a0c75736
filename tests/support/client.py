"""A plain client of the stream: posts, reads frames as a WHATWG parser does, cuts, resumes by Last-Event-ID."""

from typing import TYPE_CHECKING

import httpx
from httpx_sse._decoders import SSEDecoder

from tests.support.processes import HEADERS

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=0)


def new_client():
    """Give an HTTP client without keep-alive: every stream has a connection of its own that can be cut."""
    return httpx.AsyncClient(headers=HEADERS, timeout=httpx.Timeout(60), limits=_LIMITS)


class Reader:
    """What one client has received so far, over all its connections."""

    def __init__(self, client):
        self.client = client
        self.generation_id = None
        self.events: list[ServerSentEvent] = []
        self.statuses = []
        self.heads = []

    @property
    def frames(self):
        """Give (id, event, data) of everything with an id."""
        return [(e.id, e.event, e.data) for e in self.events]

    @property
    def last_id(self):
        """Give the id of the last event, None before the first."""
        return self.events[-1].id if self.events else None

    async def post(self, url, body, cut_after=None, headers=None):
        """Start a generation and read it, to its end or to a number of events."""
        request = self.client.stream("POST", f"{url}/v1/chat/completions", json=body, headers=headers)
        return await self._read(request, cut_after)

    async def resume(self, url, cut_after=None, dialect="openai.chat"):
        """Read on behind the last event that was received."""
        headers = {"last-event-id": self.last_id} if self.last_id else {}
        target = f"{url}/v1/generations/{self.generation_id}/events?dialect={dialect}"
        return await self._read(self.client.stream("GET", target, headers=headers), cut_after)

    async def _read(self, request, cut_after):
        async with request as response:
            self.statuses.append(response.status_code)
            self.heads.append(response.headers)
            self.generation_id = self.generation_id or response.headers.get("x-generation-id")
            if response.status_code != httpx.codes.OK:
                return False
            decoder, got = SSEDecoder(), 0
            try:
                async for line in response.aiter_lines():
                    event = decoder.decode(line.rstrip("\n"))
                    if event is None or not event.data or (event.id and event.id == self.last_id):
                        continue
                    self.events.append(event)
                    got += 1
                    if cut_after is not None and got >= cut_after:
                        return False
            except httpx.RemoteProtocolError:
                return False
            return True


def seqs(reader):
    """Give the seqs of what was received."""
    return [int(event.id.split("-")[0]) for event in reader.events]


def body(tokens=30, interval_ms=2, **simulate):
    """Give a streaming request that the simulator answers with so many tokens."""
    return {
        "model": "sim",
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
        "simulate": {"tokens": tokens, "interval_ms": interval_ms, **simulate},
    }
