"""Unmodified clients through two real edges and a real Kafka, in front of a provider that nobody here wrote.

What the ``openai`` SDK accumulates through us is what it gets from ``llmock`` directly; what it cannot see there (a
stream that was cut) it sees here. ``httpx-sse`` is cut in the middle and goes on at the other edge.
"""

import asyncio
import json

import httpx
import openai
import pytest
from httpx_sse import aconnect_sse

from tests.support.llmock import running_llmock
from tests.support.processes import HEADERS, KEY, Edge, environment, write_config

pytestmark = pytest.mark.services
MODEL = "gpt-4o"
TEXT = 'Grüße – 你好 👋 "quoted" \\ back\nsecond line, and enough words to come in a good number of pieces.'
ASKED = [{"role": "user", "content": "Say something."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a place.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
            },
        },
    }
]
TOOL_CALL = {"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}
OWN_FIELDS = {"id", "created", "tool_call_id"}


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    """Give a running llmock."""
    with running_llmock(tmp_path_factory.mktemp("llmock")) as mock:
        yield mock


@pytest.fixture(scope="module")
def edges(topics, provider, tmp_path_factory):
    """Give two edge processes on the session's Kafka, in front of llmock."""
    folder = tmp_path_factory.mktemp("edges")
    write_config(folder, provider.base_url)
    environ = environment(topics, {"TOKENTRAIL_RETRY__MAX_ATTEMPTS": "1"})
    started = [Edge(folder, environ, name) for name in ("edge-1", "edge-2")]
    try:
        for edge in started:
            edge.start()
        for edge in started:
            asyncio.run(edge.until_ready())
        yield started
    finally:
        for edge in started:
            edge.stop()


@pytest.fixture
def mock(provider):
    """Give llmock without anything that another test told it."""
    provider.reset()
    return provider


@pytest.fixture
def clients(edges, mock):
    """Give one SDK client to llmock itself and one through us, both without retries of their own."""
    through_us = openai.OpenAI(base_url=f"{edges[0].url}/v1", api_key=KEY, max_retries=0)
    direct = openai.OpenAI(base_url=mock.base_url, api_key="any", max_retries=0)
    with through_us, direct:
        yield direct, through_us


def bare(value):
    """Give an SDK object without what is new in every answer, and without fields that are not set."""
    return _bare(value.model_dump())


def _bare(value):
    if isinstance(value, dict):
        return {
            key: _bare(item)
            for key, item in value.items()
            if key not in OWN_FIELDS and item not in (None, [])
        }
    if isinstance(value, list):
        return [_bare(item) for item in value]
    return value


def accumulated(client, **asked):
    """Give what the SDK itself accumulates from a stream."""
    with client.chat.completions.stream(model=MODEL, messages=ASKED, **asked) as stream:
        for _ in stream:
            continue
        return bare(stream.get_final_completion())


def test_a_stream_is_what_the_provider_streams(clients, mock):
    """The SDK's own accumulation, text in many pieces and scripts, is the same through us."""
    mock.script(type="reply", text=TEXT, times=None)
    expected, got = [accumulated(client) for client in clients]
    assert got == expected
    assert got["choices"][0]["message"]["content"] == TEXT


def test_every_chunk_is_the_providers_own(clients, mock):
    """Chunk by chunk, unknown fields included: nothing is joined, split, left out or made up."""
    mock.script(type="reply", text=TEXT, times=None)
    expected, got = [
        [
            bare(chunk)
            for chunk in client.chat.completions.create(
                model=MODEL, messages=ASKED, stream=True, stream_options={"include_usage": True}
            )
        ]
        for client in clients
    ]
    assert got == expected
    assert got[-1]["usage"]["completion_tokens"] > 0


def test_usage_that_was_not_asked_for_is_not_shown(clients, mock):
    """We ask every provider for usage; a client that did not gets the chunks that it would have got."""
    expected, got = [
        [bare(chunk) for chunk in client.chat.completions.create(model=MODEL, messages=ASKED, stream=True)]
        for client in clients
    ]
    assert got == expected


def test_an_answer_in_one_piece(clients, mock):
    """A call that asks for no stream gets the assembled answer, which is the provider's own."""
    mock.script(type="reply", text=TEXT, times=None)
    expected, got = [bare(client.chat.completions.create(model=MODEL, messages=ASKED)) for client in clients]
    assert got == expected


@pytest.mark.parametrize("streamed", [True, False])
def test_tool_calls(clients, mock, streamed):
    """Fragments of arguments become the same call, streamed and whole."""
    mock.script(type="reply", tool_calls=[TOOL_CALL], times=None)
    if streamed:
        expected, got = [accumulated(client, tools=TOOLS) for client in clients]
    else:
        expected, got = [
            bare(client.chat.completions.create(model=MODEL, messages=ASKED, tools=TOOLS))
            for client in clients
        ]
    assert got == expected
    (call,) = got["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == TOOL_CALL["arguments"]
    assert got["choices"][0]["finish_reason"] == "tool_calls"


async def test_the_asynchronous_client(edges, mock):
    """Many streams at once through one asynchronous client, each its own text."""
    async with openai.AsyncOpenAI(base_url=f"{edges[0].url}/v1", api_key=KEY, max_retries=0) as client:

        async def ask(number):
            stream = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": f"number {number}"}], stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

        texts = await asyncio.gather(*(ask(number) for number in range(20)))
    assert all(f"number {number}" in text for number, text in enumerate(texts))


def test_heartbeats_disturb_no_client(clients, mock):
    """Comments before the first token and in a stall are nothing to the SDK: the text is whole, nothing is raised."""
    mock.script(type="reply", text=TEXT, times=None)
    mock.script(type="slow_first_token", seconds=1.7)
    mock.script(type="stream_fault", kind="stall", after_chunks=4, stall_seconds=1.7)
    _, through_us = clients
    assert accumulated(through_us)["choices"][0]["message"]["content"] == TEXT


@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_refusal_looks_like_the_providers_own(clients, mock, status, raised, streamed):
    """Before the head a failure keeps its status and body: the SDK raises what it would have raised."""
    mock.script(type="fail", status=status, times=None)
    errors = []
    for client in clients:
        with pytest.raises(raised) as error:
            client.chat.completions.create(model=MODEL, messages=ASKED, stream=streamed)
        errors.append((error.value.status_code, error.value.body))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("kind", ["truncate", "disconnect", "malformed"])
def test_a_stream_that_was_cut_is_an_error(clients, mock, kind):
    """A truncated stream is never a whole answer: the SDK raises, also where it takes the provider's for one."""
    mock.script(type="reply", text=TEXT, times=None)
    mock.script(type="stream_fault", kind=kind, after_chunks=3)
    _, through_us = clients
    got = []
    with pytest.raises(openai.APIError) as error:
        got.extend(
            chunk.choices[0].delta.content or ""
            for chunk in through_us.chat.completions.create(model=MODEL, messages=ASKED, stream=True)
        )
    assert error.value.code == ("upstream_protocol" if kind == "malformed" else "incomplete_upstream")
    assert TEXT.startswith("".join(got))


def test_a_wrong_key_is_said_as_the_provider_would(edges):
    """An unknown key of ours is an AuthenticationError to the SDK, before anything is asked of a provider."""
    with (
        openai.OpenAI(base_url=f"{edges[0].url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.chat.completions.create(model=MODEL, messages=ASKED)


async def read(client, method, url, *, upto=None, **named):
    """Read events with httpx-sse, all of them or the first few; the response's headers and (id, event, data)."""
    events = []
    async with aconnect_sse(client, method, url, **named) as source:
        source.response.raise_for_status()
        async for event in source.aiter_sse():
            events.append((event.id, event.event, event.data))
            if upto is not None and len(events) >= upto:
                break
    return source.response.headers, events


@pytest.mark.parametrize("cut_after", [1, 2, 7])
async def test_httpx_sse_resumes_at_the_other_edge(edges, mock, cut_after):
    """Cut after some events, it goes on at the other edge behind its last id; both parts are the replay, byte for byte."""
    mock.script(type="reply", text=TEXT, times=None)
    body = {"model": MODEL, "messages": ASKED, "stream": True}
    async with httpx.AsyncClient(headers=HEADERS, timeout=30) as client:
        headers, first = await read(
            client, "POST", f"{edges[0].url}/v1/chat/completions", json=body, upto=cut_after
        )
        path = f"/v1/generations/{headers['x-generation-id']}/events?dialect=openai.chat"
        headers, second = await read(
            client, "GET", f"{edges[1].url}{path}", headers={"last-event-id": first[-1][0]}
        )
        assert headers["x-resumed-from"] == first[-1][0].split("-")[0]
        for edge in edges:
            _, replay = await read(client, "GET", f"{edge.url}{path}")
            assert first + second == replay
        ended = await client.get(f"{edges[1].url}{path}", headers={"last-event-id": replay[-1][0]})
        assert ended.status_code == httpx.codes.NO_CONTENT
    assert replay[-1][2] == "[DONE]"
    assert len(mock.seen()) == 1


async def test_a_finished_answer_can_be_fetched_by_anybody_of_the_tenant(edges, mock):
    """The result of a stream that was cut, from the other edge: the body that a plain call would have given."""
    mock.script(type="reply", text=TEXT, times=None)
    body = {"model": MODEL, "messages": ASKED, "stream": True}
    async with httpx.AsyncClient(headers=HEADERS, timeout=30) as client:
        headers, first = await read(client, "POST", f"{edges[0].url}/v1/chat/completions", json=body, upto=3)
        generation = f"{edges[1].url}/v1/generations/{headers['x-generation-id']}"
        await read(client, "GET", f"{generation}/events", headers={"last-event-id": first[-1][0]})
        result = await client.get(f"{generation}/result")
        state = (await client.get(generation)).json()
        stranger = await client.get(generation, headers={"authorization": "Bearer other-key"})
    assert result.json()["choices"][0]["message"]["content"] == TEXT
    assert (state["state"], state["trace_complete"]) == ("finalized", True)
    assert stranger.status_code == httpx.codes.NOT_FOUND
