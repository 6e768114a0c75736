"""Unmodified clients in Python: what each accumulates of one answer, by way of calling.

``OPENED[name](url)`` opens a client, which one test after the other uses; ``SPEAKS[name](client, dialect, model, asked)``
gives {way: outcome}: what the way came to, or the error that the SDK raised, as JSON. ``asked``: plain, tools (which it offers), json (parsed by the SDK's own helper), agent (the SDK calls the
tools itself until the model is done), or retry (a plain call, tried again as the SDK does by itself). Before it: a provider, or an edge. After it: ``tests/e2e/test_clients.py``.
"""

import asyncio
import json
import re

import anthropic
import httpx
import openai
from httpx_sse import aconnect_sse
from pydantic import BaseModel

from tests.support.answers import PATHS
from tests.support.processes import HEADERS, KEY

ASKED = [{"role": "user", "content": "What is the weather in Zürich?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
          "required": ["city", "days"], "additionalProperties": False}  # fmt: skip
ABOUT = {"name": "get_weather", "description": "The weather of a place."}
FUNCTION = {"type": "function", "function": ABOUT | {"parameters": SCHEMA}}
FLAT_FUNCTION = {"type": "function", **ABOUT, "parameters": SCHEMA, "strict": False}
TOOL = ABOUT | {"input_schema": SCHEMA}


TRIES = anthropic.DEFAULT_MAX_RETRIES
TIMEOUT_S = 60
"""Also for the connection: the first use of an SDK's types keeps the loop for seconds on a busy machine."""
_ONCE = {"api_key": KEY, "max_retries": 0, "timeout": TIMEOUT_S}


class Weather(BaseModel):
    """What a structured answer is parsed to."""

    city: str
    days: int


async def outcome(call, *args, **named):
    """What a call came to, as JSON: also where it raised."""
    try:
        return plain(await call(*args, **named))
    except Exception as error:  # noqa: BLE001 - whatever an SDK raises is what it makes of the answer
        return {"raised": type(error).__name__, **_said(error)}


def _said(error):
    names = ("message", "status_code", "body", "code", "type", "param")
    said = {name: getattr(error, name, None) for name in names}
    return {"text": str(error), **{name: plain(value) for name, value in said.items()}}


def plain(value):
    """An SDK's objects as JSON values."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", warnings=False)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


async def collected(stream):
    """The items of a stream, and behind them what it raised."""
    items = []

    async def run():
        async for item in stream:
            items.append(plain(item))  # noqa: PERF401 - a comprehension would lose what came before an error

    raised = await outcome(run)
    return [*items, raised] if raised else items


async def gathered(**ways):
    """Run the ways at once."""
    return dict(zip(ways, await asyncio.gather(*ways.values()), strict=True))


async def openai_async(client, dialect, model, asked):
    """``openai.AsyncOpenAI``: plain call, event by event, the streaming helper, ``.parse``."""
    chat = dialect == "openai.chat"
    api = client.chat.completions if chat else client.responses
    named = _openai_asked(chat, model, asked)
    parse = _openai_format(chat) if asked == "json" else {}
    if asked == "retry":
        return {"whole": await outcome(_retried(client, chat).create, **named)}

    async def helper():
        async with api.stream(**named, **parse) as stream:
            events = await collected(stream)
            final = stream.get_final_completion if chat else stream.get_final_response
            return [events, await outcome(final)]

    async def each():
        return await collected(await api.create(**named, stream=True))

    return await gathered(
        whole=outcome(api.parse if parse else api.create, **named, **parse),
        events=outcome(each),
        helper=outcome(helper),
    )


async def openai_sync(client, dialect, model, asked):
    """``openai.OpenAI``: the same, in a thread."""

    async def of(call):
        return await asyncio.to_thread(call)

    chat = dialect == "openai.chat"
    api = client.chat.completions if chat else client.responses
    named = _openai_asked(chat, model, asked)
    usage = {"stream_options": {"include_usage": True}} if chat else {}

    def helper():
        with api.stream(**named, **usage) as stream:
            stream.until_done()
            return stream.get_final_completion() if chat else stream.get_final_response()

    return await gathered(
        whole=outcome(of, lambda: api.create(**named)),
        events=outcome(of, lambda: list(api.create(**named, stream=True, **usage))),
        helper=outcome(of, helper),
    )


def _openai_asked(chat, model, asked):
    tools = [FUNCTION if chat else FLAT_FUNCTION]
    offered = {"tools": tools} if asked == "tools" else {}
    return {"model": model, "messages" if chat else "input": ASKED, **offered}


def _retried(client, chat):
    again = client.with_options(max_retries=TRIES)
    return again.chat.completions if chat else again.responses


def _openai_format(chat):
    return {"response_format" if chat else "text_format": Weather}


async def anthropic_async(client, dialect, model, asked):
    """``anthropic.AsyncAnthropic``: plain call, event by event, ``messages.stream``, ``.parse``, the tool runner."""
    del dialect
    named = {"model": model, "max_tokens": 100, "messages": ASKED}
    if asked == "retry":
        return {"whole": await outcome(client.with_options(max_retries=TRIES).messages.create, **named)}
    if asked == "agent":
        return {"loop": await outcome(_tool_runner, client, named)}
    named |= {"tools": [TOOL]} if asked == "tools" else {}
    parse = {"output_format": Weather} if asked == "json" else {}

    async def helper():
        async with client.messages.stream(**named, **parse) as stream:
            events = await collected(stream)
            return [events, len(events), await outcome(stream.get_final_message)]

    async def each():
        return await collected(await client.messages.create(**named, stream=True))

    call = client.messages.parse if parse else client.messages.create
    return await gathered(whole=outcome(call, **named, **parse), events=outcome(each), helper=outcome(helper))


async def _tool_runner(client, named):
    ran = []

    @anthropic.beta_async_tool
    async def get_weather(city: str, days: int) -> str:
        """The weather of a place."""
        ran.append([city, days])
        return "Sunny."

    runner = client.beta.messages.tool_runner(**named, tools=[get_weather])
    return [await collected(runner), ran]


async def httpx_sse(client, dialect, model, asked):
    """``httpx-sse``: names and data of the events, as text; and the lines on the wire.

    Pings are the sender's own. Of what we add (ids, the time to reconnect, comments) no line is compared.
    """
    body = _openai_asked(dialect != "openai.responses", model, asked) | {"stream": True, "max_tokens": 100}

    async def each():
        async with aconnect_sse(client, "POST", PATHS[dialect], json=body) as source:
            if source.response.is_error:
                return [source.response.status_code, json.loads(await source.response.aread())]
            events = [(event.event, unnumbered(event.data)) async for event in source.aiter_sse()]
            return [event for event in events if event[0] != "ping"]

    async def wire():
        answer = await client.post(PATHS[dialect], json=body)
        frames = [frame.split("\n") for frame in answer.text.split("\n\n")]
        theirs = [[unnumbered(line) for line in frame if not _OURS.match(line)] for frame in frames]
        return [frame for frame in theirs if frame and frame[0] != "event: ping"]

    return await gathered(events=outcome(each), wire=outcome(wire))


_OURS = re.compile(r"id:|retry:|:")


def unnumbered(text):
    """An event's text without the one field that is ours: the number of a Responses event."""
    return re.sub(r'"sequence_number": ?\d+', '"sequence_number":0', text)


OPENED = {
    "openai": lambda url: openai.AsyncOpenAI(base_url=f"{url}/v1", **_ONCE),
    "openai sync": lambda url: openai.OpenAI(base_url=f"{url}/v1", **_ONCE),
    "anthropic": lambda url: anthropic.AsyncAnthropic(base_url=url, **_ONCE),
    "httpx-sse": lambda url: httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=TIMEOUT_S),
}
SPEAKS = {
    "openai": openai_async,
    "openai sync": openai_sync,
    "anthropic": anthropic_async,
    "httpx-sse": httpx_sse,
}
