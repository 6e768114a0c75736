"""Acknowledgements: a client says what it stored of a stream, and is sent again what it lacks or has otherwise.

On the edge that writes the stream which the client names by its ``X-Reader-Id``, that stream gets it at once. Elsewhere
the answer says what to ask for by ``X-Resume-Nack`` at the next connect. The edge that runs the generation records it.
Before: ``generations`` opens streams. After: ``edge.reading.acks``.
"""

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from edge.auth import Right
from edge.dialects import BadRequest
from edge.reading.acks import Claims, claims_in, claims_of, resent, wanted
from edge.reading.frames import NATIVE
from edge.reading.resume import Refusal
from edge.routes.common import failure, service_of
from edge.routes.dialects import read_body
from edge.routes.documented import VISITED, Schema, answers, errors, json_body
from edge.routes.visitors import visitor_of
from edge.service import EdgeService
from schemas.events import ClientReader, LogEvent, SeqRange
from schemas.settings import ApiKey

router = APIRouter(default_response_class=Response)
ACK_BYTES_MAX = 16_384
READER_ID_CHARS_MAX = 64
_SEQ: Schema = {"type": "integer", "minimum": 0}
_BODY = json_body(
    {
        "type": "object",
        "properties": {
            "reader_id": {"type": "string", "maxLength": READER_ID_CHARS_MAX},
            "ranges": {
                "type": "array",
                "items": {
                    "type": "array",
                    "prefixItems": [_SEQ, _SEQ, {"type": "string", "pattern": "^[0-9a-f]{8}$"}],
                },
            },
            "missing": {"type": "array", "items": {"type": "array", "prefixItems": [_SEQ, _SEQ]}},
        },
    }
)
_ACKED: Schema = {
    "type": "object",
    "required": ["generation_id", "resent", "nack"],
    "properties": {"resent": {"type": "array"}, "nack": {"type": "array"}},
}


@router.post(
    "/v1/generations/{generation_id}/ack",
    responses=answers(_ACKED) | errors(400, 401, 403, 404, 408, 409, 410, 413, 429, 503),
    openapi_extra=VISITED | _BODY,
)
async def ack(request: Request, generation_id: str) -> Response:
    """Acknowledge or NACK events of a native stream; what differs or lacks is sent again on the reader's open stream."""
    service = service_of(request)
    caller = await visitor_of(request, generation_id, Right.READ)
    body = await read_body(request, ACK_BYTES_MAX)
    claims = claims_of(body, service.settings.limit)
    reader_id = _reader_of(body)
    again = await again_of(service, caller, generation_id, claims)
    if isinstance(again, Refusal):
        return failure(again.code, status=again.status)
    if claims.ranges:
        service.registry.acked(generation_id, ClientReader(reader_id=reader_id, ranges=claims.ranges))
    open_stream = service.registry.streams.get((generation_id, reader_id)) if again else None
    told = open_stream is not None and open_stream.send_again(resent(again))
    said: dict[str, Any] = {"generation_id": generation_id, "resent": [], "nack": []}
    said["resent" if told else "nack"] = ranges_of(again)
    return Response(orjson.dumps(said), media_type="application/json")


async def again_of(
    service: EdgeService, caller: ApiKey, generation_id: str, claims: Claims
) -> list[LogEvent] | Refusal:
    """What must be sent again, by what the log and the archive hold; a refusal where the client names what is not there."""
    history = await service.desk.history(caller, generation_id)
    if isinstance(history, Refusal):
        return history
    known = history.delivered[-1].seq if history.delivered else None
    if claims.last > (-1 if known is None else known):
        return Refusal(409, "cursor_ahead")
    return await wanted(claims, history.delivered, service.settings.limit)


async def prelude_of(
    request: Request, service: EdgeService, caller: ApiKey, generation_id: str, dialect: str
) -> bytes | Refusal:
    """What a stream begins with: the events that a resume says are lacking or different; mostly none."""
    shown = request.headers
    claims = claims_in(shown.get("x-resumption-checksum"), shown.get("x-resume-nack"), service.settings.limit)
    if not claims:
        return b""
    if dialect != NATIVE:
        raise BadRequest("acknowledgements are of the native dialect: leave ?dialect= away")
    again = await again_of(service, caller, generation_id, claims)
    return again if isinstance(again, Refusal) else resent(again)


def ranges_of(events: list[LogEvent]) -> list[list[int]]:
    """Events as inclusive ranges of their seqs."""
    joined: list[SeqRange] = []
    for event in events:
        seq = event.seq or 0
        if joined and joined[-1].last == seq - 1:
            joined[-1] = SeqRange(first=joined[-1].first, last=seq)
        else:
            joined.append(SeqRange(first=seq, last=seq))
    return [[said.first, said.last] for said in joined]


def _reader_of(body: dict[str, Any]) -> str:
    reader_id = body.get("reader_id", "")
    if not isinstance(reader_id, str) or len(reader_id) > READER_ID_CHARS_MAX:
        raise BadRequest("reader_id is the X-Reader-Id of the stream's response")
    return reader_id
