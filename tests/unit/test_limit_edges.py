"""The limits of one edge, each at its edge: what is just allowed is served, one more is refused by name."""

import asyncio
import hashlib
import json

import pytest

from edge.app import build_app
from schemas.events import Kind
from schemas.ids import uuid7
from schemas.settings import ApiKey
from tests.support.asgi import get, post
from tests.support.running import BODY, edge_with, ends_of, run
from tests.support.upstream import DONE, HANG, OK, Script, chunk, finish
from tests.support.waiting import until

KEY = "a client's key"
AUTH = {"authorization": f"Bearer {KEY}"}
KEYS = (ApiKey(id="key-1", tenant="acme", sha256=hashlib.sha256(KEY.encode()).hexdigest()),)
CHAT = "/v1/chat/completions"
ASKED_BYTES = len(json.dumps(BODY))


def tool(fragment, index=0):
    """Give the chunk of a tool call's arguments."""
    call = {"index": index, "function": {"arguments": fragment}}
    if not fragment:
        call |= {"id": f"call_{index}", "type": "function", "function": {"name": "f", "arguments": ""}}
    delta = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
    return f"data: {json.dumps(delta)}\n\n".encode()


@pytest.mark.parametrize(("limit", "status"), [(ASKED_BYTES, 200), (ASKED_BYTES - 1, 413)])
async def test_body(limit, status):
    """A body of the limit is served; one byte more is a 413 that names it, and nothing is begun."""
    async with edge_with(OK, keys=KEYS, limit={"body_bytes": limit}) as edge:
        answer = await post(build_app(edge.service), CHAT, BODY, AUTH).done()
        assert answer.status == status
        if status == 413:
            assert b"limit.body_bytes" in answer.body
            assert answer.headers["x-should-retry"] == "false"
            assert edge.upstream.calls == []


async def test_generations():
    """As many generations as allowed run at once; one more is a 429 to be tried again, and room comes back."""
    async with edge_with(Script(chunk(), HANG), OK, keys=KEYS, limit={"generations": 1}) as edge:
        app = build_app(edge.service)
        first = post(app, CHAT, BODY | {"user": "first"}, AUTH)
        await first.until(b'"x"')
        refused = await post(app, CHAT, BODY, AUTH).done()
        assert refused.status == 429
        assert b"limit.generations" in refused.body
        assert refused.headers["x-should-retry"] == "true"
        assert int(refused.headers["retry-after"]) > 0
        (running,) = edge.service.registry.running()
        running.driver.interrupt("cancelled")
        await first.done()
        await until(lambda: len(edge.service.registry) == 0)
        assert (await post(app, CHAT, BODY, AUTH).done()).status == 200


async def test_hold():
    """An attempt without content is held up to the limit, so that another may take its place; above, it commits."""
    quiet = chunk("")
    held, _ = await run(Script(quiet, status=200), OK, limit={"hold_bytes": len(quiet)})
    assert [end.committed for end in ends_of(held)] == [False, True]
    sent, _ = await run(Script(quiet, quiet, status=200), OK, limit={"hold_bytes": len(quiet)})
    assert [end.committed for end in ends_of(sent)] == [True]


@pytest.mark.parametrize(("limit", "code"), [(6, None), (5, "upstream_frame_too_large")])
async def test_tool_arguments(limit, code):
    """The arguments of one call count together, each call for itself; one byte above ends the stream by its name."""
    script = Script(
        tool(""), tool("", 1), *(tool("é1", at) for at in (0, 1, 0, 1)), finish("tool_calls"), DONE
    )
    records, _ = await run(script, limit={"tool_arguments_bytes": limit})
    assert ends_of(records)[-1].error_code == code
    if code is not None:
        assert "limit.tool_arguments_bytes" in records[-1].error.message
        assert [event.kind for event in records].count(Kind.TOOL_CALL_DELTA) < 6


@pytest.mark.parametrize("more", [0, 1])
async def test_frame(more):
    """A frame of the limit is an event; a larger one ends the attempt before it is held whole."""
    frame = chunk("x" * 500)
    limit = len(frame.rstrip()) - more
    records, _ = await run(Script(frame, finish(), DONE), limit={"frame_bytes": limit})
    assert ends_of(records)[-1].error_code == (None if not more else "upstream_frame_too_large")


async def test_unacked():
    """While more is unacknowledged than allowed, the provider is not read; then all of it arrives."""
    pieces = [chunk("y" * 100) for _ in range(20)]
    records, _ = await asyncio.wait_for(run(Script(*pieces, finish(), DONE), limit={"unacked_bytes": 1}), 10)
    assert sum(len(part.text) for event in records for part in event.canonical) == 2000


async def test_the_connections_of_a_key():
    """As many of a key's connections as allowed read at once; one more is a 429 before anything is begun or looked for."""
    async with edge_with(Script(chunk(), HANG), keys=KEYS, limit={"key_streams_max": 2}) as edge:
        app, seats = build_app(edge.service), edge.service.desk.seats
        first = post(app, CHAT, BODY, AUTH)
        await first.until(b'"x"')
        url = f"/v1/generations/{first.headers['x-generation-id']}/events"
        second = get(app, url, AUTH)
        await second.until(b"delta")
        unknown = f"/v1/generations/{uuid7(1, 1)}/events"
        for refused in (get(app, url, AUTH), get(app, unknown, AUTH), post(app, CHAT, BODY, AUTH)):
            await refused.done()
            assert refused.status == 429
            assert b"limit.key_streams_max" in refused.body
            assert refused.headers["x-should-retry"] == "true"
        assert len(edge.upstream.calls) == 1
        await second.hang_up()
        assert len(seats) == 1
        head = await get(app, url, AUTH, method="HEAD").done()
        assert (head.status, len(seats)) == (200, 1)
        assert (await get(app, unknown, AUTH).done()).status == 404
        third = get(app, url, AUTH)
        await third.until(b"delta")
        await third.hang_up()
        await first.hang_up()
        assert len(seats) == 0


async def test_the_readers_of_a_generation():
    """As many readers of one generation as allowed; one more is a 429, and another generation has room of its own."""
    script = Script(chunk(), HANG)
    async with edge_with(script, script, keys=KEYS, limit={"readers_max": 1}) as edge:
        app = build_app(edge.service)
        first, other = post(app, CHAT, BODY, AUTH), post(app, CHAT, BODY, AUTH)
        for reader in (first, other):
            await reader.until(b'"x"')
        url = f"/v1/generations/{first.headers['x-generation-id']}/events"
        refused = await get(app, url, AUTH).done()
        assert refused.status == 429
        assert b"limit.readers_max" in refused.body
        await first.hang_up()
        again = get(app, url, AUTH)
        await again.until(b"delta")
        for reader in (again, other):
            await reader.hang_up()
        assert len(edge.service.desk.seats) == 0
