"""What became of a tool call of an answer, as whoever ran the tool reports it, on any edge.

Before: ``app``. After: ``edge.driving.tools``.
"""

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from edge.auth import Right
from edge.dialects import BadRequest
from edge.reading.resume import Refusal
from edge.routes.common import caller_of, failure, service_of
from edge.routes.dialects import read_body
from edge.routes.documented import SECURED, Schema, answers, errors, json_body
from schemas.events import ToolStatus

router = APIRouter(default_response_class=Response)
REPORT_BYTES_MAX = 4_096
WORD_CHARS_MAX = 256
_STATUSES = ("succeeded", "failed", "cancelled", "timeout")
_WORDS = ("compensation_id", "approved_by")
_FLAGS = ("side_effect_committed", "idempotent")
_FLAG: Schema = {"type": ["boolean", "null"]}
_WORD: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": WORD_CHARS_MAX}
_BODY = json_body(
    {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"enum": list(_STATUSES)}}
        | dict.fromkeys(_FLAGS, _FLAG)
        | dict.fromkeys(_WORDS, _WORD),
    }
)
_TOLD: Schema = {
    "type": "object",
    "required": ["generation_id", "tool_call_id", "status", "may_retry"],
    "properties": {
        "status": {"enum": list(_STATUSES)},
        "may_retry": {
            "type": "boolean",
            "description": "Whether the tool may be run again by itself: only one that is idempotent, without side "
            "effect or approval.",
        },
    },
}


@router.post(
    "/v1/generations/{generation_id}/tools/{tool_call_id}",
    responses=answers(_TOLD) | answers(_TOLD, 202) | errors(400, 401, 403, 404, 408, 410, 413, 429, 503),
    openapi_extra=SECURED | _BODY,
)
async def report(request: Request, generation_id: str, tool_call_id: str) -> Response:
    """Report a tool call's status, side effect, compensation and approval; 202: the edge that runs it was told."""
    service, caller = service_of(request), caller_of(request, Right.END)
    said = _said(tool_call_id, await read_body(request, REPORT_BYTES_MAX))
    noted = await service.tools.report(caller, generation_id, said)
    if isinstance(noted, Refusal):
        return failure(noted.code, status=noted.status)
    bound = said.side_effect_committed or said.approved_by is not None
    told: dict[str, Any] = {
        "generation_id": generation_id,
        "tool_call_id": tool_call_id,
        "status": said.status,
        "may_retry": said.idempotent is True and not bound and said.status != "succeeded",
    }
    return Response(orjson.dumps(told), 200 if noted else 202, media_type="application/json")


def _said(tool_call_id: str, body: dict[str, Any]) -> ToolStatus:
    if body.get("status") not in _STATUSES:
        raise BadRequest(f"status must be one of {', '.join(_STATUSES)}")
    for name in _FLAGS:
        if not isinstance(body.get(name), bool | None):
            raise BadRequest(f"{name} must be true or false")
    for name in _WORDS:
        word = body.get(name)
        if word is not None and (not isinstance(word, str) or not 0 < len(word) <= WORD_CHARS_MAX):
            raise BadRequest(f"{name} must be a text of 1 to {WORD_CHARS_MAX} characters")
    fields = {name: body.get(name) for name in (*_FLAGS, *_WORDS)}
    return ToolStatus(tool_call_id=tool_call_id, status=body["status"], **fields)
