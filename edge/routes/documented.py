"""What ``/openapi.json`` says: the statuses, bodies and headers of every route, beside the routes that use them.

Pure data, and ``install``, which hands it out. A provider's own refusal keeps its status, so the calls of the dialects
document every 4xx and 5xx; what is named by number is what this edge itself answers. Before: ``edge.app``. After: the
route files.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from edge.driving.opening import NAME_CHARS_MAX
from schemas.outcomes import ERRORS

Schema = dict[str, Any]

SECURED: Schema = {"security": [{"bearer": []}, {"x-api-key": []}]}
"""What every call needs but those of ``operations``: one of the two."""

VISITED: Schema = {"security": [{"bearer": []}, {"x-api-key": []}, {"ticket": []}]}
"""The same, or a ticket for the one generation."""

_TEXT: Schema = {"type": "string"}
_EVENTS: Schema = {
    "description": "Server-sent events, each with an `id:` to resume behind; comments between them."
}
_OBJECT: Schema = {"type": "object"}
_MEANINGS = {
    200: "The answer.",
    201: "Made.",
    202: "It runs.",
    204: "Nothing follows the cursor: the generation is at its end.",
    400: "The request cannot be served as it is.",
    401: "No valid API key, or a cursor that is not this key's.",
    403: "This key may not do this.",
    404: "There is no such thing, or it is another tenant's.",
    408: "The request's body did not come in time.",
    409: "Ended on request; or the events after this cursor do not exist yet.",
    410: "The events are held nowhere any more, or were forgotten on request.",
    413: "The request's body is above its limit.",
    422: "The same idempotency key with another body.",
    429: "A limit is reached, here or at the provider.",
    500: "The edge died before the end.",
    502: "What the provider sent is no answer.",
    503: "The log takes no records at the moment, or the provider is overloaded.",
    504: "A time-out, as the error's code says.",
}
_BEFORE_A_GENERATION = {
    "cursor_invalid", "cursor_ahead", "resume_expired", "erased", "not_found", "unauthorized", "forbidden",
    "idempotency_conflict", "quota_exceeded",
}  # fmt: skip
ENDINGS = tuple(sorted({row.status for code, row in ERRORS.items() if code not in _BEFORE_A_GENERATION}))
"""The statuses of generations that ended without an answer."""
REFUSALS: dict[int | str, Schema] = {
    "4XX": {"description": "The provider's own refusal, its status kept."},
    "5XX": {"description": "The provider's own failure, its status kept."},
}


def ref(name: str) -> Schema:
    """A schema of ``components``."""
    return {"$ref": f"#/components/schemas/{name}"}


ANY_ERROR: Schema = {"anyOf": [ref("OpenAiError"), ref("AnthropicError")]}


def described(status: int, schema: Schema | None, *, media_type: str = "application/json") -> Schema:
    """One answer; without a schema it has no body."""
    said: Schema = {"description": _MEANINGS[status]}
    if schema is not None:
        said["content"] = {media_type: {"schema": schema}}
    return said


NOTHING_FOLLOWS: dict[int | str, Schema] = {204: described(204, None)}


def errors(*statuses: int, schema: Schema | None = None) -> dict[int | str, Schema]:
    """Answers with an error object, OpenAI's where none is named."""
    return {status: described(status, schema or ref("OpenAiError")) for status in statuses}


def answers(schema: Schema, status: int = 200) -> dict[int | str, Schema]:
    """An answer in JSON."""
    return {status: described(status, schema)}


def streamed(schema: Schema | None = None) -> dict[int | str, Schema]:
    """An answer as server-sent events, or in JSON where a schema says that there is such a one."""
    said = described(200, _EVENTS, media_type="text/event-stream")
    if schema is not None:
        said["content"]["application/json"] = {"schema": schema}
    said["headers"] = {
        "X-Generation-Id": {"schema": {"type": "string", "format": "uuid"}},
        "X-Request-Id": {"schema": _TEXT},
        "X-Reader-Id": {"schema": _TEXT},
        "Request-Id": {
            "schema": _TEXT,
            "description": "The same, where the SDK of Anthropic Messages looks for it.",
        },
        "X-Resumed-From": {"schema": {"type": "string", "pattern": "^[0-9]+$"}},
    }
    return {200: said}


def header(name: str, description: str, schema: Schema | None = None) -> Schema:
    """An optional request header."""
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema or _TEXT,
    }


