"""Two edges behind nginx and a simulated provider, as a test asks them and looks behind them.

Before: ``tests.support.nginx``, ``tests.support.http2``. After: ``tests.support.leaving``.
"""

import json

import httpx

from schemas.events import TERMINALS, LogEvent
from schemas.topics import EVENTS
from tests.support.client import body
from tests.support.edge import CODEC
from tests.support.http2 import Http2
from tests.support.nginx import NAME
from tests.support.place import frames
from tests.support.processes import HEADERS
from tests.support.sinks import log_of

CHAT = "/v1/chat/completions"


class Front:
    """The edges, the provider, and what stands before them."""

    def __init__(self, kafka, edges, provider, nginx, stock_port):
        self.kafka, self.edges, self.provider = kafka, edges, provider
        self.nginx, self.stock_port = nginx, stock_port

    def http2(self):
        """Give a new connection through nginx."""
        return Http2(self.nginx.port, self.nginx.trust, NAME, HEADERS | {"accept-encoding": "gzip, br"})

    def call_of(self, tag):
        """Give what the provider remembers of the call with this tag, None before it came."""
        calls = [seen for seen in self.provider.requests if seen.tag == tag]
        assert len(calls) <= 1
        return calls[0] if calls else None

    async def records(self, ids):
        """Give the records of generations up to their terminals, in log order, by id."""
        for generation_id in ids:
            await self.replay(generation_id)  # it ends with the terminal
        found = {generation_id: [] for generation_id in ids}
        for record in await log_of(self.kafka, EVENTS):
            records = found.get((record.key or b"").decode("latin-1"))
            if records is not None and not any(event.kind in TERMINALS for event in records):
                records.append(CODEC.decode(record.value, LogEvent))
        return found

    async def replay(self, generation_id, edge=0):
        """Give the whole stream as an edge itself plays it, not through nginx."""
        async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
            path = f"{self.edges[edge].url}{events_of(generation_id)}"
            return (await client.get(path)).content


def asked(tag="", *, stream=True, **script):
    """Give the body of a call; ``tag`` finds it at the provider."""
    return json.dumps(body(tag=tag, **script) | {"stream": stream}).encode()


def events_of(generation_id):
    """Give where a generation's stream is."""
    return f"/v1/generations/{generation_id}/events?dialect=openai.chat"


def so_many(count):
    """Give a condition: a stream has so many frames with an id."""
    return lambda stream: len(frames(stream.body)) >= count


def lags_s(received):
    """Give how long after the provider wrote it each token came."""
    found = []
    for at_ns, data in received:
        for line in data.split(b"\n"):
            chunk = json.loads(line[6:]) if line.startswith(b'data: {"') else {}
            if any(choice["delta"].get("content") for choice in chunk.get("choices", ())):
                found.append((at_ns - chunk["x_sim"]["sent_ns"]) / 1e9)
    return found
