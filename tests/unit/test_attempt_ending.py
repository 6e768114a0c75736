"""What a failure looks like before anything was streamed."""

import json

import pytest

from edge.dialects.provider_errors import ERROR_RAW_MAX
from edge.dialects.spoken import dialect_of
from edge.driving.ending import Ending, head_of
from schemas.events import ProviderError
from schemas.outcomes import ERRORS

CHAT = dialect_of("openai.chat")
WHOLE = '{"error": {"message": "bad field", "x_own": 1}}'


def head(code, said=None):
    return head_of(CHAT, Ending(code=code, message="what happened", provider_error=said, retry_after_ms=1500))


def test_a_proper_end_has_a_stream():
    """Without a failure the head is that of a stream."""
    assert head_of(CHAT, Ending.proper(CHAT)).ok


def test_the_providers_own_error_goes_on_as_it_came():
    """Status and body of a provider's error, unknown fields included."""
    found = head("bad_request", ProviderError(status=422, raw=WHOLE))
    assert (found.status, found.body.decode(), found.code) == (422, WHOLE, "bad_request")
    assert found.retry_after_ms == 1500


@pytest.mark.parametrize(
    "raw", ["<html>", "", "{}", "[]", WHOLE[:-1], ('{"error": {"message": "' + "x" * 99_999)[:ERROR_RAW_MAX]]
)
def test_what_is_no_error_body_is_replaced(raw):
    """HTML, an empty object, or a body that is not whole: the client gets the dialect's own shape instead."""
    found = head("overloaded", ProviderError(status=529, raw=raw))
    assert found.status == 529
    assert json.loads(found.body)["error"] == {
        "message": "what happened", "type": "server_error", "param": None, "code": "overloaded",
    }  # fmt: skip


@pytest.mark.parametrize("said", [None, ProviderError(raw=WHOLE)])
def test_without_an_error_status_the_code_has_one(said):
    """A failure that came with success, or from us, has the status of its code."""
    found = head("upstream_protocol", said)
    assert found.status == ERRORS["upstream_protocol"].status == 502
    assert json.loads(found.body)["error"]["code"] == "upstream_protocol"


@pytest.mark.parametrize("status", [101, 204, 302, 399, 600, 999])
def test_a_status_that_is_no_failure_of_http_is_not_handed_on(status):
    """A redirect, or a number that no server can write: the client gets the status of the code."""
    found = head("upstream_error", ProviderError(status=status, raw=WHOLE))
    assert found.status == ERRORS["upstream_error"].status
    assert json.loads(found.body)["error"]["code"] == "upstream_error"
