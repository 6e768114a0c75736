"""How a failure looks in each dialect: the body of an error answer, and the error event of a stream.

Also needed outside the edge: the orphan finder writes the error event of a generation whose edge died. Pure. Before:
``outcomes``. After: ``lifecycle``.
"""

from typing import Any

import orjson

from schemas.outcomes import ERRORS

DIALECTS = ("openai.chat", "openai.responses", "anthropic.messages")

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_body(dialect: str, code: str, message: str, status: int | None = None) -> dict[str, Any]:
    """The dialect's own error object, with our code in it."""
    status = status or ERRORS[code].status
    if dialect == "anthropic.messages":
        kind = _ANTHROPIC_TYPES.get(status) or _ANTHROPIC_TYPES.get(ERRORS[code].status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message, "code": code}}
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"  # noqa: PLR2004 - HTTP's own numbers
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error_frame(
    dialect: str,
    code: str,
    message: str,
    seq: int,
    successor: str | None = None,
    status: int | None = None,
) -> tuple[str | None, str]:
    """The event name and data of the dialect's error event, as it stands on the log and on the wire.

    ``successor``: the generation that goes on in its place stands beside the code. ``status``: what the head would have
    said, where it is not the code's own.
    """
    more = {} if successor is None else {"successor": successor}
    if dialect == "openai.responses":
        data: dict[str, Any] = {
            "type": "error",
            "code": code,
            "message": message,
            "param": None,
            "sequence_number": seq,
            **more,
        }
        return "error", orjson.dumps(data).decode()
    name = "error" if dialect == "anthropic.messages" else None
    body = error_body(dialect, code, message, status)
    body["error"] |= more
    return name, orjson.dumps(body).decode()
