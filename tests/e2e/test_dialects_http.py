"""Anthropic Messages and OpenAI Responses over HTTP: two edges on one log, in front of the simulator.

What a client is given is what the provider says, byte for byte; a failure has the dialect's own shape; an answer is found
again by its id on either edge.
"""

import json

import httpx
import openai
import pytest
from httpx_sse import aconnect_sse

from tests.support.dialects import HEADERS, OTHER, PATIENT_S, QUICK, world
from tests.support.waiting import until

MESSAGES = {"model": "sim-fast", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]}
RESPONSES = {"model": "sim-fast", "input": "go"}
SCRIPT = QUICK | {"tokens": 6, "reasoning_tokens": 2, "tool_call": {}}


@pytest.fixture
async def two():
    async with world() as running:
        yield running


@pytest.fixture
async def http():
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
        yield client


@pytest.fixture
async def sdks(two):
    """The openai SDK at the provider itself and at each of the edges."""
    urls = [two.direct, *two.urls]
    clients = [openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) for url in urls]
    yield clients
    for client in clients:
        await client.close()


async def events_of(client, method, url, **named):
    """Headers, and (event, data) of each frame; (id, event, data) where ids are asked for."""
    async with aconnect_sse(client, method, url, **named) as source:
        source.response.raise_for_status()
        return source.response.headers, [(e.id, e.event, e.data) async for e in source.aiter_sse()]


def said(events):
    """What the provider says: frames without our ids, pings and answer ids."""
    return [(name, _same(json.loads(data))) for _, name, data in events if name != "ping"]


