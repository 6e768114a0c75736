"""What a client asks reaches the provider as it was asked, over a real socket: every field, and only allowed headers."""

import asyncio
import base64
import hashlib
import json
from contextlib import asynccontextmanager

import pytest

from edge.app import build_app
from edge.clock import system_clock
from edge.dialects.spoken import dialect_of
from edge.provider.upstream import Upstream
from schemas.failures import DIALECTS
from schemas.settings import ApiKey, Provider, Route
from tests.support.asgi import post
from tests.support.running import RunningEdge

KEY, THEIRS = "a client's key", "sk-of-the-platform"
KEYS = (ApiKey(id="key-1", tenant="acme", sha256=hashlib.sha256(KEY.encode()).hexdigest()),)
PATHS = {
    "openai.chat": ("/v1/chat/completions", "/v1"),
    "openai.responses": ("/v1/responses", "/v1"),
    "anthropic.messages": ("/v1/messages", ""),
}
OURS = {"model", "stream", "stream_options"}
IMAGE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 40).decode()
AUDIO = base64.b64encode(b"RIFF" + bytes(range(256)) * 20).decode()
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1, 1.5, None, "ü"]}}}}
EVERYTHING = {
    "model": "gpt-x",
    "max_tokens": 17,
    "max_completion_tokens": 9007199254740993,
    "temperature": 0.1,
    "top_p": 1.0,
    "seed": -(2**63),
    "stop": ["\n\n", "\u2028"],
    "logit_bias": {"50256": -100},
    "tools": [{"type": "function", "function": TOOL | {"strict": True}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": TOOL["parameters"]}},
    "modalities": ["text", "audio"],
    "audio": {"voice": "x", "format": "wav"},
    "input": [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}],
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "a long context \U0001f600 é \x00 " * 20_000},
        {
            "role": "user",
            "name": "",
            "content": [
                {"type": "text", "text": ""},
                {"type": "image_url", "image_url": {"url": IMAGE, "detail": "high"}},
                {"type": "input_audio", "input_audio": {"data": AUDIO, "format": "wav"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": AUDIO}},
            ],
        },
    ],
    "metadata": {},
    "x_nobody_knows": {"deep": [[[{"a": None, "b": [], "": {}}]]], "false": False, "e": 1e-9, "z": -0.0},
}
NEVER = {
    "authorization": f"Bearer {KEY}",
    "x-api-key": KEY,
    "cookie": "session=never",
    "proxy-authorization": "Basic never",
    "connection": "keep-alive, x-hop",
    "keep-alive": "timeout=never",
    "te": "trailers, never",
    "trailer": "never",
    "upgrade": "never",
    "x-hop": "never",
    "x-forwarded-for": "never",
    "forwarded": "for=never",
    "accept-encoding": "gzip, never",
    "host": "never",
    "content-encoding": "never",
    "last-event-id": "never",
    "user-agent": "never",
}
ALLOWED = {
    "openai.chat": {"openai-beta"},
    "openai.responses": {"openai-beta"},
    "anthropic.messages": {"anthropic-version", "anthropic-beta"},
}
BY_US = {"host", "content-type", "content-length", "accept", "accept-encoding", "user-agent"}


@asynccontextmanager
async def listening_provider():
    """A provider that keeps what it was sent and fails; its port and the (head lines, body bytes) of each call."""
    calls = []

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        length = next(int(line[15:]) for line in head if line.lower().startswith("content-length:"))
        calls.append((head[:-2], await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 400 Bad\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    async with server:
        yield server.sockets[0].getsockname()[1], calls


async def sent(dialect, body, headers):
    """What one call through an edge comes to at the provider: request line, headers, body bytes."""
    path, base = PATHS[dialect]
    async with listening_provider() as (port, calls):
        target = Provider(dialect=dialect, base_url=f"http://127.0.0.1:{port}{base}", api_key=THEIRS)
        async with RunningEdge(
            Upstream(2),
            system_clock(),
            keys=KEYS,
            providers={"one": target, "two": target},
            models={"gpt-x": (Route(provider="one", model="theirs"),)},
        ) as edge:
            await post(build_app(edge.service), path, body, headers).done()
    (((line, *fields), raw),) = calls
    named = [field.partition(": ")[::2] for field in fields]
    return line, [(name.lower(), value) for name, value in named], raw


def in_order(value):
    """Give a value whose comparison sees the order of keys, and numbers by their type and sign."""
    return json.dumps(value)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_field_goes_on(dialect, stream):
    """Fields that nobody knows, limits, tools, formats, images, audio and a long context arrive as they were sent."""
    asked = EVERYTHING | {"stream": stream}
    _, _, raw = await sent(dialect, asked, {"authorization": f"Bearer {KEY}"})
    got = json.loads(raw)
    assert [key for key in got if key not in OURS] == [key for key in asked if key not in OURS]
    for key in asked.keys() - OURS:
        assert in_order(got[key]) == in_order(asked[key]), key
    assert (got["model"], got["stream"]) == ("theirs", True)
    assert got.keys() - asked.keys() <= {"stream_options"}


async def test_the_clients_stream_options_stay():
    """Usage is asked for beside whatever else the client asked of the stream."""
    asked = {"model": "gpt-x", "messages": [{"role": "user", "content": "x"}], "stream": True}
    options = {"include_usage": False, "include_obfuscation": False, "x": [1]}
    _, _, raw = await sent("openai.chat", asked | {"stream_options": options}, {"x-api-key": KEY})
    assert json.loads(raw)["stream_options"] == options | {"include_usage": True}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_only_allowed_headers_go_on(dialect):
    """Neither the client's key, nor a cookie, nor anything hop by hop reaches a provider; what the dialect allows does."""
    allowed = dict.fromkeys(ALLOWED[dialect], "kept-1")
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": "x"}], "input": "x", "max_tokens": 1}
    line, headers, _ = await sent(dialect, body, NEVER | allowed)
    assert line == f"POST {PATHS[dialect][0]} HTTP/1.1"
    names = [name for name, _ in headers]
    key_name = "x-api-key" if dialect == "anthropic.messages" else "authorization"
    assert sorted(names) == sorted(BY_US | allowed.keys() | {key_name})
    values = dict(headers)
    assert not [value for value in values.values() if KEY in value or "never" in value]
    assert values[key_name].endswith(THEIRS)
    assert {name: values[name] for name in allowed} == allowed
    assert values["accept-encoding"] == "identity"


def test_every_dialect_is_tried():
    """A dialect that is added is tried here as well."""
    assert PATHS.keys() == ALLOWED.keys() == set(DIALECTS)
    assert all(dialect_of(name).upstream_path("m") for name in DIALECTS)
