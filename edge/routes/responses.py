"""OpenAI Responses after the call: an answer by the id in its body, on any edge.

The id is the provider's; which generation it is, the edges tell one another on control. Before: ``dialects`` began it.
After: ``generations``, by whose functions it is read, streamed again and ended.
"""

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from edge.auth import Right
from edge.dialects.spoken import dialect_of
from edge.reading.resume import Refusal
from edge.routes.common import caller_of, failure, refusal, service_of
from edge.routes.documented import (
    CURSOR_HEADERS,
    NOTHING_FOLLOWS,
    SECURED,
    answers,
    errors,
    ref,
    streamed,
)
from edge.routes.generations import end
from edge.routes.streams import presented, stream_of
from edge.service import EdgeService
from schemas.events import CancelRequested
from schemas.settings import ApiKey

router = APIRouter(default_response_class=Response)
DIALECT = "openai.responses"
_YES = ("true", "1")


@router.get(
    "/v1/responses/{response_id}",
    responses=streamed(ref("Answer")) | NOTHING_FOLLOWS | errors(400, 401, 403, 404, 409, 410, 429, 503),
    openapi_extra=SECURED | {"parameters": CURSOR_HEADERS},
)
async def retrieve(
    request: Request,
    response_id: str,
    stream_it: Annotated[str, Query(alias="stream")] = "false",
    starting_after: str | None = None,
) -> Response:
    """The response as far as it is, or (``stream=true``) its events behind ``starting_after``, live or again."""
    service, caller = service_of(request), caller_of(request, Right.READ)
    generation_id = await generation_of(service, response_id, caller.tenant)
    if generation_id is None:
        return _unknown(response_id)
    if stream_it.lower() not in _YES:
        return await _as_it_is(service, caller, generation_id)
    shown = presented(request, starting_after)
    return await service.desk.seats.seated(
        caller.id, lambda seat: stream_of(request, caller, generation_id, DIALECT, shown, seat)
    )


@router.post(
    "/v1/responses/{response_id}/cancel",
    responses=answers(ref("Answer")) | errors(401, 403, 404, 410, 429, 503),
    openapi_extra=SECURED,
)
async def cancel(request: Request, response_id: str) -> Response:
    """End a response, from any edge; idempotent. Answers it as it is then."""
    service, caller = service_of(request), caller_of(request, Right.END)
    generation_id = await generation_of(service, response_id, caller.tenant)
    if generation_id is None:
        return _unknown(response_id)
    seen = await end(service, caller, generation_id, CancelRequested(requested_by=caller.id))
    if isinstance(seen, Refusal):
        return refusal(seen)
    return await _as_it_is(service, caller, generation_id)


async def generation_of(service: EdgeService, response_id: str, tenant: str) -> str | None:
    """The tenant's generation with a provider's id: as the edges told one another, else as the archive has it."""
    found = await service.registry.aliased(response_id, tenant)
    if found is None and service.archive is not None:
        found = await service.archive.generation_named(tenant, response_id)
    return found


async def _as_it_is(service: EdgeService, caller: ApiKey, generation_id: str) -> Response:
    history = await service.desk.history(caller, generation_id)
    if isinstance(history, Refusal):
        return refusal(history)
    if not history.complete:
        return failure("resume_expired")
    body = dialect_of(DIALECT).assemble(history.answer())
    headers = {"x-generation-id": generation_id}
    return Response(orjson.dumps(body), 200, headers, media_type="application/json")


def _unknown(response_id: str) -> Response:
    return failure("not_found", f"there is no response {response_id!r}")
