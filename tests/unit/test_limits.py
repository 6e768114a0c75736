"""A request that comes too slowly or without end, on a real socket: refused by name, whatever part of it drips."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest
import uvicorn

from edge.asgi.connection import bounded
from schemas.settings import Limit

HEAD_BYTES, SOON_S, NEVER_S = 1_000, 0.3, 30
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def app(scope, receive, send):
    """Read the whole request, then answer; ``/at-once`` answers without reading."""
    while scope["path"] != "/at-once":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok", "more_body": False})


@asynccontextmanager
async def connected(head_s=NEVER_S, read_s=NEVER_S):
    """A connection to a server with these limits."""
    listening = socket.create_server(("127.0.0.1", 0))
    limit = Limit(head_bytes=HEAD_BYTES, head_s=head_s, request_read_s=read_s)
    config = uvicorn.Config(app, http=bounded(limit), log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await serving
        listening.close()


async def said_while(reader, writer, piece, every_s=0.02):
    """What comes until the server closes, while a piece is sent again and again; b"reset" for a hard close."""

    async def drip():
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(every_s)  # the client's own slowness, which is what is tested

    dripping = asyncio.ensure_future(drip())
    try:
        async with asyncio.timeout(10):
            return await reader.read(-1)
    except ConnectionError:
        return b"reset"
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


@pytest.mark.parametrize(
    ("head", "piece"),
    [(POST + b"content-length: 100000\r\n\r\n", b"x"), (CHUNKED, b"1\r\nx\r\n")],
)
async def test_a_body_that_drips(head, piece):
    """A body that never stops coming, however little at a time, is a 408 that names its setting, and the end."""
    async with connected(read_s=SOON_S) as (reader, writer):
        writer.write(head)
        said = await said_while(reader, writer, piece)
    assert said.startswith(b"HTTP/1.1 408 ") or said == b"reset"
    assert b"limit.request_read_s" in said or said == b"reset"


async def test_a_body_that_stops():
    """Half a body and then silence is the same 408, told whole."""
    async with connected(read_s=SOON_S) as (reader, writer):
        writer.write(POST + b"content-length: 9\r\n\r\nhalf")
        async with asyncio.timeout(10):
            said = await reader.read(-1)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert said.endswith(b"(limit.request_read_s)")
    assert b"x-should-retry: false\r\nconnection: close\r\n" in said


async def test_a_slow_body_within_the_time():
    """A body in pieces that is whole in time is served, and so is the next request of the connection."""
    async with connected() as (reader, writer):
        writer.write(POST + b"content-length: 4\r\n\r\n")
        for _ in range(4):
            writer.write(b"x")
            await writer.drain()
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        writer.write(GET)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"GET / HTTP/1.1\r\nx: ", b"a" * 100),
        (b"GET /", b"a" * 100),
        (b"GET / HTTP/1.1\r\n", b"x: a\r\n" * 20),
        (CHUNKED + b"1;", b"a" * 100),
        (CHUNKED + b"0\r\n", b"x: a\r\n" * 20),
        (CHUNKED + b"0\r\nx: ", b"a" * 100),
    ],
)
async def test_fields_without_end(head, piece):
    """Endless lines of a head, a chunk's extension or a trailer are refused by size before they are late."""
    async with connected() as (reader, writer):
        writer.write(head)
        said = await said_while(reader, writer, piece, every_s=0.001)
    assert said.startswith(b"HTTP/1.1 431 ") or said == b"reset"


@pytest.mark.parametrize(("size", "status"), [(HEAD_BYTES - 8, b"200"), (HEAD_BYTES - 4, b"431")])
async def test_a_whole_head_at_its_limit(size, status):
    """A head in one read counts to the byte: names and values together."""
    async with connected() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * size + b"\r\n\r\n")
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 " + status)


async def test_answered_before_it_was_read():
    """A request that was answered without being read whole cannot hold the connection by dripping on."""
    async with connected(read_s=SOON_S) as (reader, writer):
        writer.write(CHUNKED.replace(b"/ ", b"/at-once "))
        said = await said_while(reader, writer, b"1\r\nx\r\n")
    assert (said.startswith(b"HTTP/1.1 200 ") and said.count(b"HTTP/1.1") == 1) or said == b"reset"


async def test_empty_lines_hold_nothing():
    """Line ends before the next request end the keep-alive time, not the bound on a head."""
    async with connected(head_s=SOON_S) as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"ok")
        writer.write(b"\r\n")
        async with asyncio.timeout(10):
            assert await reader.read(-1) == b""
