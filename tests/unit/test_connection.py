"""A connection before its request is whole: bounded in size and in time, whatever the client does."""

import asyncio
import contextlib
import socket

import pytest
import uvicorn

from edge.asgi.connection import bounded
from schemas.settings import Limit

HEAD_BYTES, HEAD_S = 1_000, 0.2
ASKED = b"GET /%b HTTP/1.1\r\nhost: x\r\n%b\r\n"


async def app(scope, receive, send):
    """Answer at once; ``/slow`` writes for three times as long as a head may take."""
    del receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(6 if scope["path"] == "/slow" else 0):
        await asyncio.sleep(HEAD_S / 2)
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
    await send({"type": "http.response.body", "body": b"end", "more_body": False})


@pytest.fixture
async def address():
    """Where a server with these limits listens."""
    listening = socket.create_server(("127.0.0.1", 0))
    limit = Limit(head_bytes=HEAD_BYTES, head_s=HEAD_S)
    config = uvicorn.Config(app, http=bounded(limit), log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    yield listening.getsockname()
    server.should_exit = True
    await serving
    listening.close()


async def answer(address, *sent):
    """What comes until the server closes: to bytes, with pauses of some seconds between."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for part in sent:
            if isinstance(part, bytes):
                writer.write(part)
                with contextlib.suppress(ConnectionError):  # refused before it was read whole
                    await writer.drain()
            else:
                await asyncio.sleep(part)
        async with asyncio.timeout(HEAD_S * 20):
            return await reader.read(-1)
    except ConnectionError:
        return b"reset"
    finally:
        writer.close()


@pytest.mark.parametrize("name", [b"x-long: ", b"x-many: a\r\n"])
async def test_a_head_without_end_is_refused(address, name):
    """One endless line, or lines without end: 431 after the limit, not memory."""
    answered = await answer(address, b"GET / HTTP/1.1\r\nhost: x\r\n", 0.01, name * HEAD_BYTES, 0.01)
    assert answered.startswith(b"HTTP/1.1 431") or answered == b"reset"


async def test_a_head_at_the_limit_is_served(address):
    """The limit counts the head alone: neither the head before it on the connection nor a body."""
    padding = b"x-long: " + b"a" * (HEAD_BYTES - 60) + b"\r\n"
    body = b"content-length: 5000\r\n"
    answered = await answer(
        address,
        ASKED % (b"", padding),
        0.01,
        ASKED % (b"", body),
        0.01,
        b"b" * 5000,
        ASKED % (b"", padding[:-30] + b"\r\nconnection: close\r\n"),
    )
    assert answered.count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.parametrize("sent", [(), (b"GE",), (ASKED % (b"", b""), 0.01, b"GET / HTTP/1.1\r\nx-sl")])
async def test_half_a_head_is_not_waited_for(address, sent):
    """A socket that asks nothing, half a line, or half of a second request: closed after the bound."""
    began = asyncio.get_running_loop().time()
    answered = await answer(address, *sent)
    assert HEAD_S / 2 < asyncio.get_running_loop().time() - began < HEAD_S * 10
    assert answered.count(b"HTTP/1.1 200 OK") == len(sent) // 2


async def test_an_answer_is_not_cut_for_the_request_behind_it(address):
    """Half a request behind one that is still being answered waits for that answer's end."""
    answered = await answer(address, ASKED % (b"slow", b""), 0.01, b"GET / HTTP/1.1\r\nx-sl")
    assert answered.count(b"x\r\n") == 6
    assert b"end" in answered
