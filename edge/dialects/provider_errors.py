"""What is kept of a provider's error, in a stream or as an answer, and which of our codes it is.

The dialects' error objects differ in what stands around them, not in their words: ``error`` with type, code and message,
or these fields themselves. Pure. Before: ``reading``. After: each dialect's own files.
"""

from typing import Any

from edge.dialects.reading import FACT_CHARS_MAX, NotJson, fact, fields, load
from schemas.events import ProviderError
from schemas.outcomes import of_status

ERROR_RAW_MAX = 16_384
"""What is kept of a provider's error payload: enough for any message, small enough for a terminal record."""


def said_in(data: str) -> dict[str, Any]:
    """The object of an error event; empty where its data is none."""
    try:
        return fields(load(data))
    except NotJson:
        return {}


def provider_error(payload: dict[str, Any], raw: str, status: int | None) -> ProviderError:
    """What is kept of an error object, from a payload that has one (or is one)."""
    said = payload.get("error")
    detail = payload if said is None and payload.get("type") == "error" else fields(said)
    code, message = detail.get("code"), detail.get("message")
    if isinstance(said, str):
        message = said
    return ProviderError(
        status=status,
        code=None if code is None else str(code)[:FACT_CHARS_MAX],
        type=fact(detail.get("type")),
        message=None if message is None else str(message)[:ERROR_RAW_MAX],
        raw=raw[:ERROR_RAW_MAX],
    )


def not_the_dialect(raw: str, what: str) -> tuple[str, ProviderError]:
    """The failure of a payload that no reading makes sense of."""
    return "upstream_protocol", ProviderError(raw=raw[:ERROR_RAW_MAX], message=what)


def code_of(error: ProviderError) -> str:
    """Our code for an error that came with a success status."""
    words = f"{error.code or ''} {error.type or ''}".lower()
    if "rate_limit" in words or error.code == "429":
        return "rate_limited"
    if "overloaded" in words or error.code in ("503", "529"):
        return "overloaded"
    if "kv_oom" in words or "kv cache" in (error.message or "").lower():
        return "kv_oom"
    return "upstream_error"


def failure_of_body(status: int, body: bytes) -> tuple[str, ProviderError]:
    """What an answer that is no stream says: our code, and the provider's own words."""
    text = body.decode(errors="replace")
    try:
        value = load(text)
    except NotJson:
        value = None
    success = 200 <= status < 300  # noqa: PLR2004 - HTTP's own numbers
    if isinstance(value, dict) and value.get("error"):
        error = provider_error(value, text, None if success else status)
        return (code_of(error) if success else of_status(status)), error
    error = ProviderError(status=None if success else status, raw=text[:ERROR_RAW_MAX])
    return ("upstream_protocol" if success else of_status(status)), error
