"""What became of a generation: its stream again, its finished answer, its state, and its end on request.

Works on every edge alike: what does not run here is read from the log. Before: ``app``. After: ``edge.reading.resume``,
``edge.reading.history``.
"""

import asyncio
from typing import Any

import msgspec
import orjson
import structlog
from fastapi import APIRouter, Request, Response

from edge.auth import Right, may
from edge.dialects import BadRequest
from edge.dialects.spoken import dialect_of
from edge.follow import Hole, LogSilent, OffsetGone
from edge.reading.archive import ArchiveAway, Sum
from edge.reading.frames import NATIVE
from edge.reading.result import body_of
from edge.reading.resume import Opened, Presented, Refusal
from edge.reading.state import state_of
from edge.routes.common import Forbidden, failure, refusal, service_of
from edge.routes.dialects import read_body
from edge.routes.documented import (
    ANY_ERROR,
    CURSOR_HEADERS,
    ENDINGS,
    NOTHING_FOLLOWS,
    VISITED,
    Schema,
    answers,
    errors,
    json_body,
    ref,
    streamed,
)
from edge.routes.streams import presented, stream_of
from edge.routes.visitors import visitor_of
from edge.service import EdgeService
from schemas.events import CancelRequested, LogEvent
from schemas.records import ControlKind, ControlRecord
from schemas.settings import ApiKey

router = APIRouter(default_response_class=Response)
log = structlog.get_logger()
CANCEL_BYTES_MAX = 4_096
_MODES = ("soft", "hard")
_REASONS = ("user_abort", "client_disconnect", "policy_violation")
_SOURCES = ("api", "cli", "page")
_CANCEL = VISITED | json_body(
    {
        "type": "object",
        "properties": {
            "mode": {"enum": list(_MODES)},
            "reason": {"enum": list(_REASONS)},
            "source": {
                "enum": list(_SOURCES),
                "description": "Where the call comes from, as it says itself.",
            },
        },
    },
    required=False,
)
_CANCELLED = (
    answers(ref("Ended")) | answers(ref("Running"), 202) | errors(400, 401, 403, 404, 408, 410, 413, 429, 503)
)
_STATE: Schema = {
    "type": "object",
    "required": [
        *("generation_id", "state", "dialect", "links", "attempts", "stalls", "usage", "provider_cost"),
        *("customer_charge", "trace", "trace_complete"),
    ],
}


@router.get(
    "/v1/generations/{generation_id}/events",
    responses=streamed() | NOTHING_FOLLOWS | errors(400, 401, 403, 404, 409, 410, 429, 503),
    openapi_extra=VISITED | {"parameters": CURSOR_HEADERS},
)
async def events(
    request: Request, generation_id: str, dialect: str = NATIVE, after: str | None = None
) -> Response:
    """The stream of any generation behind a cursor (Last-Event-ID, or ?after=), on any edge."""
    service = service_of(request)
    caller = await visitor_of(request, generation_id, Right.READ)
    shown = presented(request, after)
    return await service.desk.seats.seated(
        caller.id, lambda seat: stream_of(request, caller, generation_id, dialect, shown, seat)
    )


@router.get(
    "/v1/generations/{generation_id}",
    responses=answers(_STATE) | errors(401, 403, 404, 410, 429, 503),
    openapi_extra=VISITED,
)
async def generation(request: Request, generation_id: str) -> Response:
    """State, timings so far, attempts, stalls, usage, cost, links, and what was traced beside the events."""
    service = service_of(request)
    caller = await visitor_of(request, generation_id, Right.READ)
    history = await service.desk.history(caller, generation_id)
    if isinstance(history, Refusal):
        return refusal(history)
    local = service.registry.get(generation_id)
    state = local.state.value if local is not None else None
    bill = await _bill(service, history.records[0].tenant, generation_id) if history.terminal else []
    return _json(state_of(history, state, service.settings.stream.stall_threshold_ms * 1000, bill))


async def _bill(service: EdgeService, tenant: str, generation_id: str) -> list[Sum]:
    """What the ledger has of it; none too where it cannot be asked, which is no reason to tell nothing."""
    if service.archive is None:
        return []
    try:
        return await service.archive.bill(tenant, generation_id)
    except ArchiveAway as away:
        log.warning("a generation is told without its cost", error=str(away))
        return []


