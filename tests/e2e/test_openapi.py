"""What ``/openapi.json`` says is so: schemathesis makes calls out of it, good ones and bad, at an edge in memory.

The calls are the same in every run, and few: this holds the document and the routes together, it is no fuzzer.
"""

import asyncio
import threading

import pytest
import requests
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, openapi
from schemathesis.specs.openapi import checks

import edge.registry
from tests.support.dialects import HEADERS, QUICK, world

OPERATIONS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/models"),
    ("GET", "/v1/responses/{response_id}"),
    ("POST", "/v1/responses/{response_id}/cancel"),
    ("GET", "/v1/generations"),
    ("GET", "/v1/generations/{generation_id}/events"),
    ("GET", "/v1/generations/{generation_id}"),
    ("GET", "/v1/generations/{generation_id}/result"),
    ("POST", "/v1/generations/{generation_id}/cancel"),
    ("POST", "/v1/cancel/{generation_id}"),
    ("POST", "/v1/generations/{generation_id}/tickets"),
    ("POST", "/v1/generations/{generation_id}/ack"),
    ("POST", "/v1/generations/{generation_id}/tools/{tool_call_id}"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
]
OPEN = {"/healthz", "/readyz", "/metrics"}
CALLS = [path for method, path in OPERATIONS if method == "POST" and "{" not in path]
BARE = {"/v1/models", *OPEN}
GOOD, BAD = 8, 7
"""Examples of an operation: calls that fit the document, and calls that do not."""
ALIAS_WAIT_S = 0.01
WITHIN_S = 20


class Running:
    """An edge in a thread of its own, its document, and the ids of an answer that it gave."""

    def __init__(self, url):
        self.url = url
        self.http = requests.Session()
        self.schema = openapi.from_dict(self.get("/openapi.json").json())
        asked = {"model": "m", "input": "go", "simulate": QUICK | {"tokens": 3}}
        answer = self.http.post(f"{url}/v1/responses", json=asked, headers=HEADERS, timeout=WITHIN_S)
        self.known = {
            "response_id": answer.json()["id"],
            "generation_id": answer.headers["x-generation-id"],
            "tool_call_id": "call_of-none",  # its answer called no tool
        }

    def get(self, path, **named):
        """GET a path, without a key where none is named."""
        return self.http.get(self.url + path, timeout=WITHIN_S, **named)


@pytest.fixture(scope="module")
def running():
    ready, leave = threading.Event(), {}

    async def serve():
        stop = asyncio.Event()
        async with world() as two:
            leave.update(loop=asyncio.get_running_loop(), stop=stop, url=two.urls[0])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(edge.registry, "ALIAS_WAIT_S", ALIAS_WAIT_S)
        thread.start()
        try:
            assert ready.wait(WITHIN_S)
            at = Running(leave["url"])
            yield at
            at.http.close()
        finally:
            leave["loop"].call_soon_threadsafe(leave["stop"].set)
            thread.join(WITHIN_S)


def bounded(count):
    """The same few examples in every run, without a time limit on one and without a database."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def answered(running, case, *, known):
    """Make a call of an example, and hold its answer to the document."""
    if known:
        case.path_parameters = {name: running.known[name] for name in case.path_parameters}
    if isinstance(case.body, dict) and case.path in CALLS:
        case.body = {**case.body, "simulate": QUICK | {"tokens": 2}}
    answer = case.call(base_url=running.url, session=running.http, headers=HEADERS, timeout=WITHIN_S)
    case.validate_response(
        answer,
        checks=[
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_schema_conformance,
            checks.response_headers_conformance,
        ],
        headers=HEADERS,
    )
    named = {int(status) for status in case.operation.definition.raw["responses"] if status.isdigit()}
    assert answer.status_code in named, answer.text
    late = answer.status_code == requests.codes.gateway_timeout and "X-Deadline-Ms" in case.headers
    assert answer.status_code < requests.codes.server_error or late, answer.text
    return answer


def test_every_route_is_documented(running):
    """The document has every operation that is tried here, each with its statuses, and what it needs for a key."""
    paths = running.schema.raw_schema["paths"]
    found = {(method.upper(), path): said for path, item in paths.items() for method, said in item.items()}
    assert sorted(found) == sorted(OPERATIONS)
    for (_, path), said in found.items():
        assert ("security" in said) == ("401" in said["responses"]) == (path not in OPEN)
        assert ("422" in said["responses"]) == (path in CALLS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_calls_that_fit_the_document(running, method, path):
    """A call that the document allows is answered as it says; one of a dialect is taken."""

    @bounded(GOOD)
    @given(case=running.schema[path][method].as_strategy(), known=st.booleans())
    def tried(case, known):
        if path in CALLS:
            assume(type(case.body.get("n")) is not float)  # 1.0 is an integer to JSON Schema, and none to us
        answer = answered(running, case, known=known)
        if path in CALLS:
            known_key = {422} if "Idempotency-Key" in case.headers else set()
            assert answer.status_code in {200, 202, 504} | known_key, answer.text

    tried()


@pytest.mark.parametrize(("method", "path"), [op for op in OPERATIONS if op[1] not in BARE])
def test_calls_that_do_not_fit(running, method, path):
    """A call that the document does not allow is answered as it says too: refused, or read as if the field were not there."""
    bad = running.schema[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @bounded(BAD)
    @given(case=bad, known=st.booleans())
    def tried(case, known):
        answered(running, case, known=known)

    tried()


@pytest.mark.parametrize(("method", "path"), [op for op in OPERATIONS if op[1] not in OPEN])
def test_calls_without_a_key(running, method, path):
    """What says that it needs a key refuses a call without one, in its dialect's shape, and takes either way of giving it."""
    at = running.url + path.format(**running.known)
    refused = running.http.request(method, at, json={}, timeout=WITHIN_S)
    assert refused.status_code == requests.codes.unauthorized
    assert refused.json()["error"]["code"] == "unauthorized"
    key = HEADERS["authorization"].removeprefix("Bearer ")
    taken = running.http.request(method, at, json={}, headers={"x-api-key": key}, timeout=WITHIN_S)
    assert taken.status_code != requests.codes.unauthorized


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/messages/count", 404, "not_found"),
        ("DELETE", "/v1/chat/completions", 405, "bad_request"),
        ("GET", "/v1/messages", 405, "bad_request"),
    ],
)
def test_what_is_not_served(running, method, path, status, code):
    """A path or method that is not served is refused in the shape of its dialect, with the methods that are."""
    answer = running.http.request(method, running.url + path, headers=HEADERS, timeout=WITHIN_S)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert (answer.json().get("type") == "error") == path.startswith("/v1/messages")
    assert ("allow" in answer.headers) == (status == requests.codes.method_not_allowed)
