"""What all routes share: the caller, error answers, and the hooks between a connection and its generation."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from edge.admission.gate import ProviderFull, TenantFull, WaitedTooLong
from edge.admission.seats import Full, Seat
from edge.asgi.emit import EventStream, Hooks
from edge.auth import ROLES, Right, Unauthorized, may
from edge.dialects import BadRequest
from edge.driving.opening import named
from edge.follow import Follower
from edge.generation import Generation
from edge.idempotency.once import Conflict
from edge.log import LogAway
from edge.provider.health import ProvidersAway
from edge.reading.presented import Refusal
from edge.reading.readings import Crowded
from edge.routes import documented
from edge.service import Busy, EdgeService
from schemas.errors import TokentrailError
from schemas.events import ClientReader, LogEvent
from schemas.failures import error_body
from schemas.ids import uuid7
from schemas.outcomes import ERRORS
from schemas.records import ControlKind, ControlRecord
from schemas.settings import ApiKey

RETRY_AFTER_S = 1


def service_of(request: Request) -> EdgeService:
    """The process's service."""
    service: EdgeService = request.app.state.service
    return service


def caller_of(request: Request, right: Right) -> ApiKey:
    """Who is calling, and may do what the route does; raises Unauthorized, Forbidden."""
    return allowed(service_of(request).keys.identify(request.headers), right)


def allowed(key: ApiKey, right: Right) -> ApiKey:
    """A key that has a right; raises Forbidden, before anything is looked up."""
    if not may(key, right):
        having = ", ".join(role for role in ROLES if may(key.model_copy(update={"roles": (role,)}), right))
        raise Forbidden(f"this key's roles do not allow to {right}: that takes one of {having}")
    return key


def failure(
    code: str,
    message: str | None = None,
    *,
    dialect: str = "openai.chat",
    status: int | None = None,
    beside: dict[str, Any] | None = None,
) -> Response:
    """An error answer in a dialect's own shape; ``beside`` stands beside the error."""
    row = ERRORS[code]
    status = status or row.status
    if status == 204:  # noqa: PLR2004 - nothing follows the terminal
        return Response(status_code=204)
    body = {**error_body(dialect, code, message or row.meaning, status), **(beside or {})}
    headers = {"x-should-retry": "true" if row.retryable else "false"}
    if row.retryable:
        headers["retry-after"] = str(RETRY_AFTER_S)
    if status == 401:  # noqa: PLR2004
        headers["www-authenticate"] = "Bearer"
    return Response(orjson.dumps(body), status, headers, media_type="application/json")


def refusal(answer: Refusal) -> Response:
    """A refusal as an HTTP answer; 204 tells an EventSource to stop reconnecting."""
    if answer.status == 204:  # noqa: PLR2004 - HTTP's own number
        return Response(status_code=204)
    beside = {} if answer.first_available_seq is None else {"first_available_seq": answer.first_available_seq}
    return failure(answer.code, status=answer.status, beside=beside)


class TooLarge(TokentrailError):
    """The body is above its limit."""


class TooSlow(TokentrailError):
    """The body does not come."""


class Forbidden(TokentrailError):
    """Not this key's right."""


_ANSWERS: dict[type[Exception], tuple[str, int | None]] = {
    Unauthorized: ("unauthorized", None),
    Forbidden: ("forbidden", None),
    BadRequest: ("bad_request", None),
    TooLarge: ("bad_request", 413),
    TooSlow: ("bad_request", 408),
    Busy: ("too_many_requests", None),
    Crowded: ("too_many_requests", None),
    Full: ("too_many_requests", None),
    TenantFull: ("too_many_requests", None),
    ProviderFull: ("overloaded", None),
    WaitedTooLong: ("queue_timeout", None),
    ProvidersAway: ("overloaded", None),
    LogAway: ("log_unavailable", None),
    Conflict: ("idempotency_conflict", None),
    ClientDisconnect: (
        "bad_request",
        None,
    ),  # it left while it was sending: nobody reads this, and it is no bug
}


_SHAPES = (("/v1/messages", "anthropic.messages"), ("/v1/responses", "openai.responses"))


def install(app: FastAPI) -> None:
    """Let the routes raise what they cannot serve; each type has one answer."""
    documented.install(app)
    for kind, (code, status) in _ANSWERS.items():
        app.add_exception_handler(kind, _handler(code, status))
    app.add_exception_handler(HTTPException, _nothing_there)


