"""What can come out of a generation: finish reasons, error codes, and what each means to a client.

One table for the edge (status, ``x-should-retry``), the pipeline and the documentation. Before: ``records``. After:
``lifecycle``.
"""

from typing import NamedTuple

FINISH_REASONS = frozenset(
    {"stop", "length", "tool_call", "content_filter", "cancelled", "timeout", "error", "other", "unknown"}
)

PROVIDER_WORDS = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_call",
    "tool_use": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
}


def finish_reason_of(word: str | None) -> str:
    """Our word for a provider's: ``unknown`` where there is none, ``other`` for one without mapping."""
    if not word or word == "null":
        return "unknown"
    return PROVIDER_WORDS.get(word.lower(), "other")


class ErrorCode(NamedTuple):
    """One row of the table. ``status`` is the HTTP status while the response head has not gone out."""

    status: int
    retryable: bool
    finish_reason: str
    meaning: str


ERRORS: dict[str, ErrorCode] = {
    "incomplete_upstream": ErrorCode(
        502, False, "error", "The stream ended without a terminal of its protocol."
    ),
    "upstream_protocol": ErrorCode(502, False, "error", "What the provider sent is not its dialect."),
    "upstream_frame_too_large": ErrorCode(502, False, "error", "One frame of the provider is above the cap."),
    "upstream_error": ErrorCode(502, False, "error", "The provider reported a failure."),
    "overloaded": ErrorCode(503, True, "error", "The provider is overloaded."),
    "rate_limited": ErrorCode(429, True, "error", "The provider limits the rate."),
    "queue_timeout": ErrorCode(504, False, "timeout", "The provider sent no response head in time."),
    "ttft_timeout": ErrorCode(504, False, "timeout", "The provider sent no first content in time."),
    "stall_timeout": ErrorCode(504, False, "timeout", "The provider fell silent after content."),
    "decode_timeout": ErrorCode(504, False, "timeout", "Decoding took longer than allowed."),
    "tool_timeout": ErrorCode(504, False, "timeout", "The tool did not report in time."),
    "postprocess_timeout": ErrorCode(504, False, "timeout", "The final check took longer than allowed."),
    "timeout": ErrorCode(504, False, "timeout", "The whole request took longer than allowed."),
    "upstream_timeout": ErrorCode(504, False, "timeout", "The provider itself gave up in time."),
    "kv_oom": ErrorCode(503, False, "error", "The model server ran out of key-value cache."),
    "cancelled": ErrorCode(409, False, "cancelled", "Ended on request."),
    "superseded": ErrorCode(409, False, "error", "Ended in favour of a named successor."),
    "log_unavailable": ErrorCode(503, True, "error", "The log takes no records at the moment."),
    "edge_lost": ErrorCode(500, False, "error", "The edge died before the end."),
    "cursor_invalid": ErrorCode(401, False, "error", "The cursor is forged, expired or cannot be parsed."),
    "cursor_ahead": ErrorCode(409, False, "error", "The events after this cursor do not exist yet."),
    "resume_expired": ErrorCode(
        410, False, "error", "The events after this cursor are held nowhere any more."
    ),
    "erased": ErrorCode(410, False, "error", "Forgotten on request."),
    "not_found": ErrorCode(404, False, "error", "There is no such generation."),
    "unauthorized": ErrorCode(401, False, "error", "No valid API key."),
    "forbidden": ErrorCode(403, False, "error", "This key may not do this."),
    "idempotency_conflict": ErrorCode(422, False, "error", "The same idempotency key with another body."),
    "quota_exceeded": ErrorCode(429, False, "error", "The budget is spent."),
    "too_many_requests": ErrorCode(
        429, True, "error", "A limit of streams, resumes, rate or queue is reached."
    ),
    "bad_request": ErrorCode(400, False, "error", "The request cannot be served as it is."),
}


def of_status(status: int) -> str:
    """The error code for a provider's answer with an error status."""
    if status == 429:  # noqa: PLR2004 - HTTP's own numbers
        return "rate_limited"
    if status in (503, 529):
        return "overloaded"
    if status in (408, 504):
        return "upstream_timeout"
    if 400 <= status < 500:  # noqa: PLR2004
        return "bad_request"
    return "upstream_error"
