"""``Prefer: respond-async`` in every dialect, and the result that is fetched afterwards: two edges in memory."""

import asyncio

import httpx
import pytest
import pytest_asyncio

from edge.routes.later import wants_later
from tests.support.dialects import HEADERS, OTHER, QUICK, world
from tests.support.waiting import WITHIN_S, until

ASKED = [{"role": "user", "content": "go"}]
CALLS = {
    "/v1/chat/completions": {"model": "sim-fast", "messages": ASKED},
    "/v1/messages": {"model": "sim-fast", "max_tokens": 100, "messages": ASKED},
    "/v1/responses": {"model": "sim-fast", "input": "go"},
}
DIALECTS = {
    "/v1/chat/completions": "openai.chat",
    "/v1/messages": "anthropic.messages",
    "/v1/responses": "openai.responses",
}
FRESH = {"id", "item_id", "created", "created_at", "x_sim"}
SLOW = {"ttft_ms": 0, "interval_ms": 20, "tokens": 1000}
every_dialect = pytest.mark.parametrize("path", CALLS)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two():
    async with world(disconnect={"grace_s": 0.2}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http():
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
        yield client


async def begin(http, url, path, script, **beside):
    """Begin a generation so; its 202."""
    headers = {"prefer": "respond-async", **beside.pop("headers", {})}
    answer = await http.post(url + path, json=CALLS[path] | beside | {"simulate": script}, headers=headers)
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    return answer


async def result_of(http, url, begun):
    """Ask an edge for the result until it is not 202 any more."""
    async with asyncio.timeout(WITHIN_S):
        while (answer := await http.get(url + begun["result_url"])).status_code == httpx.codes.ACCEPTED:
            continue
    return answer


def same(value):
    """An answer without what is new in each."""
    if isinstance(value, dict):
        return {key: same(item) for key, item in value.items() if key not in FRESH}
    return [same(item) for item in value] if isinstance(value, list) else value


@every_dialect
@pytest.mark.parametrize("stream", [True, False])
async def test_the_result_is_the_answer_of_a_plain_call(two, http, path, stream):
    """Begun so, streamed or not, its result on the other edge is what a plain call is answered."""
    script = QUICK | {"tokens": 6, "tool_call": {}}
    answer = await begin(http, two.urls[0], path, script, stream=stream)
    begun = answer.json()
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.headers["x-generation-id"] == begun["generation_id"]
    result = await result_of(http, two.urls[1], begun)
    plain = await http.post(two.urls[0] + path, json=CALLS[path] | {"simulate": script})
    assert result.status_code == plain.status_code == httpx.codes.OK
    assert same(result.json()) == same(plain.json())


@every_dialect
async def test_it_runs_without_a_reader_until_it_is_cancelled(two, http, path):
    """Nobody listens, the grace time passes, and it runs; its links show it, and end it, in the dialect's own shape."""
    begun = (await begin(http, two.urls[0], path, SLOW)).json()
    generation = two.services[0].registry.get(begun["generation_id"])
    await until(lambda: two.services[0].clock.now_us() - generation.accepted_us > 500_000)
    running = await http.get(two.urls[1] + begun["result_url"])
    assert (running.status_code, running.json()["state"]) == (httpx.codes.ACCEPTED, "running")
    ended = await http.post(two.urls[1] + begun["cancel_url"])
    assert ended.json()["terminal"]["finish_reason"] == "cancelled"
    events = await http.get(two.urls[1] + begun["events_url"], params={"dialect": DIALECTS[path]})
    assert events.headers["content-type"].startswith("text/event-stream")
    result = await http.get(two.urls[1] + begun["result_url"])
    assert (result.status_code, result.json()["error"]["code"]) == (httpx.codes.CONFLICT, "cancelled")
    assert (result.json().get("type") == "error") == (path == "/v1/messages")
    assert result.headers["x-should-retry"] == "false"


@every_dialect
async def test_a_failure_is_found_in_the_result(two, http, path):
    """A provider that refuses does so behind the 202: the result is the failure, in the dialect's shape."""
    begun = (await begin(http, two.urls[0], path, {"status": 503})).json()
    result = await result_of(http, two.urls[1], begun)
    assert result.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert result.json()["error"]["code"] == "overloaded"
    assert (result.json().get("type") == "error") == (path == "/v1/messages")
    assert result.headers["x-should-retry"] == "true"


@every_dialect
async def test_what_cannot_begin_is_no_202(two, http, path):
    """A bad request and a wrong key are refused at once, whatever was preferred."""
    prefer = {"prefer": "respond-async"}
    bad = await http.post(two.urls[0] + path, json={}, headers=prefer)
    wrong = await http.post(
        two.urls[0] + path, json=CALLS[path], headers=prefer | {"authorization": "Bearer x"}
    )
    assert (bad.status_code, wrong.status_code) == (httpx.codes.BAD_REQUEST, httpx.codes.UNAUTHORIZED)


async def test_the_links_are_the_tenants_own(two, http):
    """Another tenant finds nothing behind the links."""
    begun = (await begin(http, two.urls[0], "/v1/messages", QUICK)).json()
    stranger = {"authorization": f"Bearer {OTHER}"}
    for link in ("events_url", "result_url"):
        answer = await http.get(two.urls[1] + begun[link], headers=stranger)
        assert answer.status_code == httpx.codes.NOT_FOUND


@pytest.mark.parametrize(
    ("preferences", "wanted"),
    [
        (["respond-async"], True),
        (["wait=10, Respond-Async"], True),
        (["return=minimal", " respond-async; x=1"], True),
        ([], False),
        (["return=minimal", "respond-asynchronously"], False),
        (["wait=respond-async"], False),
    ],
)
async def test_preferences(preferences, wanted):
    """The preference is a token of a list, in any case, with parameters or without; in one header or several."""
    assert wants_later(preferences) is wanted
