"""Finish reasons and error codes: one table, as the specification lists it."""

import pytest

from schemas.outcomes import ERRORS, FINISH_REASONS, finish_reason_of, of_status

TABLE = {  # code: (status while the head has not gone out, retryable)
    "incomplete_upstream": (502, False),
    "upstream_protocol": (502, False),
    "upstream_frame_too_large": (502, False),
    "upstream_error": (502, False),
    "overloaded": (503, True),
    "rate_limited": (429, True),
    "queue_timeout": (504, False),
    "ttft_timeout": (504, False),
    "stall_timeout": (504, False),
    "decode_timeout": (504, False),
    "tool_timeout": (504, False),
    "postprocess_timeout": (504, False),
    "timeout": (504, False),
    "upstream_timeout": (504, False),
    "kv_oom": (503, False),
    "cancelled": (409, False),
    "superseded": (409, False),
    "log_unavailable": (503, True),
    "cursor_invalid": (401, False),
    "cursor_ahead": (409, False),
    "resume_expired": (410, False),
    "erased": (410, False),
    "not_found": (404, False),
    "unauthorized": (401, False),
    "forbidden": (403, False),
    "idempotency_conflict": (422, False),
    "too_many_requests": (429, True),
    "bad_request": (400, False),
}


@pytest.mark.parametrize(("code", "row"), TABLE.items(), ids=TABLE)
def test_table(code, row):
    """Every code answers with its status, and says whether a client may try again."""
    assert (ERRORS[code].status, ERRORS[code].retryable) == row


def test_rows_are_well_formed():
    """Every row has one of our finish reasons, an HTTP error status, and a sentence for people."""
    for code, row in ERRORS.items():
        assert row.finish_reason in FINISH_REASONS, code
        assert 400 <= row.status <= 599, code
        assert row.meaning.endswith("."), code


def test_timeouts_end_as_timeout():
    """Every code of a time-out, and no other, has the finish reason timeout."""
    named = {code for code in ERRORS if code.endswith("timeout")}
    assert {code for code, row in ERRORS.items() if row.finish_reason == "timeout"} == named


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("tool_calls", "tool_call"),
        ("tool_use", "tool_call"),
        ("content_filter", "content_filter"),
        ("CONTENT_FILTER", "content_filter"),
        ("something_new", "other"),
        (None, "unknown"),
        ("", "unknown"),
        ("null", "unknown"),
    ],
)
def test_providers_words(word, ours):
    """A provider's word has ours; a new one is other, none is unknown: never a guessed stop."""
    assert finish_reason_of(word) == ours
    assert ours in FINISH_REASONS


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (429, "rate_limited"),
        (503, "overloaded"),
        (529, "overloaded"),
        (408, "upstream_timeout"),
        (504, "upstream_timeout"),
        (400, "bad_request"),
        (404, "bad_request"),
        (422, "bad_request"),
        (499, "bad_request"),
        (500, "upstream_error"),
        (502, "upstream_error"),
        (301, "upstream_error"),
    ],
)
def test_statuses(status, code):
    """A provider's error status has the code that decides about another attempt."""
    assert of_status(status) == code
