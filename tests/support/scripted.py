"""A provider of scripts on a real socket, as an SDK reaches it directly and an edge reaches it too.

The model's name chooses the script, the path its dialect; so that an unmodified client needs no field of ours. What a
caller writes behind an ``@`` in the name only tells its calls from others. Bytes go out as they stand in the script, one
write each. Before it: ``answers``. After it: whoever calls.
"""

import asyncio
from typing import NamedTuple

from aiohttp import web

from tests.support.upstream import CUT


class IfAsked(NamedTuple):
    """A read that goes out only to who asked for usage."""

    data: bytes


class Answer(NamedTuple):
    """What a model says: the reads of its stream, and the same in one piece.

    A read is bytes, seconds of silence, CUT, or IfAsked.
    """

    stream: list
    whole: bytes = b"{}"
    status: int = 200


class Seen(NamedTuple):
    """One call as it came."""

    path: str
    model: str
    streamed: bool


class ScriptedProvider:
    """``async with ScriptedProvider({path: {model: Answer}}) as provider: provider.url, provider.seen``."""

    def __init__(self, answers):
        self._answers = answers
        self.seen = []
        self.url = ""

    async def __aenter__(self):
        app = web.Application(client_max_size=1 << 20)
        for path in self._answers:
            app.router.add_post(path, self._call)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _call(self, request):
        body = await request.json()
        seen = Seen(request.path, body["model"], bool(body.get("stream")))
        self.seen.append(seen)
        answer = self._answers[seen.path][seen.model.partition("@")[0]]
        if answer.status != 200 or not seen.streamed:
            return web.Response(body=answer.whole, status=answer.status, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for read in answer.stream:
            if read == CUT:
                request.transport.close()
                return response
            if isinstance(read, bytes):
                await response.write(read)
            elif not isinstance(read, IfAsked):
                await asyncio.sleep(read)
            elif (body.get("stream_options") or {}).get("include_usage"):
                await response.write(read.data)
        await response.write_eof()
        return response
