"""The unmodified anthropic SDK: what it accumulates through us is what it gets from the provider directly."""

import contextlib

import anthropic
import pytest

from tests.support.dialects import PATIENT_S, QUICK, world

ASKED = {"model": "sim-fast", "max_tokens": 1000, "messages": [{"role": "user", "content": "go"}]}
OWN_FIELDS = {"id", "x_sim"}
SCRIPTS = [
    {"tokens": 30},
    {"tokens": 3, "reasoning_tokens": 4, "tool_call": {}},
    {"tokens": 4, "cached_tokens": 2, "finish_reason": "refusal"},
    {"tokens": 4, "ttft_ms": 400, "stalls": [[2, 400]]},
]


@pytest.fixture
async def sdks():
    """Give the SDK at the provider itself and at an edge."""
    async with at_both() as clients:
        yield clients


@contextlib.asynccontextmanager
async def at_both(**sections):
    async with world(**sections) as two:
        clients = [
            anthropic.AsyncAnthropic(base_url=url, api_key="key", max_retries=0)
            for url in (two.direct, two.urls[0])
        ]
        yield clients
        for client in clients:
            await client.close()


def bare(value):
    """Give an SDK object without what is new in every answer."""
    return _bare(value.to_dict())


def _bare(value):
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key not in OWN_FIELDS}
    return [_bare(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_stream_is_what_the_provider_streams(sdks, script):
    """Every event of the stream helper and its final message, heartbeats in silent phases included."""
    seen = []
    for client in sdks:
        async with client.messages.stream(**ASKED, extra_body={"simulate": QUICK | script}) as stream:
            events = [bare(event) async for event in stream]
            seen.append((events, bare(await stream.get_final_message())))
    assert seen[0] == seen[1]
    assert seen[0][1]["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("script", SCRIPTS)
async def test_an_answer_in_one_piece(sdks, script):
    """A call that asks for no stream gets the assembled answer, which is the provider's own."""
    seen = [
        bare(await client.messages.create(**ASKED, extra_body={"simulate": QUICK | script}))
        for client in sdks
    ]
    assert seen[0] == seen[1]


async def test_a_call_has_a_name(sdks):
    """The SDK finds the name of a call where it looks for it: on a message, on a stream, and on an error."""
    _, through_us = sdks
    script = {"simulate": QUICK | {"tokens": 1}}
    named = {"extra_headers": {"x-request-id": "call-1"}}
    assert (await through_us.messages.create(**ASKED, extra_body=script, **named))._request_id == "call-1"
    async with through_us.messages.stream(**ASKED, extra_body=script, **named) as stream:
        assert stream.request_id == "call-1"
    with pytest.raises(anthropic.BadRequestError) as error:
        await through_us.messages.create(**ASKED, extra_body={"simulate": {"status": 400}}, **named)
    assert error.value.request_id == "call-1"


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503, 529])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_refusal_looks_like_the_providers_own(status, streamed):
    """Before the head a failure keeps its status and body: the SDK raises what it would have raised."""
    errors = []
    async with at_both(heartbeat_s=PATIENT_S) as sdks:
        for client in sdks:
            with pytest.raises(anthropic.APIStatusError) as error:
                await client.messages.create(
                    **ASKED, stream=streamed, extra_body={"simulate": {"status": status}}
                )
            errors.append((type(error.value), error.value.status_code, error.value.body))
    assert errors[0] == errors[1]


async def test_an_error_in_band(sdks):
    """After content an error event is raised by the SDK as from the provider, behind the same events."""
    seen = []
    for client in sdks:
        stream = await client.messages.create(
            **ASKED, stream=True, extra_body={"simulate": QUICK | {"error_after": 3}}
        )
        events = []
        with pytest.raises(anthropic.APIStatusError) as error:
            events.extend([bare(event) async for event in stream])
        seen.append((events, error.value.body))
    assert seen[0] == seen[1]


async def test_a_stream_that_was_cut(sdks):
    """A truncated stream is never a whole message: the SDK raises."""
    stream = await sdks[1].messages.create(
        **ASKED, stream=True, extra_body={"simulate": QUICK | {"cut_after": 3}}
    )
    with pytest.raises(anthropic.APIStatusError) as error:
        [event async for event in stream]
    assert error.value.body["error"]["code"] == "incomplete_upstream"
