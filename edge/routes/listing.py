"""What runs, or ran lately, on this edge: for a live view of one tenant's generations.

It tells this edge's memory only, never another edge's: whoever wants all of them asks each edge, or ClickHouse. Before:
``app``. After: ``edge.registry``, ``edge.reading.state``.
"""

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from edge.auth import Right
from edge.dialects import BadRequest
from edge.reading.state import listed
from edge.routes.common import caller_of, service_of
from edge.routes.documented import SECURED, Schema, answers, errors

router = APIRouter(default_response_class=Response)
LISTED_MAX = 100
"""A screen shows fewer; a line is about 600 bytes."""
_STATES = ("running", "finalized", "any")
_LIST: Schema = {
    "type": "object",
    "required": ["object", "edge_id", "data", "more"],
    "properties": {
        "object": {"const": "list"},
        "edge_id": {"type": "string"},
        "more": {"type": "boolean"},
        "data": {
            "type": "array",
            "maxItems": LISTED_MAX,
            "items": {
                "type": "object",
                "required": ["generation_id", "state", "model", "dialect", "started_us", "links"],
            },
        },
    },
}


@router.get("/v1/generations", responses=answers(_LIST) | errors(400, 401, 403), openapi_extra=SECURED)
async def generations(
    request: Request,
    state: Annotated[str, Query(json_schema_extra={"enum": list(_STATES)})] = "running",
) -> Response:
    """The caller's tenant's generations in this edge's memory, newest first: running ones, or finalized ones lately."""
    service, caller = service_of(request), caller_of(request, Right.READ)
    if state not in _STATES:
        raise BadRequest(f"state must be one of {', '.join(_STATES)}")
    found = [
        entry
        for entry in service.registry.newest()
        if entry.generation.identity.tenant == caller.tenant
        and state in ("any", "finalized" if entry.generation.terminal is not None else "running")
    ]
    now_us = service.clock.now_us()
    body = {
        "object": "list",
        "edge_id": service.settings.edge.id,
        "data": [listed(entry, now_us) for entry in found[:LISTED_MAX]],
        "more": len(found) > LISTED_MAX,
    }
    return Response(orjson.dumps(body), media_type="application/json", headers={"cache-control": "no-store"})
