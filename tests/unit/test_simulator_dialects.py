"""The scripted provider in its other two dialects: what it streams is what it answers whole, and its faults are theirs."""

import json

import httpx
import openai
import pytest

from compose.embedded.simulator import Simulator
from edge.dialects.spoken import dialect_of
from edge.sse import SseDecoder
from tests.support.events import log_event, proper_end

QUICK = {"ttft_ms": 0, "interval_ms": 0}
ASKED = [{"role": "user", "content": "Say hello, please"}]
SCRIPTS = [
    {"tokens": 5},
    {"tokens": 3, "reasoning_tokens": 2},
    {"tokens": 2, "tool_call": {}},
    {"tokens": 1, "cached_tokens": 3},
]


@pytest.fixture
async def sim():
    async with Simulator(port=0) as simulator:
        yield simulator


@pytest.fixture
async def http(sim):
    async with httpx.AsyncClient(base_url=sim.base_url, headers={"x-api-key": "secret"}) as client:
        yield client


@pytest.fixture
async def sdk(sim):
    async with openai.AsyncOpenAI(base_url=sim.base_url, api_key="k", max_retries=0) as client:
        yield client


def without_marks(value, *own):
    """A body without what is new in each answer."""
    return {key: item for key, item in value.items() if key not in {"id", "x_sim", "created_at", *own}}


async def messages(http, *, stream=False, **script):
    """One call of the Messages dialect; its events where it streams."""
    body = {
        "model": "sim-fast",
        "messages": ASKED,
        "max_tokens": 100,
        "stream": stream,
        "simulate": QUICK | script,
    }
    answer = await http.post("/messages", json=body)
    return SseDecoder(1 << 20).feed(answer.content) if stream else answer


@pytest.mark.parametrize("script", SCRIPTS)
async def test_messages_streamed_and_whole(http, script):
    """The events of an answer accumulate to its whole body."""
    events = await messages(http, stream=True, **script)
    assert [event.event for event in events][:2] == ["message_start", "ping"]
    assert events[-1].event == "message_stop"
    logged = [
        log_event("frame", seq, raw=event.data, raw_event=event.event)
        for seq, event in enumerate(events, 1)
        if event.event not in ("ping", "message_stop")
    ]
    assembled = dialect_of("anthropic.messages").assemble([*logged, proper_end(len(events))])
    whole = (await messages(http, **script)).json()
    assert without_marks(assembled) == without_marks(whole)
    assert whole["usage"]["cache_read_input_tokens"] == script.get("cached_tokens", 0)


async def test_messages_faults(http, sim):
    """A refusal and an error in band have Anthropic's shapes; a key is not on record."""
    refused = await messages(http, status=529)
    assert (refused.status_code, refused.json()["error"]["type"]) == (529, "overloaded_error")
    events = await messages(http, stream=True, tokens=5, error_after=2)
    assert (events[-1].event, json.loads(events[-1].data)["error"]["type"]) == ("error", "overloaded_error")
    unknown = await http.post("/messages", json={"model": "nobody", "messages": ASKED})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "error")
    assert all("x-api-key" not in seen.headers for seen in sim.requests)


@pytest.mark.parametrize("script", SCRIPTS)
async def test_responses_streamed_and_whole(sdk, script):
    """What the SDK accumulates of a stream is what it is answered whole, and the events are numbered from 0."""
    asked = {"model": "sim-fast", "input": "Say hello, please", "extra_body": {"simulate": QUICK | script}}
    async with sdk.responses.stream(**asked) as stream:
        numbers = [event.sequence_number async for event in stream]
        final = (await stream.get_final_response()).to_dict()
    whole = (await sdk.responses.create(**asked)).to_dict()
    assert numbers == list(range(len(numbers)))
    assert without_marks(whole) == without_marks(json.loads(json.dumps(final), object_hook=_unparsed))
    assert whole["status"] == "completed"


def _unparsed(value):
    """What the SDK adds to an accumulated response taken away."""
    return {key: item for key, item in value.items() if key not in ("parsed", "parsed_arguments")}


async def test_responses_that_were_cut_short(sdk):
    """An answer above the output limit is incomplete, with the reason."""
    response = await sdk.responses.create(
        model="sim-fast", input="x", max_output_tokens=3, extra_body={"simulate": QUICK}
    )
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.usage.output_tokens == 3


async def test_responses_faults(sdk):
    """An error in band is the protocol's error event; a refusal is an error body."""
    asked = {"model": "sim-fast", "input": "x"}
    with pytest.raises(openai.InternalServerError):
        await sdk.responses.create(**asked, extra_body={"simulate": {"status": 503}})
    stream = await sdk.responses.create(
        **asked, stream=True, extra_body={"simulate": QUICK | {"tokens": 3, "error_after": 1}}
    )
    events = [event async for event in stream]
    assert events[-1].type == "error"
