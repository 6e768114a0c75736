"""How a failure looks in each dialect: bodies that the SDKs read, and frames that our readers understand."""

import orjson
import pytest

from schemas.failures import DIALECTS, error_body, error_frame


def test_openai_body():
    """An OpenAI SDK finds message, type and our code where it looks for them."""
    assert error_body("openai.chat", "not_found", "gone") == {
        "error": {"message": "gone", "type": "invalid_request_error", "param": None, "code": "not_found"}
    }
    assert error_body("openai.chat", "overloaded", "full")["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("unauthorized", None, "authentication_error"),
        ("not_found", None, "not_found_error"),
        ("rate_limited", None, "rate_limit_error"),
        ("overloaded", None, "overloaded_error"),
        ("incomplete_upstream", None, "api_error"),
        ("bad_request", 413, "request_too_large"),
    ],
)
def test_anthropic_body(code, status, kind):
    """An Anthropic SDK finds its own error type for the status that is answered."""
    body = error_body("anthropic.messages", code, "x", status)
    assert (body["type"], body["error"]["type"], body["error"]["code"]) == ("error", kind, code)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_frame(dialect):
    """Every dialect's error event is one line of JSON which names the code and the message, whatever it holds."""
    _, data = error_frame(dialect, "edge_lost", 'a "b"\n\r\u2028c', 9)
    assert not set("\n\r") & set(data)
    value = orjson.loads(data)
    body = value if dialect == "openai.responses" else value["error"]
    assert (body["code"], body["message"]) == ("edge_lost", 'a "b"\n\r\u2028c')


@pytest.mark.parametrize(
    ("dialect", "name"),
    [("openai.chat", None), ("openai.responses", "error"), ("anthropic.messages", "error")],
)
def test_event_name(dialect, name):
    """Chat Completions names no events; the other two name this one."""
    assert error_frame(dialect, "edge_lost", "x", 9)[0] == name


def test_responses_number_is_our_seq():
    """The Responses dialect's sequence_number is our seq."""
    assert orjson.loads(error_frame("openai.responses", "edge_lost", "x", 9)[1])["sequence_number"] == 9
