"""The finished answer as one body: of a call that asked for no stream, and of any generation afterwards.

``WholeAnswer`` reads the generation to its end like every other reader and answers once; the log, not this
connection, holds the answer, so a lost connection loses nothing. Before: ``follow``, ``history``. After: ``routes``.
"""

import asyncio

import orjson

from edge.asgi.emit import Hooks, Message, Receive, Send, advice, changed, gone
from edge.asgi.parting import of_code, of_terminal, parting_of
from edge.dialects import Dialect
from edge.driving.ending import head_of_event
from edge.follow import Follower, Hole, LogSilent, OffsetGone
from edge.generation import Generation, Head
from schemas.events import Kind, LogEvent
from schemas.failures import error_body
from schemas.outcomes import ERRORS


def body_of(dialect: Dialect, events: list[LogEvent]) -> tuple[int, bytes, bool]:
    """Status, body and whether to try again, from the events of a finished generation (the last is its terminal)."""
    terminal = next(event for event in events if event.is_terminal)
    if terminal.kind is Kind.ERROR and terminal.error is not None:
        code, message, successor = terminal.error.code, terminal.error.message, terminal.error.successor
    elif terminal.message_end is not None and terminal.message_end.finish_reason == "cancelled":
        code, message, successor = "cancelled", ERRORS["cancelled"].meaning, None
    else:
        return 200, orjson.dumps(dialect.assemble(events)), False
    row = ERRORS[code]
    body = error_body(dialect.name, code, message)
    if successor is not None:
        body["error"]["successor"] = successor
    return row.status, orjson.dumps(body), row.retryable


async def first_answer(
    follower: Follower, dialect: Dialect, generation: Generation | None
) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """What a background call is answered: the answer as far as it is, once it has a name; else how it failed.

    The headers behind it say whether to try again, where it failed.
    """
    events: list[LogEvent] = []
    try:
        while not follower.ended:
            events.extend(delivered.event for delivered in await follower.read())
            if not events[-1].is_terminal and (said := dialect.assemble(events)):
                return 200, orjson.dumps(said), []
    except (Hole, OffsetGone, LogSilent) as error:
        code = _code_of(error)
        row = ERRORS[code]
        return row.status, orjson.dumps(error_body(dialect.name, code, row.meaning)), advice(row.retryable)
    finally:
        follower.close()
    head = await _head(dialect, events, generation)
    if not head.ok:
        retryable = ERRORS[head.code or "upstream_error"].retryable
        return head.status, head.body, advice(retryable, head.retry_after_ms)
    status, body, retryable = body_of(dialect, events)
    return status, body, [] if status < 400 else advice(retryable)  # noqa: PLR2004 - HTTP's own number


def _code_of(error: Hole | OffsetGone | LogSilent) -> str:
    """Why an answer cannot be read: what is gone is gone for good, and only a silent log is asked again."""
    if isinstance(error, LogSilent):
        return "log_unavailable"
    return error.code if isinstance(error, Hole) else "resume_expired"


async def late_head(follower: Follower, dialect: Dialect) -> Head:
    """The head of a stream from nothing whose generation runs elsewhere; what cannot be read is said in the stream."""
    try:
        event = await follower.opening()
    except (Hole, OffsetGone, LogSilent):
        return Head(ok=True)
    return Head(ok=True) if event is None else head_of_event(dialect, event)


async def _head(dialect: Dialect, events: list[LogEvent], generation: Generation | None) -> Head:
    """What the head says of a generation that was read to its end: its own edge's word where that is this one."""
    if generation is not None:
        return await generation.head
    shown = [event for event in events if event.kind is not Kind.MESSAGE_START]
    return head_of_event(dialect, shown[0]) if len(shown) == 1 else Head(ok=True)


class WholeAnswer:
    """One connection that waits for the whole answer (ASGI application)."""

    def __init__(
        self,
        follower: Follower,
        dialect: Dialect,
        headers: list[tuple[bytes, bytes]],
        hooks: Hooks,
        generation: Generation | None,
    ) -> None:
        self._follower = follower
        self._dialect = dialect
        self._headers = headers
        self._hooks = hooks
        self._wait_ms: int | None = None
        self._because: str | None = None
        self._generation = generation

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve the connection."""
        self._hooks.opened()
        loop = asyncio.get_running_loop()
        answer, watch = loop.create_task(self._answer()), loop.create_task(gone(receive))
        try:
            await asyncio.wait({answer, watch}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await self._send(*answer.result(), send)
        finally:
            because = parting_of(scope, answer, watch) or self._because
            for task in (answer, watch):
                task.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)
            self._follower.close()
            self._hooks.closed(because)

    async def _answer(self) -> tuple[int, bytes, bool]:
        events: list[LogEvent] = []
        try:
            while not self._follower.ended:
                events.extend(delivered.event for delivered in await self._follower.read())
        except (Hole, OffsetGone, LogSilent) as error:
            return self._failure(_code_of(error))
        self._because = of_terminal(events[-1])
        head = await _head(self._dialect, events, self._generation)
        if not head.ok:
            self._wait_ms = head.retry_after_ms
            return head.status, head.body, ERRORS[head.code or "upstream_error"].retryable
        self._hooks.emitted(first=True, terminal=events[-1])
        return body_of(self._dialect, events)

    def _failure(self, code: str) -> tuple[int, bytes, bool]:
        row = ERRORS[code]
        self._because = of_code(code)
        return row.status, orjson.dumps(error_body(self._dialect.name, code, row.meaning)), row.retryable

    async def _send(self, status: int, body: bytes, retry: bool, send: Send) -> None:  # noqa: FBT001
        headers = [*self._headers, *changed(self._generation), (b"content-type", b"application/json")]
        if status >= 400:  # noqa: PLR2004 - HTTP's own numbers
            headers += advice(retry, self._wait_ms)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
