"""Who may see one generation: the API keys of its tenant, and whoever shows a ticket for it.

A visitor with a ticket acts as the key that asked for it, without its roles: it reads, and ends softly where that key may,
this generation and no other. A header is stronger than a ticket. Before: ``generations`` asks. After: ``edge.tickets``.
"""

import orjson
from fastapi import APIRouter, Request, Response

from edge.auth import Right, Unauthorized, may
from edge.reading.history import read_history
from edge.reading.resume import Presented, Refusal, read_cursor
from edge.routes.common import allowed, caller_of, failure, service_of
from edge.routes.documented import SECURED, Schema, answers, errors
from edge.service import EdgeService
from edge.tickets import issue, read
from schemas.cursor import Cursor, CursorMalformed
from schemas.ids import is_uuid7
from schemas.settings import ApiKey

router = APIRouter(default_response_class=Response)
VISITOR_ROLES, READER_ROLES = ("caller",), ("analyst",)
_NOT_GOOD = "this ticket is not valid here"
_TOO_OLD = "this ticket is too old for a first connect: ask for a new one"
_TICKET: Schema = {
    "type": "object",
    "required": ["generation_id", "ticket", "expires_in_s"],
    "properties": {"ticket": {"type": "string"}, "expires_in_s": {"type": "number"}},
}


@router.post(
    "/v1/generations/{generation_id}/tickets",
    status_code=201,
    responses=answers(_TICKET, 201) | errors(401, 403, 404, 410, 503),
    openapi_extra=SECURED,
)
async def tickets(request: Request, generation_id: str) -> Response:
    """A short-lived ticket for this generation, used as ``?ticket=`` where no header can be set."""
    service, caller = service_of(request), caller_of(request, Right.READ)
    opened = await service.desk.open_stream(caller, generation_id, Presented())
    if isinstance(opened, Refusal):
        return failure(opened.code, status=opened.status)
    opened.follower.close()
    body = {"generation_id": generation_id, **ticket_for(service, generation_id, caller.id)}
    return Response(orjson.dumps(body), 201, {"cache-control": "no-store"}, media_type="application/json")


def ticket_for(service: EdgeService, generation_id: str, key_id: str) -> dict[str, str | float]:
    """A new ticket and how long it is good for a first connect."""
    issued_s = service.clock.wall_us() // 1_000_000
    text = issue(service.secret_of(generation_id), generation_id, key_id, issued_s)
    return {"ticket": text, "expires_in_s": service.settings.resume.ticket_s}


async def visitor_of(request: Request, generation_id: str, right: Right) -> ApiKey:
    """Who wants to see this generation, and may do what the route does; raises Unauthorized, Forbidden, LogAway."""
    text = request.query_params.get("ticket")
    if text is None or "authorization" in request.headers or "x-api-key" in request.headers:
        return caller_of(request, right)
    service = service_of(request)
    ticket = read(service.secret_of(generation_id), generation_id, text) if is_uuid7(generation_id) else None
    key = None if ticket is None else service.keys.of_id(ticket.key_id)
    if ticket is None or key is None:
        raise Unauthorized(_NOT_GOOD)
    age_s = service.clock.wall_us() / 1e6 - ticket.issued_s
    fresh = -service.settings.resume.skew_s <= age_s <= service.settings.resume.ticket_s
    if not fresh and not await _carried(request, service, generation_id):
        raise Unauthorized(_TOO_OLD)
    roles = VISITOR_ROLES if may(key, Right.END) else READER_ROLES
    return allowed(key.model_copy(update={"roles": roles if may(key, Right.READ) else ()}), right)


async def _carried(request: Request, service: EdgeService, generation_id: str) -> bool:
    """Whether a visitor was here before (a signed id of this generation), and it is not over for the grace time."""
    shown = Presented(
        request.headers.get("last-event-id"),
        request.query_params.get("after"),
        request.headers.get("x-resumption-token"),
    )
    try:
        cursor = read_cursor(shown)
    except CursorMalformed:
        return False
    if cursor is None or cursor.sig is None:
        return False
    local = service.registry.get(generation_id)  # there until the end plus the grace time
    if local is not None:
        return _good(service, generation_id, cursor, local.identity.key_id)
    return await _carried_elsewhere(service, generation_id, cursor)


async def _carried_elsewhere(service: EdgeService, generation_id: str, cursor: Cursor) -> bool:
    located = await service.desk.locate(generation_id, cursor)
    if located is None or not _good(service, generation_id, cursor, located.event.key_id):
        return False
    async with service.desk.readings.turn(located.event.tenant, generation_id):
        history = await read_history(service.log, service.codec, located)
    terminal = next((record for record in history.records if record.is_terminal), None)
    grace_us = service.settings.disconnect.grace_s * 1e6
    return terminal is None or service.clock.wall_us() - terminal.wall_us <= grace_us


def _good(service: EdgeService, generation_id: str, cursor: Cursor, key_id: str) -> bool:
    return service.signing.verify(generation_id, cursor, key_id, service.clock.wall_us())