def _nothing_there(request: Request, error: Exception) -> Response:
    """A path or a method that is not served: still in the shape that the path's SDK reads."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    code = "not_found" if status == 404 else "bad_request"  # noqa: PLR2004 - HTTP's own number
    message = f"{request.method} {request.url.path} is not served here"
    answer = failure(code, message, dialect=_dialect_at(request.url.path), status=status)
    answer.headers.update((isinstance(error, HTTPException) and error.headers) or {})
    return answer


def _handler(code: str, status: int | None) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        said = failure(code, str(error), dialect=_dialect_at(request.url.path), status=status)
        if isinstance(error, ProvidersAway):
            said.headers["retry-after"] = str(error.retry_after_s)
        return said

    return answer


def _dialect_at(path: str) -> str:
    """Whose error shape a path answers in: that of the SDK which calls it, OpenAI's where it is one of our own."""
    return next((dialect for prefix, dialect in _SHAPES if path.startswith(prefix)), "openai.chat")


def request_id_of(service: EdgeService, request: Request) -> str:
    """The client's X-Request-Id, else a new one; raises BadRequest."""
    given = named(request.headers, "x-request-id")
    return given or uuid7(service.clock.wall_us() // 1000, service.clock.random_bits(74))


class ReaderHooks(Hooks):
    """Ties a connection to a generation of this edge, or announces it to the edge that runs it."""

    def __init__(
        self,
        service: EdgeService,
        follower: Follower,
        generation: Generation | None,
        model: str,
        seat: Seat,
    ) -> None:
        self._seat = seat
        self._service = service
        self._follower = follower
        self._generation = generation
        self._model = service.metrics.model(model)
        self._opened_us = service.clock.now_us() if generation is None else generation.accepted_us
        self._first_us: int | None = None
        self.reader_id = f"{service.clock.random_bits(64):016x}"
        self.stream: EventStream | None = None
        self._resumed_from = follower.reading.next_seq - 1 if follower.reading.next_seq else None
        self._ended = False

    def opened(self) -> None:
        """See Hooks."""
        if self.stream is not None:
            self._service.registry.streams[self._follower.generation_id, self.reader_id] = self.stream
        if self._generation is not None:
            reader = ClientReader(reader_id=self.reader_id, resumed_from=self._resumed_from)
            self._generation.reading[self.reader_id] = self._follower.reading
            self._service.registry.attach(self._generation, reader)

    def closed(self, because: str | None) -> None:
        """See Hooks."""
        self._seat.leave()
        self._service.metrics.stream_ended(self._model, because)
        self._service.registry.streams.pop((self._follower.generation_id, self.reader_id), None)
        if self._generation is not None:
            last = self._follower.reading.next_seq - 1
            reason = "ended" if self._ended or because is None else because
            reader = ClientReader(
                reader_id=self.reader_id, last_seq=last if last >= 0 else None, reason=reason
            )
            self._generation.left(self.reader_id, reason)
            self._service.registry.detach(self._generation, reader)

    def unread(self) -> None:
        """See Hooks."""
        self._seat.leave()

    def emitted(self, *, first: bool, terminal: LogEvent | None) -> None:
        """See Hooks."""
        if self._first_us is None and first:
            self._first_us = now_us = self._service.clock.now_us()
            self._service.metrics.first_token_ms.labels(self._model).observe(
                (now_us - self._opened_us) / 1000
            )
            if self._generation is not None and self._generation.first_emit_us is None:
                self._generation.first_emit_us = now_us - self._generation.accepted_us
        self._ended = self._ended or terminal is not None
        if terminal is not None and self._first_us is not None:
            now_us = self._service.clock.now_us()
            self._service.metrics.last_token_ms.labels(self._model).observe((now_us - self._first_us) / 1000)

    async def remote(self) -> None:
        """Announce the reader on control, so that the owner's grace timer sees it.

        First when it has read all there is: a replay of what is over says nothing. One that takes longer than the period
        is a reader all the same: its client may be slower than the generation that it follows.
        """
        if self._generation is not None:
            return
        service, every_s = self._service, self._service.settings.disconnect.grace_s / 3
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await self._follower.met_end.wait()
        while not self._follower.reading.ended:
            if self._follower.remote:
                record = ControlRecord(
                    generation_id=self._follower.generation_id,
                    kind=ControlKind.ATTACHED,
                    edge_id=service.settings.edge.id,
                    wall_us=service.clock.wall_us(),
                )
                with suppress(LogAway):  # said again at the next turn, well within the owner's grace time
                    await service.log.tell(record.generation_id.encode(), service.codec.encode(record))
            await asyncio.sleep(every_s)  # the announcement's own period, not a wait for anything
