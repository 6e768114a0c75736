"""What a client is told about trying again: for refusals before anything began, and for chains that are spent.

An unmodified SDK tries again on its own unless ``x-should-retry`` says no; where our own tries are spent, its would
multiply them.
"""

import hashlib

import pytest

from edge.app import build_app
from schemas.outcomes import ERRORS
from schemas.settings import ApiKey
from tests.support.asgi import get, post
from tests.support.running import BODY, ONE_ROUTE, edge_with
from tests.support.upstream import CUT, HANG, OK, Script

KEY = "a client's key"
AUTH = {"authorization": f"Bearer {KEY}"}
KEYS = (ApiKey(id="key-1", tenant="acme", sha256=hashlib.sha256(KEY.encode()).hexdigest()),)
CHAT = "/v1/chat/completions"
UNKNOWN = "/v1/generations/0199c0de-0000-7000-8000-000000000000"
IN_BAND = b'data: {"error":{"message":"full","type":"overloaded_error"}}\n\n'


def status_of(status, **headers):
    """Give an answer that is no stream."""
    return Script(
        b'{"error":{"message":"no"}}', status=status, content_type="application/json", headers=headers
    )


SPENT = {  # a provider's answer, every time: (status, x-should-retry, how often it was asked)
    "400": (status_of(400), 400, "false", 1),
    "401": (status_of(401), 401, "false", 1),
    "404": (status_of(404), 404, "false", 1),
    "408": (status_of(408), 408, "false", 2),
    "429": (status_of(429), 429, "true", 2),
    "500": (status_of(500), 500, "false", 2),
    "502": (status_of(502), 502, "false", 2),
    "503": (status_of(503), 503, "true", 2),
    "504": (status_of(504), 504, "false", 2),
    "529": (status_of(529), 529, "true", 2),
    "a page": (Script(b"<html>", content_type="text/html"), 502, "false", 2),
    "a cut": (Script(CUT), 502, "false", 2),
    "an empty stream": (Script(), 502, "false", 2),
    "another dialect": (Script(b"data: nonsense\n\n"), 502, "false", 2),
    "silence": (Script(b": waiting\n\n", HANG), 504, "false", 2),
    "an error in band": (Script(IN_BAND), 503, "true", 2),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", SPENT)
async def test_a_spent_chain(name, stream):
    """A chain without another try left answers the last failure's status, and try again only where its code says so."""
    script, status, retry, calls = SPENT[name]
    times = {"ttft_timeout_s": 0.1, "stall_timeout_s": 5}
    async with edge_with(script, keys=KEYS, retry={"max_attempts": 2}, stream=times) as edge:
        answer = await post(build_app(edge.service), CHAT, BODY | {"stream": stream}, AUTH).done()
        assert (answer.status, answer.headers["x-should-retry"]) == (status, retry)
        assert len(edge.upstream.calls) == calls
    assert answer.headers["content-type"] == "application/json"
    assert b'"error"' in answer.body


@pytest.mark.parametrize("stream", [True, False])
async def test_a_wait_that_is_asked_for_goes_on(stream):
    """A provider's Retry-After reaches the client of a spent chain, whole seconds rounded up."""
    script = status_of(429, **{"retry-after": "6.2"})
    async with edge_with(script, keys=KEYS, retry={"max_attempts": 1}) as edge:
        answer = await post(build_app(edge.service), CHAT, BODY | {"stream": stream}, AUTH).done()
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")


@pytest.mark.parametrize(("said", "calls"), [("false", 1), ("true", 3)])
async def test_what_a_provider_says_of_itself_is_obeyed(said, calls):
    """Its x-should-retry: false is the end where there is no other route; our own answer goes by its code all the same."""
    script = status_of(503, **{"x-should-retry": said})
    async with edge_with(script, keys=KEYS, default_route=ONE_ROUTE) as edge:
        answer = await post(build_app(edge.service), CHAT, BODY, AUTH).done()
    assert (answer.status, answer.headers["x-should-retry"]) == (503, "true")
    assert len(edge.upstream.calls) == calls


@pytest.mark.parametrize(("status", "retry"), [(429, "true"), (500, "false")])
async def test_a_background_call(status, retry):
    """A call that goes on in the background is told the same, where it failed before it had a name."""
    script, asked = (
        status_of(status, **{"retry-after": "0"}),
        {"model": "m", "input": "x", "background": True},
    )
    target = {"dialect": "openai.responses", "base_url": "http://127.0.0.1:1/v1"}
    providers = {"one": target, "two": target}
    async with edge_with(script, keys=KEYS, providers=providers, retry={"max_attempts": 1}) as edge:
        answer = await post(build_app(edge.service), "/v1/responses", asked, AUTH).done()
    assert (answer.status, answer.headers["x-should-retry"]) == (status, retry)
    assert answer.headers["retry-after"] == "0"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_try_that_helped(stream):
    """A chain that ends well says nothing about trying again."""
    async with edge_with(status_of(503), OK, keys=KEYS) as edge:
        answer = await post(build_app(edge.service), CHAT, BODY | {"stream": stream}, AUTH).done()
    assert answer.status == 200
    assert "x-should-retry" not in answer.headers


REFUSED = {  # (method, path, body, headers): the code
    "no key": (post, (CHAT, BODY, {}), "unauthorized"),
    "a wrong key": (post, (CHAT, BODY, {"x-api-key": "?"}), "unauthorized"),
    "no object": (post, (CHAT, [1], AUTH), "bad_request"),
    "no model": (post, (CHAT, {"messages": []}, AUTH), "bad_request"),
    "another dialect": (post, ("/v1/messages", BODY | {"max_tokens": 1}, AUTH), "bad_request"),
    "no such generation": (get, (UNKNOWN, AUTH), "not_found"),
    "no cursor": (
        get,
        (UNKNOWN + "/events?dialect=openai.chat", AUTH | {"last-event-id": "1-0.0-s"}),
        "cursor_invalid",
    ),
}
NO_CURSOR = 400
"""A text that is no cursor is refused as such, not as a forged one."""


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_before_anything_began(name):
    """A refusal says by its code whether to try again, calls no provider and writes nothing."""
    method, asked, code = REFUSED[name]
    async with edge_with(OK, keys=KEYS) as edge:
        answer = await method(build_app(edge.service), *asked).done()
        row = ERRORS[code]
        assert answer.status == (NO_CURSOR if name == "no cursor" else row.status)
        assert answer.headers["x-should-retry"] == ("true" if row.retryable else "false")
        assert ("retry-after" in answer.headers) is row.retryable
        assert edge.upstream.calls == []
        assert list(edge.log.all_records()) == []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_log_that_does_not_take_the_start(stream):
    """Nothing was called, so the same request may be sent again."""
    async with edge_with(OK, keys=KEYS, log={"start_ack_s": 0.2}) as edge:
        edge.log.fail_next()
        answer = await post(build_app(edge.service), CHAT, BODY | {"stream": stream}, AUTH).done()
        assert (answer.status, answer.headers["x-should-retry"]) == (503, "true")
        assert int(answer.headers["retry-after"]) > 0
        assert edge.upstream.calls == []
