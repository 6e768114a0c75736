"""The provider dialects' own endpoints: an unmodified SDK points its ``base_url`` here.

One function serves them all: the path names the dialect, the dialect says what the request means. The stream of a POST
is a follower from nothing of a generation that has just begun: the same path as any resume. Before: ``app``. After:
``edge.service`` begins it, ``edge.asgi.emit`` or ``edge.reading.result`` answers.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from edge.admission.seats import Seat
from edge.asgi.direct import AsgiResponse, Straight
from edge.asgi.emit import EventStream, Hooks
from edge.auth import Right
from edge.dialects import BadRequest, ClientRequest, Dialect
from edge.dialects.reading import TOO_DEEP, too_deep
from edge.dialects.spoken import dialect_of
from edge.driving.timers import CALL_TURNS
from edge.generation import Generation
from edge.idempotency.claims import Claim
from edge.idempotency.once import asked_of
from edge.reading.frames import Frames
from edge.reading.result import WholeAnswer, first_answer, late_head
from edge.reading.resume import Opened, Presented, Refusal
from edge.routes.common import (
    ReaderHooks,
    TooLarge,
    TooSlow,
    caller_of,
    failure,
    request_id_of,
    service_of,
)
from edge.routes.documented import (
    CALL_HEADERS,
    ENDINGS,
    REFUSALS,
    SECURED,
    Schema,
    answers,
    errors,
    json_body,
    ref,
    streamed,
)
from edge.routes.later import begun, wants_later
from edge.routes.visitors import ticket_for
from edge.service import EdgeService
from schemas.settings import ApiKey

router = APIRouter(default_response_class=Response, route_class=Straight)


_MESSAGES: Schema = {"type": "array", "minItems": 1, "items": {"type": "object"}}
_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": (1 << 63) - 1}
_SWITCH: Schema = {"type": ["boolean", "null"]}
_STOP: Schema = {"type": ["string", "array", "null"], "items": {"type": "string"}}
_STOPS: Schema = {"type": ["array", "null"], "items": {"type": "string"}}
_OPTIONS: Schema = {"type": ["object", "null"]}


def _asked(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """What a call needs and what is read of it; every other field goes on to the provider as it came."""
    needed = {"model": {"type": "string", "minLength": 1}, **required}
    fields = {**needed, "stream": _SWITCH, **(optional or {})}
    body = json_body({"type": "object", "required": list(needed), "properties": fields})
    return SECURED | {"parameters": CALL_HEADERS} | body


def _answered(error: str) -> dict[int | str, Schema]:
    """What a call may be answered: its failures are ours, in the dialect's shape, or the provider's own."""
    failed = {"anyOf": [ref(error), ref("ProviderError")]}
    ours = {400, 401, 403, 408, 410, 413, 422, *ENDINGS}
    return (
        streamed(ref("Answer")) | answers(ref("Begun"), 202) | errors(*sorted(ours), schema=failed) | REFUSALS
    )


@router.post(
    "/v1/chat/completions",
    responses=_answered("OpenAiError"),
    openapi_extra=_asked({"messages": _MESSAGES}, {"n": _COUNT, "stop": _STOP, "stream_options": _OPTIONS}),
)
async def chat_completions(request: Request) -> Response:
    """OpenAI Chat Completions, streaming and not; resumable under X-Generation-Id."""
    return await _generate(request, dialect_of("openai.chat"))


@router.post(
    "/v1/messages",
    responses=_answered("AnthropicError"),
    openapi_extra=_asked({"messages": _MESSAGES}, {"stop_sequences": _STOPS}),
)
async def messages(request: Request) -> Response:
    """Anthropic Messages, streaming and not; resumable under X-Generation-Id."""
    return await _generate(request, dialect_of("anthropic.messages"))


@router.post(
    "/v1/responses",
    responses=_answered("OpenAiError"),
    openapi_extra=_asked({}, {"background": _SWITCH}),
)
async def responses(request: Request) -> Response:
    """OpenAI Responses, streaming and not, in the background too; resumable under X-Generation-Id."""
    return await _generate(request, dialect_of("openai.responses"))


async def _generate(request: Request, dialect: Dialect) -> Response:
    """Begin a generation, and follow it from nothing: as a stream, or until its whole answer is there."""
    caller = caller_of(request, Right.CALL)
    return await service_of(request).desk.seats.seated(
        caller.id, lambda seat: _begun(request, caller, dialect, seat)
    )


async def _begun(request: Request, caller: ApiKey, dialect: Dialect, seat: Seat) -> Response:
    service = service_of(request)
    body = await read_body(request, service.settings.limit.body_bytes)
    asked = dialect.request_of(body, request.headers)
    later = wants_later(request.headers.getlist("prefer"))
    if later:
        asked = asked._replace(background=True)
    once = asked_of(request.headers.getlist("idempotency-key"), caller.tenant, dialect.name, body)
    if once is None:
        entry = await service.begin(caller, dialect, asked, request.headers)
    else:
        found = await service.once.begin(caller, dialect, asked, request.headers, once)
        if isinstance(found, Claim):
            return await _again(request, caller, dialect, asked, found.generation_id, seat, later=later)
        entry = found
    for _ in range(
        CALL_TURNS
    ):  # what its reader needs is made ready while the provider has its request already
        await asyncio.sleep(0)
    generation = entry.generation
    identity = generation.identity
    if later:
        ticket = ticket_for(service, generation.id, caller.id)
        return begun(generation.id, identity.start.request_id, ticket)
    follower = service.desk.begun_here(generation)
    opened = Opened(follower, identity.tenant, identity.key_id, identity.dialect, None)
    names = _names(dialect, generation.id, identity.start.request_id)
    return await _answer(service, dialect, asked, opened, generation, names, seat)


async def _again(
    request: Request,
    caller: ApiKey,
    dialect: Dialect,
    asked: ClientRequest,
    generation_id: str,
    seat: Seat,
    *,
    later: bool,
) -> Response:
    """A call whose key stands for an earlier one is answered with that one's generation, from nothing."""
    service = service_of(request)
    request_id = request_id_of(service, request)
    replayed = (b"idempotent-replayed", b"true")
    if later:
        if (gone := service.desk.settled(caller, generation_id)) is not None:
            return failure(gone.code, dialect=dialect.name, status=gone.status)
        answer = begun(generation_id, request_id, ticket_for(service, generation_id, caller.id))
        answer.headers.update(dict(_text([replayed])))
        return answer
    opened = await service.desk.open_stream(caller, generation_id, Presented())
    if isinstance(opened, Refusal):
        return failure(opened.code, dialect=dialect.name, status=opened.status)
    local = service.registry.get(generation_id)
    names = [*_names(dialect, generation_id, request_id), replayed]
    return await _answer(service, dialect, asked, opened, local, names, seat)


