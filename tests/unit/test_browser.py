"""What a browser's fetch asks around its calls, and HEAD: in front of an edge in memory."""

import httpx
import pytest
import pytest_asyncio
from pydantic import ValidationError

from edge.app import build_app
from edge.asgi.browser import EXPOSED, HEADERS_BYTES_MAX
from edge.asgi.direct import Direct
from schemas.events import Kind
from tests.support.asgi import _request, get, post
from tests.support.dialects import HEADERS, KEY_SHA256, QUICK, world
from tests.support.edge import logged, settings_of
from tests.support.running import BODY, edge_with
from tests.support.upstream import HANG, Script, chunk
from tests.support.waiting import until

PAGE = "https://app.example.com"
CHAT = "/v1/chat/completions"
ASKED = {"model": "sim-fast", "messages": [{"role": "user", "content": "go"}], "simulate": QUICK}
ENDLESS = {"ttft_ms": 0, "interval_ms": 5, "tokens": 100_000}
SAFE = {"cache-control", "content-language", "content-length", "content-type", "expires", "last-modified"}
"""What every page may read (CORS-safelisted), besides what is nobody's business but the browser's own."""
OWN = {"date", "vary", "x-accel-buffering", "transfer-encoding", "connection", "allow"}
KEYED = {"id": "key-1", "tenant": "acme"}
SENT = (
    "authorization,content-type,idempotency-key,last-event-id,prefer,traceparent,x-api-key,x-client-id,x-request-id,"
    "x-resumption-token,x-stainless-retry-count,x-tokentrail-on-disconnect,anthropic-version"
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two():
    async with world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def only():
    """The same, for one origin."""
    async with world(edge={"cors_origins": [PAGE]}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http():
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


def preflight(origin=PAGE, method="POST", headers=SENT):
    """The headers of a browser's question."""
    named = {"access-control-request-headers": headers} if headers is not None else {}
    return {"origin": origin, "access-control-request-method": method} | named


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/generations/x/events", "/v1/cancel/x"])
async def test_a_page_may_ask_for_what_a_client_sends(two, http, path):
    """No key is needed for the question; the answer names the methods, and every header that was asked for."""
    answer = await http.options(two.urls[0] + path, headers=preflight())
    assert answer.status_code == httpx.codes.NO_CONTENT
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-headers"] == SENT
    methods = answer.headers["access-control-allow-methods"].split(", ")
    assert {"GET", "HEAD", "POST"} <= set(methods)
    assert int(answer.headers["access-control-max-age"]) > 0
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("asked", [None, "", "a b", "x" * (HEADERS_BYTES_MAX + 1), "a,,b", "é"])
async def test_what_is_no_list_of_headers_is_not_said_back(two, http, asked):
    """A garbled or endless list is answered without any; the call itself will tell."""
    headers = [(k.encode(), v.encode()) for k, v in preflight(headers=asked).items()]
    answer = await http.options(two.urls[0] + CHAT, headers=headers)
    assert answer.status_code == httpx.codes.NO_CONTENT
    assert "access-control-allow-headers" not in answer.headers


async def test_a_page_reads_what_a_client_must(two, http):
    """Of streams, answers, refusals and a 202 in every dialect: each head names the origin, and exposes all it carries."""
    exposed = {name.lower() for name in EXPOSED}
    page = {"origin": PAGE}
    key = {"idempotency-key": "browser"}
    calls = [
        http.post(two.urls[0] + CHAT, json=ASKED | {"stream": True}, headers=HEADERS | page),
        http.post(two.urls[0] + CHAT, json=ASKED, headers=HEADERS | page | key),
        http.post(two.urls[0] + CHAT, json=ASKED, headers=HEADERS | page | key),
        http.post(two.urls[0] + CHAT, json=ASKED, headers=HEADERS | page | {"prefer": "respond-async"}),
        http.post(two.urls[0] + CHAT, json=ASKED | {"simulate": {"status": 429}}, headers=HEADERS | page),
        http.post(two.urls[0] + CHAT, json=ASKED, headers=page),
        http.post(two.urls[0] + CHAT, content=b"{", headers=HEADERS | page),
        http.get(two.urls[0] + "/v1/nothing", headers=HEADERS | page),
    ]
    answers = [await call for call in calls]
    events = f"{two.urls[1]}/v1/generations/{answers[0].headers['x-generation-id']}/events"
    seen_id = answers[0].text.split("id: ")[1].split("\n")[0]
    more = [
        http.post(f"{two.urls[0]}/v1/messages", json=ASKED | {"max_tokens": 9}, headers=HEADERS | page),
        http.post(
            f"{two.urls[0]}/v1/responses", json={"model": "sim-fast", "input": "go"}, headers=HEADERS | page
        ),
        http.get(events, headers=HEADERS | page | {"last-event-id": seen_id}),
        http.get(events.removesuffix("/events"), headers=HEADERS | page),
        http.get(events.replace("/events", "/result"), headers=HEADERS | page),
        http.post(events.replace("/events", "/cancel"), headers=HEADERS | page),
        http.post(events.replace("/events", "/tickets"), headers=HEADERS | page),
    ]
    answers += [await call for call in more]
    statuses, seen = [], set()
    for answer in answers:
        statuses.append(answer.status_code)
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "Origin" in answer.headers["vary"]
        said = {name for name in answer.headers if not name.startswith("access-control-")} - SAFE - OWN
        assert said <= exposed
        assert {
            n.strip().lower() for n in answer.headers["access-control-expose-headers"].split(",")
        } == exposed
        seen |= said
    assert statuses == [200, 200, 200, 202, 429, 401, 400, 404, 200, 200, 200, 200, 200, 200, 201]
    named = {"x-generation-id", "idempotent-replayed", "x-should-retry", "preference-applied", "request-id"}
    assert named | {"x-resumed-from", "x-reader-id"} <= seen


async def test_no_page_may_read_what_is_not_a_call(two, http):
    """Metrics and probes are not the web's; and what comes without an origin is answered as ever."""
    probe = await http.get(two.urls[0] + "/metrics", headers={"origin": PAGE})
    plain = await http.post(two.urls[0] + CHAT, json=ASKED, headers=HEADERS)
    for answer in (probe, plain):
        assert answer.status_code == httpx.codes.OK
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_only_pages_of_named_origins(only, http):
    """The named origin is echoed, another one is told nothing and refused its question."""
    for origin, status in ((PAGE, 204), (PAGE + ".evil.example", 403), ("null", 403), (PAGE.upper(), 403)):
        answer = await http.options(only.urls[0] + CHAT, headers=preflight(origin))
        assert answer.status_code == status
        call = await http.post(only.urls[0] + CHAT, json=ASKED, headers=HEADERS | {"origin": origin})
        for said in (answer, call):
            assert said.headers.get("access-control-allow-origin") == (origin if status == 204 else None)
        assert call.status_code == httpx.codes.OK


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/models", "/openapi.json"])
async def test_head_is_get_without_its_body(two, http, path):
    """The same status and headers, and nothing behind them."""
    head, got = [await call(two.urls[0] + path, headers=HEADERS) for call in (http.head, http.get)]
    assert (head.status_code, head.content) == (got.status_code, b"") == (httpx.codes.OK, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert (
        await http.head(two.urls[0] + CHAT, headers=HEADERS)
    ).status_code == httpx.codes.METHOD_NOT_ALLOWED


async def test_head_of_a_stream_reads_nothing(two, http):
    """It says whether there is one, at once, and is no reader: it attaches to nothing and cancels nothing."""
    begun = await http.post(
        two.urls[0] + CHAT,
        json=ASKED | {"simulate": ENDLESS},
        headers=HEADERS | {"prefer": "respond-async", "x-tokentrail-on-disconnect": "cancel"},
    )
    generation = two.services[0].registry.get(begun.json()["generation_id"])
    await until(lambda: len(generation.window) > 3)
    for url in two.urls:
        at = url + begun.json()["events_url"]
        head = await http.head(at, headers=HEADERS)
        assert (head.status_code, head.content) == (httpx.codes.OK, b"")
        assert head.headers["content-type"].startswith("text/event-stream")
        assert head.headers["x-generation-id"] == generation.id
        assert (await http.head(at)).status_code == httpx.codes.UNAUTHORIZED
    missing = f"{two.urls[0]}/v1/generations/{generation.id[:-4]}0000/events"
    assert (await http.head(missing, headers=HEADERS)).status_code == httpx.codes.NOT_FOUND
    assert not generation.ended.is_set()
    log = two.services[0].log
    records = logged(log, generation.identity.partition, generation.id.encode())
    assert Kind.CLIENT_ATTACHED not in {record.kind for record in records}
    await http.post(two.urls[0] + begun.json()["cancel_url"], headers=HEADERS)


@pytest.mark.parametrize("origin", ["app.example.com", PAGE + "/", "https://", "* "])
async def test_an_origin_that_can_never_match_is_an_error(origin):
    """It is said at start, not found out in a browser."""
    with pytest.raises(ValidationError, match="cors_origins"):
        settings_of(edge={"cors_origins": [origin]})


async def test_streams_take_their_own_way_to_the_socket():
    """Past the framework's middlewares, as in a process: a page reads their heads too, and HEAD ends behind the head."""
    async with edge_with(Script(chunk("a"), HANG), keys=({**KEYED, "sha256": KEY_SHA256},)) as edge:
        app = Direct(build_app(edge.service))
        page = HEADERS | {"origin": PAGE}
        opened = post(app, CHAT, BODY, page)
        await opened.until(b"id: ")
        assert opened.headers["access-control-allow-origin"] == "*"
        at = f"/v1/generations/{opened.headers['x-generation-id']}/events"
        again = get(app, at, page)
        await again.until(b"id: ")
        assert "X-Generation-Id" in again.headers["access-control-expose-headers"]
        head = await _request(app, "HEAD", at, HEADERS, b"").done()
        assert (head.status, head.body) == (200, b"")
        assert "access-control-allow-origin" not in head.headers
        for connection in (opened, again):
            await connection.hang_up()
