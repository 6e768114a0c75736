"""A provider of a script: what it answers, when, and what became of its connections. In place of ``edge.provider.upstream``."""

import asyncio
import json
from contextlib import asynccontextmanager

from edge.provider.upstream import UpstreamFailed
from schemas.events import Dispatch

DONE = b"data: [DONE]\n\n"
HANG = "hang"
CUT = "cut"


def chunk(text="x", **fields):
    """Give the bytes of a content chunk."""
    return _sse({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **fields})


def finish(word="stop"):
    """Give the bytes of a finish chunk."""
    return _sse({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]})


def usage(prompt=3, completion=2):
    """Give the bytes of a usage chunk."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return _sse({"choices": [], "usage": counts})


def _sse(value):
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    return f"data: {json.dumps(base | value)}\n\n".encode()


class Script:
    """One answer. ``reads``: bytes, seconds to wait, HANG, CUT, an asyncio.Event to wait for, or an exception.

    ``head``: what to wait for before the response head, in the same words. Without CUT the stream ends properly.
    """

    def __init__(self, *reads, status=200, content_type="text/event-stream", headers=None, head=None):
        self.reads = list(reads)
        self.status = status
        self.content_type = content_type
        self.headers = headers or {}
        self.head = head


class Call:
    """One call that the edge made."""

    def __init__(self, provider, body):
        self.provider = provider
        self.body = body
        self.closed = False
        self.drained = False


class _Answer:
    def __init__(self, script, call):
        self.status = script.status
        self.content_type = script.content_type
        self.headers = script.headers
        self._reads = list(script.reads)
        self._call = call
        self.detached = False

    async def read(self):
        while self._reads:
            read = self._reads.pop(0)
            if isinstance(read, bytes):
                return read
            await _wait(read)
        return b""

    async def body(self):
        parts = []
        while piece := await self.read():
            parts.append(piece)
        return b"".join(parts)

    def drain_later(self, within_s):
        del within_s
        self.detached = self._call.drained = True


async def _wait(what):
    if what == HANG:
        await asyncio.Event().wait()
    elif what == CUT:
        raise UpstreamFailed(Dispatch.ACCEPTED, "the stream broke")
    elif isinstance(what, asyncio.Event):
        await what.wait()
    elif isinstance(what, BaseException):
        raise what
    else:
        await asyncio.sleep(what)


class ScriptedUpstream:
    """Answers the i-th call with the i-th script, the last one for every later call."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.calls = []

    async def start(self):
        """Nothing to open."""

    async def stop(self):
        """Nothing to close."""

    @asynccontextmanager
    async def call(self, provider, path, body, headers):
        """See edge.provider.upstream.Upstream.call."""
        del path, headers
        script = self.scripts[min(len(self.calls), len(self.scripts) - 1)]
        call = Call(provider, body)
        self.calls.append(call)
        try:
            if script.head is not None:
                await _wait(script.head)
            yield _Answer(script, call)
        finally:
            call.closed = True


OK = Script(chunk("Hel"), chunk("lo"), finish(), usage(), DONE)
"""An answer as it should be."""