@router.get(
    "/v1/generations/{generation_id}/result",
    responses=answers(ref("Answer"))
    | answers(ref("Running"), 202)
    | errors(401, 403, 404, 410, *ENDINGS, schema=ANY_ERROR),
    openapi_extra=VISITED,
)
async def result(request: Request, generation_id: str) -> Response:
    """The finished answer as the dialect's non-streaming body; 202 while it runs."""
    service = service_of(request)
    caller = await visitor_of(request, generation_id, Right.READ)
    history = await service.desk.history(caller, generation_id)
    if isinstance(history, Refusal):
        return refusal(history)
    dialect = dialect_of(history.records[0].dialect)
    if history.terminal is None:
        if not history.complete:
            return failure("resume_expired", dialect=dialect.name)
        return _json({"generation_id": generation_id, "state": "running"}, 202)
    status, body, retry = body_of(dialect, history.answer())
    headers = {"x-generation-id": generation_id}
    if status >= 400:  # noqa: PLR2004 - HTTP's own number
        headers["x-should-retry"] = "true" if retry else "false"
    return Response(body, status, headers, media_type="application/json")


@router.post("/v1/cancel/{generation_id}", responses=_CANCELLED, openapi_extra=_CANCEL)
@router.post("/v1/generations/{generation_id}/cancel", responses=_CANCELLED, openapi_extra=_CANCEL)
async def cancel(request: Request, generation_id: str) -> Response:
    """End a generation, from any edge; idempotent. Answers the terminal, or 202 when it has not been seen yet."""
    service = service_of(request)
    caller = await visitor_of(request, generation_id, Right.END)
    body = await read_body(request, CANCEL_BYTES_MAX) if _has_body(request) else {}
    seen = await end(service, caller, generation_id, _cancel_of(body, caller))
    if isinstance(seen, Refusal):
        return refusal(seen)
    if seen is None:
        return _json({"generation_id": generation_id, "state": "cancelling"}, 202)
    return _json({"generation_id": generation_id, "state": "finalized", "terminal": _terminal(seen)})


async def end(
    service: EdgeService, caller: ApiKey, generation_id: str, asked: CancelRequested
) -> LogEvent | Refusal | None:
    """End a generation, wherever it runs, and follow it for a while: its terminal, or None where none was seen."""
    opened = await service.desk.open_stream(caller, generation_id, Presented())
    if isinstance(opened, Refusal):
        return opened
    local = service.registry.get(generation_id)
    ended = opened.follower.reading.ended or (local is not None and local.terminal is not None)
    try:
        if not ended and not service.registry.cancel(generation_id, asked):
            await _tell(service, generation_id, asked)
    except BaseException:
        opened.follower.close()
        raise
    return await _seen(service, opened)


def _has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _cancel_of(body: dict[str, Any], caller: ApiKey) -> CancelRequested:
    mode, reason = body.get("mode", "soft"), body.get("reason", "user_abort")
    source = body.get("source", "api")
    if mode not in _MODES or reason not in _REASONS or source not in _SOURCES:
        raise BadRequest(
            f"mode must be one of {', '.join(_MODES)}, reason of {', '.join(_REASONS)}, source of {', '.join(_SOURCES)}"
        )
    if mode == "hard" and not may(caller, Right.FORCE):
        raise Forbidden("a hard cancel needs a key with the operator role; soft takes at most 200 ms longer")
    return CancelRequested(mode=mode, reason=reason, source=source, requested_by=caller.id)


async def _tell(service: EdgeService, generation_id: str, asked: CancelRequested) -> None:
    record = ControlRecord(
        generation_id=generation_id,
        kind=ControlKind.CANCEL,
        edge_id=service.settings.edge.id,
        wall_us=service.clock.wall_us(),
        cancel=asked,
    )
    await service.log.tell(generation_id.encode(), service.codec.encode(record))


async def _seen(service: EdgeService, opened: Opened) -> LogEvent | None:
    follower, terminal = opened.follower, None
    try:
        async with asyncio.timeout(service.settings.cancel.answer_s):
            while not follower.ended:
                terminal = (await follower.read())[-1].event
    except (TimeoutError, Hole, LogSilent, OffsetGone):
        return None
    finally:
        follower.close()
    return terminal


def _terminal(event: LogEvent) -> dict[str, Any]:
    said = event.message_end or event.error
    return {"kind": event.kind.value, "seq": event.seq, **(msgspec.to_builtins(said) if said else {})}


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")
