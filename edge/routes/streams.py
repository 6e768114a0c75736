"""A stream of a generation that is there, by whichever route it is asked for: one way to read what the client shows.

Before: ``generations``, ``responses``. After: ``edge.reading.resume`` opens it, ``edge.asgi.emit`` sends it.
"""

from fastapi import Request, Response

from edge.admission.seats import Seat
from edge.asgi.direct import AsgiResponse
from edge.asgi.emit import EventStream
from edge.reading.frames import NATIVE, Frames
from edge.reading.resume import Opened, Presented, Refusal
from edge.routes.acks import prelude_of
from edge.routes.common import ReaderHooks, failure, refusal, request_id_of, service_of
from edge.routes.dialects import stage_of
from edge.service import EdgeService
from schemas.settings import ApiKey

SSE = "text/event-stream; charset=utf-8"


async def stream_of(
    request: Request, caller: ApiKey, generation_id: str, dialect: str, shown: Presented, seat: Seat
) -> Response:
    """A generation's stream behind what the client shows, in a dialect, or why there is none; raises BadRequest, Full."""
    service = service_of(request)
    request_id = request_id_of(service, request)  # it may be refused: before anything is open
    prelude = await prelude_of(request, service, caller, generation_id, dialect)
    opened = await service.desk.open_stream(caller, generation_id, shown)
    if isinstance(opened, Refusal):
        if opened.status == 204 and isinstance(prelude, bytes) and prelude:  # noqa: PLR2004 - HTTP's own number
            return Response(prelude, headers={"x-generation-id": generation_id}, media_type=SSE)
        service.metrics.resumes.labels(str(opened.status)).inc()
        return refusal(opened)
    if dialect not in (NATIVE, opened.dialect):
        opened.follower.close()
        return failure(
            "bad_request", f"this generation was made in {opened.dialect}: ask for that dialect or native"
        )
    if isinstance(prelude, Refusal):
        opened.follower.close()
        return refusal(prelude)
    return _stream(service, request_id, opened, dialect, seat, prelude)


def presented(request: Request, after: str | None) -> Presented:
    """What the client shows of where it stands; ``after`` is the query's."""
    shown = request.headers
    return Presented(
        shown.get("last-event-id"), after, shown.get("x-resumption-token"), shown.get("x-resume-mode")
    )


def _stream(
    service: EdgeService, request_id: str, opened: Opened, dialect: str, seat: Seat, prelude: bytes
) -> AsgiResponse:
    """The response of an opened stream; raises Full."""
    follower = opened.follower
    seat.read(follower)
    service.metrics.resumes.labels("200").inc()
    local = service.registry.get(follower.generation_id)
    frames = Frames(dialect, follower.generation_id, opened.key_id, service.secret_of(follower.generation_id))
    headers = [
        (b"x-request-id", request_id.encode("latin-1", "replace")),
        (b"x-generation-id", follower.generation_id.encode()),
    ]
    if opened.resumed_from is not None:
        headers.append((b"x-resumed-from", str(opened.resumed_from).encode()))
    began_us = service.clock.now_us()
    stage = (
        stage_of(service, local)
        if local is not None
        else lambda: ("unknown", (service.clock.now_us() - began_us) // 1000)
    )
    model = local.identity.start.model if local is not None else "unknown"
    hooks = ReaderHooks(service, follower, local, model, seat)
    headers.append((b"x-reader-id", hooks.reader_id.encode()))
    response = EventStream(
        follower,
        frames,
        headers,
        service.settings.stream.heartbeat_s,
        stage,
        hooks,
        resumed_from=opened.resumed_from,
        prelude=prelude,
    )
    if dialect == NATIVE:
        hooks.stream = response
    return AsgiResponse(response)
