"""Idempotency-Key in every dialect as a client meets it: two edges in memory, in front of the simulator."""

import asyncio
import itertools

import httpx
import pytest
import pytest_asyncio

from schemas.records import ConfigKind, ConfigRecord, ForgottenEntry
from tests.casebook.edges import codec
from tests.support.dialects import HEADERS, OTHER, QUICK, world
from tests.support.waiting import until

ASKED = [{"role": "user", "content": "go"}]
CALLS = {
    "/v1/chat/completions": {"model": "sim-fast", "messages": ASKED},
    "/v1/messages": {"model": "sim-fast", "max_tokens": 100, "messages": ASKED},
    "/v1/responses": {"model": "sim-fast", "input": "go"},
}
SLOW = {"ttft_ms": 0, "interval_ms": 15, "tokens": 15}
every_dialect = pytest.mark.parametrize("path", CALLS)
numbers = itertools.count()

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two():
    async with world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http():
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
        yield client


@pytest.fixture
def post(two, http):
    """Give what posts to an edge with the test's own key; later fields replace the body's."""
    key = f"key-{next(numbers)}"

    async def posted(edge, path, script, headers=None, **body):
        asked = CALLS[path] | {"simulate": script} | body
        named = {"idempotency-key": key} | (headers or {})
        return await http.post(two.urls[edge] + path, json=asked, headers=named)

    return posted


def plain(text):
    """A stream without its comments, heartbeats and the reconnect time, which are of a connection."""
    lines = [line for line in text.splitlines() if not line.startswith((":", "retry:"))]
    return "\n".join(lines).replace('event: ping\ndata: {"type": "ping"}\n\n', "").strip()


@every_dialect
@pytest.mark.parametrize("other", [0, 1])
async def test_a_retry_while_the_first_streams(two, post, path, other):
    """Both clients are given the same events under the same ids, and the provider was asked once."""
    asked = len(two.simulator.requests)
    first = asyncio.ensure_future(post(0, path, SLOW, stream=True))
    await until(lambda: len(two.simulator.requests) > asked)
    again = await post(other, path, SLOW, stream=True)
    first = await first
    assert first.status_code == again.status_code == httpx.codes.OK
    assert plain(first.text) == plain(again.text)
    assert "id: " in again.text
    assert first.headers["x-generation-id"] == again.headers["x-generation-id"]
    assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
    assert len(two.simulator.requests) == asked + 1


@every_dialect
@pytest.mark.parametrize("other", [0, 1])
async def test_a_retry_of_a_whole_answer(two, post, path, other):
    """At the same time and afterwards, the very same body."""
    asked = len(two.simulator.requests)
    both = await asyncio.gather(
        *(post(edge, path, QUICK | {"ttft_ms": 50, "tokens": 5}) for edge in (0, other))
    )
    answers = [*both, await post(other, path, QUICK | {"ttft_ms": 50, "tokens": 5})]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len({answer.headers["x-generation-id"] for answer in answers}) == 1
    assert [answer.headers.get("idempotent-replayed") for answer in answers].count("true") == 2
    assert len(two.simulator.requests) == asked + 1


@every_dialect
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_the_same_to_both_and_frees_the_key(two, post, path, stream):
    """Who waited with the first gets its status and body; who comes later is asked for anew."""
    script = {"status": 429, "ttft_ms": 150}
    asked = len(two.simulator.requests)
    first, again = await asyncio.gather(*(post(edge, path, script, stream=stream) for edge in (0, 1)))
    assert first.status_code == again.status_code == httpx.codes.TOO_MANY_REQUESTS
    assert first.content == again.content
    assert first.headers["x-should-retry"] == again.headers["x-should-retry"] == "true"
    assert len(two.simulator.requests) == asked + 1
    later = await post(1, path, script, stream=stream)
    assert later.headers["x-generation-id"] != first.headers["x-generation-id"]
    assert len(two.simulator.requests) == asked + 2


@every_dialect
async def test_another_body_is_unprocessable(post, path):
    """The same key with another body is 422 in the dialect's own shape, and not worth a retry; so is another dialect."""
    await post(0, path, QUICK)
    answer = await post(1, path, QUICK, temperature=0.5)
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert answer.json()["error"]["code"] == "idempotency_conflict"
    assert (answer.json().get("type") == "error") == (path == "/v1/messages")
    assert answer.headers["x-should-retry"] == "false"
    elsewhere = next(other for other in CALLS if other != path)
    assert (await post(0, elsewhere, QUICK)).status_code == httpx.codes.UNPROCESSABLE_ENTITY


@every_dialect
async def test_another_tenants_key_is_another(post, path):
    """The same text from another tenant begins anew."""
    mine = await post(0, path, QUICK)
    theirs = await post(0, path, QUICK, {"authorization": f"Bearer {OTHER}"})
    assert theirs.status_code == httpx.codes.OK
    assert mine.headers["x-generation-id"] != theirs.headers["x-generation-id"]


@every_dialect
async def test_a_background_call_twice(post, path):
    """202 twice, with the same links; a plain call with the key is given the answer."""
    prefer = {"prefer": "respond-async"}
    first, again = [await post(edge, path, QUICK | {"tokens": 3}, prefer) for edge in (0, 1)]
    assert first.status_code == again.status_code == httpx.codes.ACCEPTED
    assert first.json()["generation_id"] == again.json()["generation_id"]
    assert again.headers["idempotent-replayed"] == "true"
    whole = await post(1, path, QUICK | {"tokens": 3})
    assert whole.status_code == httpx.codes.OK
    assert whole.headers["x-generation-id"] == first.json()["generation_id"]


@every_dialect
async def test_a_key_whose_answer_was_forgotten(two, post, path):
    """Said so, on every edge and in every form of the call, not worth a retry, and the provider is not asked again."""
    first = await post(0, path, QUICK)
    generation_id, asked = first.headers["x-generation-id"], len(two.simulator.requests)
    entry = ForgottenEntry(tenant="acme", key_id="key-1")
    said = ConfigRecord(kind=ConfigKind.FORGOTTEN, name=generation_id, wall_us=1, forgotten=entry)
    two.services[0].log.put_config(codec().encode(said))
    await until(lambda: all(service.configured.forgotten(generation_id) for service in two.services))
    for edge, headers in itertools.product((0, 1), ({}, {"prefer": "respond-async"})):
        again = await post(edge, path, QUICK, headers)
        assert (again.status_code, again.json()["error"]["code"]) == (httpx.codes.GONE, "erased")
        assert again.headers["x-should-retry"] == "false"
    whole = await post(1, path, QUICK, stream=True)
    assert whole.status_code == httpx.codes.UNPROCESSABLE_ENTITY  # another body is another body still
    assert len(two.simulator.requests) == asked


async def test_a_responses_background_call_twice(two, post):
    """``background: true`` is answered at once with the response as it is; a retry on the other edge names the same."""
    first, again = [await post(edge, "/v1/responses", SLOW, background=True) for edge in (0, 1)]
    assert first.status_code == again.status_code == httpx.codes.OK
    assert first.json()["id"] == again.json()["id"]
    assert first.headers["x-generation-id"] == again.headers["x-generation-id"]


@every_dialect
async def test_a_key_that_is_none(post, path):
    """An empty key is a bad request in the dialect's shape."""
    answer = await post(0, path, QUICK, {"idempotency-key": ""})
    assert (answer.status_code, answer.json()["error"]["code"]) == (httpx.codes.BAD_REQUEST, "bad_request")