async def _answer(
    service: EdgeService,
    dialect: Dialect,
    asked: ClientRequest,
    opened: Opened,
    local: Generation | None,
    headers: list[tuple[bytes, bytes]],
    seat: Seat,
) -> Response:
    """The response to a call: a stream from nothing, or the whole answer."""
    follower = opened.follower
    if asked.background and not asked.stream:
        status, answer, advice = await first_answer(follower, dialect, local)
        return Response(answer, status, dict(_text(headers + advice)), media_type="application/json")
    model = asked.model if local is None else local.identity.start.model
    seat.read(follower)
    hooks: Hooks = ReaderHooks(service, follower, local, model, seat)
    if not asked.stream:
        return AsgiResponse(WholeAnswer(follower, dialect, headers, hooks, local))
    secret = service.secret_of(follower.generation_id) if local is None else local.identity.secret
    return AsgiResponse(
        EventStream(
            follower,
            Frames(dialect.name, follower.generation_id, opened.key_id, secret),
            headers,
            service.settings.stream.heartbeat_s,
            stage_of(service, local),
            hooks,
            generation=local,
            opening=lambda: late_head(follower, dialect),
        )
    )


def _names(dialect: Dialect, generation_id: str, request_id: str) -> list[tuple[bytes, bytes]]:
    """What a call and its generation are called, also where the dialect's own SDK looks for it."""
    said = dict.fromkeys(("x-request-id", dialect.request_id_header), request_id)
    return [
        *((name.encode(), text.encode("latin-1", "replace")) for name, text in said.items()),
        (b"x-generation-id", generation_id.encode()),
    ]


def _text(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


async def read_body(request: Request, limit_bytes: int) -> dict[str, Any]:
    """The JSON object of a request, read up to a limit; raises TooLarge, TooSlow or BadRequest."""
    parts, size = [], 0
    idle_s, loop = service_of(request).settings.limit.body_idle_s, asyncio.get_running_loop()
    try:
        async with asyncio.timeout(idle_s) as bound:
            async for piece in request.stream():
                size += len(piece)
                if size > limit_bytes:
                    raise TooLarge(f"the request body is above {limit_bytes} bytes (limit.body_bytes)")
                parts.append(piece)
                bound.reschedule(loop.time() + idle_s)
    except TimeoutError as error:
        raise TooSlow(f"no more of the request body came for {idle_s} s (limit.body_idle_s)") from error
    try:
        body = orjson.loads(raw := b"".join(parts))
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    if too_deep(body, len(raw)):
        raise BadRequest(f"the body is {TOO_DEEP}")
    return body


def stage_of(service: EdgeService, generation: Generation | None) -> Callable[[], tuple[str, int]]:
    """Where a generation stands, for native heartbeats; of one that runs elsewhere it is not known."""
    if generation is None:
        began_us = service.clock.now_us()
        return lambda: ("unknown", (service.clock.now_us() - began_us) // 1000)
    return lambda: (generation.stage, (service.clock.now_us() - generation.accepted_us) // 1000)


_MODELS: Schema = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {"type": "object"}}},
}


@router.get("/v1/models", responses=answers(_MODELS) | errors(401, 403), openapi_extra=SECURED)
async def models(request: Request) -> Response:
    """The models that are routed here, as OpenAI lists them; ``dialect`` says by which call each is asked."""
    service = service_of(request)
    caller_of(request, Right.READ)
    listed = [
        {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": routes[0].provider,
            "dialect": service.settings.providers[routes[0].provider].dialect,
        }
        for name, routes in service.settings.models.items()
    ]
    return Response(orjson.dumps({"object": "list", "data": listed}), media_type="application/json")
