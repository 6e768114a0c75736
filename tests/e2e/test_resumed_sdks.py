"""A stream that is cut in the middle of a content part keeps the SDKs above it alive: nothing is opened a second time.

What goes on behind a cursor is exactly the rest, so a reader that splices it sees one unbroken stream (an Anthropic
`content_block_start` sent again would be a second block). A reader that begins anew, which has no opening to put the rest
into, asks for `X-Resume-Mode: from-start`, or, of a Responses answer, by the SDK's own `starting_after`.
"""

import anthropic
import httpx
import httpx2
import openai
import pytest

from tests.support.dialects import QUICK, world
from tests.support.splice import Splice

SCRIPT = QUICK | {"tokens": 6, "reasoning_tokens": 3, "tool_call": {}}
ASKED = [{"role": "user", "content": "go"}]
CUTS = (1, 2, 4, 7, 10, 13)
"""Behind the opening, within reasoning, within text, within a tool call's arguments."""


@pytest.fixture
async def two():
    """Give two edges in front of the simulator."""
    async with world() as running:
        yield running


def bare(value):
    """Give an answer without what is new in every one."""
    if isinstance(value, dict):
        own = ("id", "item_id", "created_at", "created", "x_sim", "call_id", "parsed", "parsed_arguments")
        return {k: bare(v) for k, v in value.items() if k not in own}
    return [bare(item) for item in value] if isinstance(value, list) else value


async def chat(url, http):
    """Accumulate a chat completion by the SDK's stream helper."""
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0, http_client=http) as client,
        client.chat.completions.stream(
            model="sim-chat", messages=ASKED, extra_body={"simulate": SCRIPT}
        ) as stream,
    ):
        return bare((await stream.get_final_completion()).to_dict())


async def messages(url, http):
    """Accumulate a message by the SDK's stream helper."""
    asked = {"model": "sim-fast", "max_tokens": 100, "messages": ASKED, "extra_body": {"simulate": SCRIPT}}
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key="key", max_retries=0, http_client=http) as client,
        client.messages.stream(**asked) as stream,
    ):
        return bare((await stream.get_final_message()).to_dict())


async def responses(url, http):
    """Accumulate a response by the SDK's stream helper."""
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0, http_client=http) as client,
        client.responses.stream(model="sim-fast", input="go", extra_body={"simulate": SCRIPT}) as stream,
    ):
        return bare((await stream.get_final_response()).to_dict())


def bare_ids(body):
    """Give the ids that stand in a body, in order."""
    return [line for line in body.split(b"\n") if line.startswith(b"id:")]


LIBRARIES = {"anthropic.messages": httpx2}
"""What the SDK is made with, where that is not httpx."""
CLIENTS = {"openai.chat": chat, "anthropic.messages": messages, "openai.responses": responses}


@pytest.mark.parametrize("dialect", CLIENTS)
async def test_cut_behind_any_event_the_answer_is_whole(two, dialect):
    """Wherever the cut, the SDK accumulates through the splice what it accumulates without one."""
    here, there = two.urls
    whole = await CLIENTS[dialect](here, None)
    for cut_after in CUTS:
        splice = Splice(LIBRARIES.get(dialect, httpx), cut_after, there, dialect)
        async with splice.client() as http:
            assert await CLIENTS[dialect](here, http) == whole, cut_after
        assert splice.behind
        assert b"message_start" not in splice.behind
        assert b"response.created" not in splice.behind


@pytest.mark.parametrize("dialect", CLIENTS)
async def test_who_begins_anew_asks_from_the_start(two, dialect):
    """A fresh accumulator that is given the stream from its start behind a good id has the whole answer."""
    here, there = two.urls
    whole = await CLIENTS[dialect](here, None)
    splice = Splice(LIBRARIES.get(dialect, httpx), 5, there, dialect, mode="from-start")
    async with splice.client() as http:
        assert await CLIENTS[dialect](here, http) == whole
    assert bare_ids(splice.behind)[:5] == bare_ids(splice.before)


async def test_the_responses_sdk_resumes_by_itself(two):
    """`responses.stream(response_id=…, starting_after=…)` on another edge: the rest as events, the whole as the answer."""
    here, there = two.urls
    async with (
        openai.AsyncOpenAI(base_url=f"{here}/v1", api_key="key", max_retries=0) as first,
        openai.AsyncOpenAI(base_url=f"{there}/v1", api_key="key", max_retries=0) as second,
    ):
        stream = await first.responses.create(
            model="sim-fast", input="go", stream=True, extra_body={"simulate": SCRIPT}
        )
        events = [event async for event in stream]
        response_id = events[0].response.id
        whole = events[-1].response
        for event in events[:-1]:
            async with second.responses.stream(
                response_id=response_id, starting_after=event.sequence_number
            ) as resumed:
                rest = [e.sequence_number async for e in resumed]
                assert rest == [
                    e.sequence_number for e in events if e.sequence_number > event.sequence_number
                ]
                assert bare((await resumed.get_final_response()).to_dict()) == bare(whole.to_dict())