def _same(value):
    if isinstance(value, dict):
        return {
            k: _same(v)
            for k, v in value.items()
            if k not in ("id", "item_id", "created_at", "sequence_number", "x_sim")
        }
    return [_same(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("path", "asked"), [("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES)])
async def test_a_stream_is_the_providers_own(two, http, path, asked):
    """Event for event what the provider streams; the replay on the other edge is the same, ids included."""
    body = asked | {"stream": True, "simulate": SCRIPT}
    _, direct = await events_of(http, "POST", two.direct + path, json=body)
    headers, through_us = await events_of(http, "POST", two.urls[0] + path, json=body)
    assert said(through_us) == said(direct)
    dialect = "anthropic.messages" if "messages" in path else "openai.responses"
    replay = f"{two.urls[1]}/v1/generations/{headers['x-generation-id']}/events?dialect={dialect}"
    _, again = await events_of(http, "GET", replay)
    assert again == [event for event in through_us if event[1] != "ping"]
    _, rest = await events_of(http, "GET", replay, headers={"last-event-id": again[3][0]})
    assert rest == again[4:]


@pytest.mark.parametrize(("path", "asked"), [("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES)])
async def test_an_answer_in_one_piece(two, http, path, asked):
    """A call that asks for no stream gets the provider's own body, at once and from its result on the other edge."""
    body = asked | {"simulate": SCRIPT}
    direct = (await http.post(two.direct + path, json=body)).json()
    answer = await http.post(two.urls[0] + path, json=body)
    assert _same(answer.json()) == _same(direct)
    result = await http.get(f"{two.urls[1]}/v1/generations/{answer.headers['x-generation-id']}/result")
    assert result.json() == answer.json()


async def test_pings_while_nothing_comes(two, http):
    """Silence is filled with the dialect's own ping, which has no id and is in no replay."""
    script = QUICK | {"tokens": 2, "ttft_ms": 500}
    headers, events = await events_of(
        http, "POST", f"{two.urls[0]}/v1/messages", json=MESSAGES | {"stream": True, "simulate": script}
    )
    names = [name for _, name, _ in events]
    assert names[0] == "ping"
    assert names.index("message_start") >= 2
    _, replay = await events_of(
        http,
        "GET",
        f"{two.urls[1]}/v1/generations/{headers['x-generation-id']}/events?dialect=anthropic.messages",
    )
    assert "ping" not in [name for _, name, _ in replay]


async def test_the_provider_is_asked_with_its_own_key(two, http):
    """The client's version and beta headers go on, with the provider's key; the client's own key does not."""
    sent = {"anthropic-version": "2024-01-01", "anthropic-beta": "b-1", "x-api-key": "key", "x-other": "1"}
    await http.post(f"{two.urls[0]}/v1/messages", json=MESSAGES | {"simulate": QUICK}, headers=sent)
    seen = two.simulator.requests[-1].headers
    assert (seen["anthropic-version"], seen["anthropic-beta"]) == ("2024-01-01", "b-1")
    assert "x-other" not in seen
    assert two.simulator.requests[-1].stream


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/messages", {"model": "m"}, 400, "invalid_request_error"),
        ("/v1/messages", MESSAGES | {"model": "sim-chat"}, 400, "invalid_request_error"),
        ("/v1/messages", MESSAGES | {"simulate": {"status": 529}}, 529, "overloaded_error"),
        ("/v1/messages", MESSAGES | {"simulate": {"status": 404}}, 404, "not_found_error"),
        ("/v1/responses", {}, 400, "invalid_request_error"),
        ("/v1/responses", RESPONSES | {"model": "sim-chat"}, 400, "invalid_request_error"),
        ("/v1/responses", RESPONSES | {"simulate": {"status": 429}}, 429, "requests"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_refusal_has_the_dialects_shape(http, path, body, status, kind, streamed):
    """Before the head a failure keeps its status, in the shape that the SDK of the path reads."""
    async with world(heartbeat_s=PATIENT_S) as two:
        answer = await http.post(two.urls[0] + path, json=body | {"stream": streamed})
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == kind
    assert (answer.json().get("type") == "error") == (path == "/v1/messages")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_a_wrong_key(two, http, path):
    """An unknown key of ours is a 401 in the shape of the path's SDK."""
    answer = await http.post(two.urls[0] + path, json={}, headers={"authorization": "Bearer wrong"})
    assert answer.status_code == httpx.codes.UNAUTHORIZED
    assert answer.json()["error"]["code"] == "unauthorized"
    assert (answer.json().get("type") == "error") == (path == "/v1/messages")


@pytest.mark.parametrize("script", [{"error_after": 3}, {"cut_after": 3}])
@pytest.mark.parametrize(("path", "asked"), [("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES)])
async def test_a_stream_that_breaks_off(two, http, path, asked, script):
    """After content a failure is the dialect's error event, once, and the last one."""
    body = asked | {"stream": True, "simulate": QUICK | {"tokens": 9} | script}
    _, events = await events_of(http, "POST", two.urls[0] + path, json=body)
    assert [name for _, name, _ in events].count("error") == 1
    assert (events[-1][1], json.loads(events[-1][2])["type"]) == ("error", "error")


async def test_numbers_are_our_seqs(two, http):
    """The sequence_number of each Responses event is the seq of its id, without a gap."""
    _, events = await events_of(
        http, "POST", f"{two.urls[0]}/v1/responses", json=RESPONSES | {"stream": True, "simulate": SCRIPT}
    )
    numbers = [json.loads(data)["sequence_number"] for _, _, data in events]
    assert numbers == [int(event_id.partition("-")[0]) for event_id, _, _ in events]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("script", [SCRIPT, QUICK | {"tokens": 3, "finish_reason": "length"}])
async def test_what_the_sdk_accumulates(sdks, script):
    """The openai SDK's own accumulation and its plain call are the same through us."""
    asked = RESPONSES | {"extra_body": {"simulate": script}}
    whole = [(await client.responses.create(**asked)).to_dict() for client in sdks[:2]]
    assert _same(whole[0]) == _same(whole[1])
    seen = []
    for client in sdks[:2]:
        stream = await client.responses.create(**asked, stream=True)
        seen.append([_same(event.to_dict()) async for event in stream])
    assert seen[0] == seen[1]
    assert seen[0][-1]["response"]["status"] in ("completed", "incomplete")


async def test_a_background_answer_on_either_edge(sdks):
    """A background call answers at once; by its id the other edge knows it while it runs, streams it, and has its end."""
    _, here, there = sdks
    script = {"ttft_ms": 50, "interval_ms": 20, "tokens": 20}
    begun = await here.responses.create(**RESPONSES, background=True, extra_body={"simulate": script})
    assert begun.status == "in_progress"
    assert (await there.responses.retrieve(begun.id)).status == "in_progress"
    stream = await there.responses.retrieve(begun.id, stream=True, starting_after=1)
    numbers = [event.sequence_number async for event in stream]
    assert numbers == list(range(2, numbers[-1] + 1))
    ended = [await client.responses.retrieve(begun.id) for client in (here, there)]
    assert ended[0] == ended[1]
    assert (ended[0].status, ended[0].usage.output_tokens) == ("completed", 20)


async def test_a_background_answer_runs_without_a_reader(two, sdks):
    """Nobody reads it and the grace time passes: a background answer goes on to its end."""
    script = {"ttft_ms": 0, "interval_ms": 20, "tokens": 20}
    stream = await sdks[1].responses.create(
        **RESPONSES, background=True, stream=True, extra_body={"simulate": script}
    )
    first = await anext(aiter(stream))
    await stream.close()
    await until(lambda: two.simulator.requests[-1].end == "done")
    assert (await sdks[2].responses.retrieve(first.response.id)).status == "completed"


async def test_a_cancel_on_the_other_edge(two, sdks):
    """A cancel reaches the provider's socket from either edge; the answer is cancelled, also when asked again."""
    script = {"ttft_ms": 0, "interval_ms": 20, "tokens": 1000}
    begun = await sdks[1].responses.create(**RESPONSES, background=True, extra_body={"simulate": script})
    cancelled = await sdks[2].responses.cancel(begun.id)
    assert (cancelled.id, cancelled.status) == (begun.id, "cancelled")
    await until(lambda: two.simulator.requests[-1].aborted_by_client)
    assert [(await sdk.responses.cancel(begun.id)).status for sdk in sdks[1:]] == ["cancelled", "cancelled"]


async def test_a_background_answer_that_fails(sdks):
    """A refusal is the call's own answer; what breaks off later is found as failed, with our code."""
    with pytest.raises(openai.InternalServerError):
        await sdks[1].responses.create(**RESPONSES, background=True, extra_body={"simulate": {"status": 500}})
    broken = QUICK | {"tokens": 9, "cut_after": 2}
    begun = await sdks[1].responses.create(**RESPONSES, background=True, extra_body={"simulate": broken})
    types = [event.type async for event in await sdks[2].responses.retrieve(begun.id, stream=True)]
    found = await sdks[2].responses.retrieve(begun.id)
    assert types[-1] == "error"
    assert (found.status, found.error.code) == ("failed", "incomplete_upstream")


async def test_an_answer_of_somebody_else(two, http, sdks):
    """An unknown id and another tenant's are the same 404, whatever is asked of it."""
    begun = await sdks[1].responses.create(**RESPONSES, extra_body={"simulate": QUICK})
    for url in two.urls:
        for method, tail in (("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel")):
            answers = [
                await http.request(
                    method, f"{url}/v1/responses/{name}{tail}", headers={"authorization": f"Bearer {OTHER}"}
                )
                for name in (begun.id, "resp_nobody")
            ]
            assert [answer.status_code for answer in answers] == [httpx.codes.NOT_FOUND] * 2
            assert answers[0].text.replace(begun.id, "resp_nobody") == answers[1].text
