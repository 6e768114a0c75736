"""The stream itself, as a small ASGI response: head, frames, heartbeats, the end.

The head goes out when the opening says so (first valid event) or when the first heartbeat is due; one comment line
follows it at once. Frames are what the follower returns; heartbeats come by a timer of their own, from t = 0 on; nothing
is written after the terminal. A disconnect (FIN, RST, RST_STREAM: the server tells) ends the response and nothing else.
No framework helper: a chunk costs one wake, one join, one ``send``.

Before: ``follow``, ``frames``. After: the server's socket.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from edge.asgi.parting import of_code, of_terminal, parting_of
from edge.follow import Follower, Hole, LogSilent, OffsetGone
from edge.generation import Generation, Head
from edge.reading.frames import Frames
from edge.sse import comment_line
from schemas.events import LogEvent
from schemas.outcomes import ERRORS

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
HEAD_ONLY = "tokentrail.head_only"
"""In a scope: only the head is asked for, so nobody reads."""


class Hooks:
    """What the response tells its owner; every method may be overridden."""

    def opened(self) -> None:
        """The connection reads from now on."""

    def closed(self, because: str | None) -> None:
        """The connection reads no more; ``because``: why its stream ended before its time (``parting``), None: it did not."""

    def unread(self) -> None:
        """Only the head was asked for; neither of the two above is said."""

    def emitted(self, *, first: bool, terminal: LogEvent | None) -> None:
        """The first frame with content was written, or the terminal was."""

    async def remote(self) -> None:
        """The reader stands at the end of a generation that runs elsewhere; cancelled with the connection."""


class EventStream:
    """One connection's stream (ASGI application).

    Args:
        follower: what is read.
        frames: how it looks.
        headers: of the response, beside the stream's own.
        heartbeat_s: the wire's heartbeat interval.
        stage: where the generation stands, for native heartbeats: (stage, elapsed_ms).
        hooks: told about what happens.
        resumed_from: the cursor's seq, None for a first connect.
        generation: of this edge, where the head waits for its first valid event.
        opening: what the head of a generation elsewhere waits for; None of both: the head goes out at once.
        prelude: whole frames without id that go out behind the head.

    """

    def __init__(
        self,
        follower: Follower,
        frames: Frames,
        headers: list[tuple[bytes, bytes]],
        heartbeat_s: float,
        stage: Callable[[], tuple[str, int]],
        hooks: Hooks,
        *,
        resumed_from: int | None = None,
        generation: Generation | None = None,
        opening: Callable[[], Awaitable[Head]] | None = None,
        prelude: bytes = b"",
    ) -> None:
        self._follower = follower
        self._frames = frames
        self._headers = headers
        self._heartbeat_s = heartbeat_s
        self._stage = stage
        self._hooks = hooks
        self._resumed_from = resumed_from
        self._generation = generation
        self._opening = opening
        self._prelude = prelude
        self._send: Send | None = None
        self._head_out: asyncio.Task[None] | None = None
        self._ended = False
        self._because: str | None = None
        self._first = True
        self._content_told = False
        self._beat: asyncio.TimerHandle | None = None
        self._side: set[asyncio.Task[None]] = set()
        self._again: asyncio.Task[None] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve the connection until the terminal or until it is gone."""
        if scope.get(HEAD_ONLY):
            self._follower.close()
            self._hooks.unread()
            await send(self._head_message())
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        self._send = send
        self._hooks.opened()
        loop = asyncio.get_running_loop()
        pump = loop.create_task(self._pump(send))
        watch = loop.create_task(gone(receive))
        remote = loop.create_task(self._hooks.remote())
        self._beat = loop.call_later(self._heartbeat_s, self._heartbeat_due)
        try:
            await asyncio.wait({pump, watch}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
        finally:
            self._because = parting_of(scope, pump, watch) or self._because
            self._ended = True
            self._beat.cancel()
            for task in (pump, watch, remote, *self._side):
                task.cancel()
            await asyncio.gather(pump, watch, remote, *self._side, return_exceptions=True)
            self._follower.close()
            self._hooks.closed(self._because)

    def send_again(self, frames: bytes) -> bool:
        """Write resent frames between the others; False where nothing is written, or the last ones are not out yet.

        A client that acknowledges and does not read would have them pile up here.
        """
        if self._again is not None and not self._again.done():
            return False
        self._again = self.beside(frames)
        return self._again is not None

    def beside(self, frames: bytes) -> asyncio.Task[None] | None:
        """Write whole frames without id between the others; None where nothing is written any more."""
        if self._ended or self._send is None:
            return None
        task = asyncio.get_running_loop().create_task(self._beside(frames, self._send))
        self._side.add(task)
        task.add_done_callback(self._side.discard)
        return task

    async def _beside(self, frames: bytes, send: Send) -> None:
        await self._start(send)
        if not self._ended:
            await send({"type": "http.response.body", "body": frames, "more_body": True})

    async def _pump(self, send: Send) -> None:
        head = await self._head()
        if head is not None and not head.ok:
            await self._refuse(head, send)
            return
        await self._start(send)
        follower = self._follower
        try:
            while not follower.ended:
                await self._write(await follower.read(), send)
        except Hole as hole:
            await self._break_off(hole.code, str(hole), send)
        except OffsetGone:
            await self._break_off("resume_expired", ERRORS["resume_expired"].meaning, send)
        except LogSilent as silent:
            await self._break_off("log_unavailable", str(silent), send)
        self._ended = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _head(self) -> Head | None:
        """What the head will be, None where a heartbeat has sent it already."""
        generation = self._generation
        if generation is not None:
            head = await asyncio.shield(generation.head)
            if (
                not head.ok
            ):  # publish before emit holds for a refusal too: the log has the terminal, or is away
                await generation.over()
        elif self._opening is not None:
            head = await self._opening()
        else:
            return None
        return head if self._head_out is None else None

    async def _start(self, send: Send) -> None:
        """Send the head once; whoever comes second waits until it is out."""
        if self._head_out is None:
            self._head_out = asyncio.get_running_loop().create_task(self._send_head(send))
        await self._head_out

    async def _send_head(self, send: Send) -> None:
        await send(self._head_message())
        body = comment_line("tokentrail") + self._prelude
        await send({"type": "http.response.body", "body": body, "more_body": True})

    def _head_message(self) -> Message:
        headers = [*STREAM_HEADERS, *self._headers, *changed(self._generation)]
        return {"type": "http.response.start", "status": 200, "headers": headers}

    async def _write(self, events: list[Any], send: Send) -> None:
        frames = [self._frames.frame(delivered) for delivered in events]
        body = frames[0] if len(frames) == 1 else b"".join(frames)
        if not body:
            return
        if self._first:
            body = self._frames.first(body, self._resumed_from)
            self._first = False
        last = events[-1].event
        terminal = last if last.is_terminal else None
        if terminal is not None:
            self._ended, self._because = True, of_terminal(terminal)
        await send({"type": "http.response.body", "body": body, "more_body": True})
        first = not self._content_told and any(d.event.has_content for d in events)
        if first or terminal is not None:
            self._content_told = self._content_told or first
            self._hooks.emitted(first=first, terminal=terminal)

    async def _refuse(self, head: Head, send: Send) -> None:
        """A failure before the first valid event keeps its own status and the dialect's own body."""
        self._ended = True
        end = None if self._generation is None else self._generation.terminal
        self._because = of_code(head.code or "") if end is None else of_terminal(end.event)
        row = ERRORS[head.code or "upstream_error"]
        headers = [
            *self._headers,
            (b"content-type", b"application/json"),
            *advice(row.retryable, head.retry_after_ms),
        ]
        await send({"type": "http.response.start", "status": head.status, "headers": headers})
        await send({"type": "http.response.body", "body": head.body, "more_body": False})

    async def _break_off(self, code: str, message: str, send: Send) -> None:
        """An unnumbered error: not the terminal, but nothing is written behind it either."""
        self._ended, self._because = True, of_code(code)
        await send(
            {
                "type": "http.response.body",
                "body": self._frames.unnumbered_error(code, message),
                "more_body": True,
            }
        )

    def _heartbeat_due(self) -> None:
        if self._ended:
            return
        if not self._side:  # what a client does not read must not pile up here
            self.beside(self._frames.heartbeat(*self._stage()))
        self._beat = asyncio.get_running_loop().call_later(self._heartbeat_s, self._heartbeat_due)


def changed(generation: Generation | None) -> list[tuple[bytes, bytes]]:
    """What a head says of inputs that are not as the client sent them, as far as it is known then."""
    names = () if generation is None else generation.changed_inputs
    return [(b"x-tokentrail-changed-inputs", ", ".join(names).encode())] if names else []


def advice(retryable: bool, retry_after_ms: int | None = None) -> list[tuple[bytes, bytes]]:  # noqa: FBT001
    """What a failure's head says about trying again."""
    said = [(b"x-should-retry", b"true" if retryable else b"false")]
    if retry_after_ms is not None:
        said.append((b"retry-after", str(-(-retry_after_ms // 1000)).encode()))
    return said


async def gone(receive: Receive) -> None:
    """Wait until the client's connection is gone."""
    while (await receive())["type"] != "http.disconnect":
        continue
