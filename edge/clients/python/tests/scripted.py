"""A server of a script, for both libraries, blocking or not: what the n-th request gets, and what was asked."""

import json
from dataclasses import dataclass, field

from tokentrail_client.vendor import Flavour

GENERATION = "0193a5d2-7c11-7b3e-9f04-5a2c8e61d0b7"
SIG = "k" * 22
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-generation-id": GENERATION}


@dataclass
class Reply:
    """One answer. ``error`` in place of an answer, ``then`` behind the chunks: the name of an exception to raise."""

    chunks: tuple = ()
    status: int = 200
    headers: dict = field(default_factory=lambda: dict(HEADERS))
    then: str | None = None
    error: str | None = None


def cursor(seq):
    return f"{seq}-17.{1000 + seq}-{SIG}"


def chat(seq, text):
    """Give a chunk of Chat Completions as it is on the wire."""
    data = json.dumps({"id": "c1", "object": "chat.completion.chunk", "model": "m", "created": 1,
                       "choices": [{"index": 0, "delta": {"content": text}}]})  # fmt: skip
    return f"id: {cursor(seq)}\ndata: {data}\n\n".encode()


def done(seq):
    return f"id: {cursor(seq)}\ndata: [DONE]\n\n".encode()


def native(seq, event, **data):
    """Give a native event as it is on the wire."""
    return f"event: {event}\nid: {cursor(seq)}\ndata: {json.dumps({'seq': seq, **data})}\n\n".encode()


def delta(seq, text):
    return native(seq, "delta", parts=[{"type": "text", "text": text}])


def answer(value, status=200, **headers):
    """Give a JSON answer."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply((json.dumps(value).encode(),), status, {"content-type": "application/json", **named})


def refusal(code, status, **headers):
    return answer({"error": {"code": code, "message": f"it is {code}"}}, status, **headers)


class Server:
    """Plays replies in order; ``asked`` is what came. Used as a transport of either library."""

    def __init__(self, *replies, library=None):
        self.flavour = Flavour(library)
        self.replies = list(replies)
        self.asked = []
        self.closed = 0
        self.streams = 0

    @property
    def paths(self):
        """Give method and path of each request."""
        return [f"{r.method} {r.url.raw_path.decode()}" for r in self.asked]

    def error(self, name):
        return getattr(self.flavour.http, name)(f"scripted {name}")

    def reply(self, request, stream):
        self.asked.append(request)
        assert self.replies, f"nobody expected {request.method} {request.url}"
        reply = self.replies.pop(0)
        if reply.error:
            raise self.error(reply.error)
        self.streams += 1
        body = self.flavour.streams(stream, blocking=stream is _Stream)(self, reply)
        return self.flavour.http.Response(reply.status, headers=reply.headers, stream=body)

    def handle_request(self, request):
        request.read()
        return self.reply(request, _Stream)

    async def handle_async_request(self, request):
        await request.aread()
        return self.reply(request, _AsyncStream)

    def close(self):
        pass

    async def aclose(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass


class _Stream:
    def __init__(self, server, reply):
        self.server, self.reply = server, reply

    def __iter__(self):
        yield from self.reply.chunks
        if self.reply.then:
            raise self.server.error(self.reply.then)

    def close(self):
        self.server.closed += 1


class _AsyncStream(_Stream):
    async def __aiter__(self):
        for chunk in self.reply.chunks:
            yield chunk
        if self.reply.then:
            raise self.server.error(self.reply.then)

    async def aclose(self):
        self.server.closed += 1