def json_body(schema: Schema, *, required: bool = True) -> Schema:
    """A request body."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


_NAME: Schema = {"type": "string", "maxLength": NAME_CHARS_MAX}
_MS: Schema = {"type": "string", "pattern": "^0*[1-9][0-9]{0,11}$"}
_HOLD_MS: Schema = {"type": "string", "pattern": "^[0-9]{1,9}$"}
CALL_HEADERS = [
    header("X-Request-Id", "The client's name for the call; one is made where there is none.", _NAME),
    header("X-Deadline-Ms", "How long the answer may take.", _MS),
    header("X-Context-Ms", "How long the client gathered context.", _MS),
    header("X-Previous-Generation-Id", "The generation that this one follows.", _NAME),
    header("X-Lineage-Kind", "How it follows: retry, continue or regenerate.", _NAME),
    header("X-Client-Id", "Who calls, within the key.", _NAME),
    header(
        "X-Tokentrail-On-Disconnect",
        "What happens when no reader is left.",
        {"type": "string", "enum": ["grace", "continue", "cancel"]},
    ),
    header(
        "X-Tokentrail-Hold-Ms", "Hold content back so long, so that another attempt may still win.", _HOLD_MS
    ),
    *[
        header(name, what, {"type": "string", "enum": ["restart", "continue"]})
        for name, what in (
            ("X-Tokentrail-On-Stall", "What follows when the provider falls silent after content."),
            ("X-Tokentrail-On-Break", "What follows when its stream breaks after content."),
        )
    ],
    header(
        "Idempotency-Key",
        "Calls with the same key and body within a day are one: the later ones get the first one's generation.",
        {"type": "string", "minLength": 1, "maxLength": 255},
    ),
    header("Prefer", "`respond-async`: answer 202 at once, run on whoever listens."),
]
CURSOR_HEADERS = [
    header("Last-Event-ID", "The id of the last event that the client has."),
    header("X-Resumption-Token", "A plain seq's signature: `seq=…&sig=…`; alone it is a cursor."),
    header(
        "X-Resume-Mode",
        "`from-start` plays it all again, whatever the id says.",
        {"type": "string", "enum": ["after-last-id", "from-start"]},
    ),
    header(
        "X-Resumption-Checksum",
        "What the client has: `0-31:0a1b2c3d,…`, CRC-32s over the joined data (native).",
    ),
    header("X-Resume-Nack", "What it lacks: `5-7,12` (native). It is sent again before the rest."),
]
_LINK: Schema = {"type": "string", "pattern": "^/v1/generations/"}
_COMPONENTS: dict[str, Schema] = {
    "OpenAiError": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": _TEXT,
                    "type": {"enum": ["invalid_request_error", "server_error"]},
                    "param": {"type": "null"},
                    "code": {"enum": sorted(ERRORS)},
                },
            },
            "first_available_seq": {"type": "integer"},
        },
    },
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message", "code"],
                "properties": {"type": _TEXT, "message": _TEXT, "code": {"enum": sorted(ERRORS)}},
            },
        },
    },
    "ProviderError": {
        "type": "object",
        "description": "The provider's own error body, as it came.",
        "required": ["error"],
    },
    "Begun": {
        "type": "object",
        "required": ["generation_id", "events_url", "result_url", "cancel_url", "ticket", "expires_in_s"],
        "properties": {
            "ticket": _TEXT,
            "expires_in_s": {"type": "number"},
            "generation_id": {"type": "string", "format": "uuid"},
            "events_url": _LINK,
            "result_url": _LINK,
            "cancel_url": _LINK,
        },
    },
    "Running": {
        "type": "object",
        "required": ["generation_id", "state"],
        "properties": {"generation_id": _TEXT, "state": {"enum": ["running", "cancelling"]}},
    },
    "Ended": {
        "type": "object",
        "required": ["generation_id", "state", "terminal"],
        "properties": {
            "generation_id": _TEXT,
            "state": {"const": "finalized"},
            "terminal": {"type": "object", "required": ["kind", "seq"]},
        },
    },
    "Answer": _OBJECT | {"description": "The dialect's own body of an answer that is not streamed."},
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "ticket": {"type": "apiKey", "in": "query", "name": "ticket"},
}


def install(app: FastAPI) -> None:
    """Let the application hand this out; made once, at the first call for it."""

    def made() -> Schema:
        if app.openapi_schema is None:
            app.openapi_schema = _made(app)
        return app.openapi_schema

    app.openapi = made  # type: ignore[method-assign]  # the framework's documented way


def _made(app: FastAPI) -> Schema:
    """The framework's schema without the answer that it documents of itself: its 422 is none of ours."""
    schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for operations in schema["paths"].values():
        for operation in operations.values():
            if operation["responses"].get("422", {}).get("description") != _MEANINGS[422]:
                operation["responses"].pop("422", None)
    schema["components"] = {"schemas": _COMPONENTS, "securitySchemes": _SCHEMES}
    return schema
