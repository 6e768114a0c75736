"""The casebook's provider on the wire: exact bytes, writes, waits and ends, and what it records of the edge."""

import asyncio
import base64
import contextlib
import json
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
import pytest

from tests.casebook.player import Player, unsupported, writes_of

SSE = {"content-type": "text/event-stream"}
BODY = b'data: {"a":1}\n\ndata: [DONE]\n\n'


def read(data, wait_ms=0, **more):
    return {"wait_ms": wait_ms, "bytes": base64.b64encode(data).decode(), "text": "", **more}


def vector(*attempts):
    return {"attempts": list(attempts)}


def attempt(*reads, status=200, close="fin", headers=SSE, **more):
    return {"status": status, "headers": headers, "reads": list(reads), "close": close, **more}


@contextlib.asynccontextmanager
async def asked(player, path="/v1/chat/completions"):
    """A raw connection on which one POST was sent."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", int(player.base_url.split(":")[2].split("/")[0])
    )
    body = json.dumps({"model": "m"}).encode()
    writer.write(b"POST %b HTTP/1.1\r\nHost: p\r\nX-A: b\r\n" % path.encode())
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    yield reader, writer
    writer.close()


async def post(session, player):
    async with session.post(f"{player.base_url}/chat/completions", json={"model": "m"}) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize("framing", ["as_given", "one_read", "byte_by_byte"])
async def test_bytes_arrive_whole_in_every_framing(framing):
    """An HTTP client gets the same body, ended properly, however it is cut."""
    played = vector(attempt(read(BODY[:5]), read(BODY[5:], wait_ms=5), read(b": x\n", repeat=3)))
    async with Player(played, framing) as player, aiohttp.ClientSession() as session:
        assert await post(session, player) == (200, BODY + b": x\n" * 3)
        assert await player.settled()
        [request] = player.requests
        assert (request.body, request.headers["host"][:10]) == ({"model": "m"}, "127.0.0.1:")
        assert request.path == "/v1/chat/completions"
        sizes = [write.size for write in request.writes]
        assert sizes == {"as_given": [5, 24, 12], "one_read": [41], "byte_by_byte": [1] * 41}[framing]
        assert player.aborted_by_edge == [False]
        assert request.received_s <= request.writes[0].at_s <= request.writes[-1].at_s <= request.ended_s


async def test_the_wire_is_exact():
    """Head in its own write, one chunk per read, the end mark; nothing else."""
    played = vector(attempt(read(b"ab"), read(b"c"), headers={"content-type": "text/event-stream", "x": "1"}))
    async with Player(played) as player, asked(player) as (reader, _):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head == (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx: 1\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        assert await reader.readexactly(18) == b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"


async def test_waits_are_kept():
    """A read comes no earlier than its wait; the head does not wait for it."""
    async with (
        Player(vector(attempt(read(b"a"), read(b"b", wait_ms=80)))) as player,
        asked(player) as (reader, _),
    ):
        await reader.readuntil(b"a\r\n")
        first_s = time.monotonic()
        await reader.readuntil(b"b\r\n")
        assert time.monotonic() - first_s >= 0.07
        first, second = player.requests[0].writes
        assert second.at_s - first.at_s >= 0.08


async def test_cut_is_a_fin_without_end_mark():
    """Cut: everything arrives, then the connection ends cleanly, the body does not."""
    async with Player(vector(attempt(read(b"ab"), close="cut"))) as player, asked(player) as (reader, _):
        assert (await reader.read(-1)).endswith(b"2\r\nab\r\n")
        assert player.aborted_by_edge == [False]


async def test_reset_is_a_rst_after_the_bytes():
    """Reset: the bytes arrive, a RST follows 100 ms later."""
    async with Player(vector(attempt(read(b"ab"), close="reset"))) as player, asked(player) as (reader, _):
        await reader.readuntil(b"ab\r\n")
        arrived_s = time.monotonic()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        assert time.monotonic() - arrived_s >= 0.08
        assert await player.settled()
        assert player.aborted_by_edge == [False]


@pytest.mark.parametrize(
    "silent",
    [
        attempt(read(b"a"), close="hang"),
        attempt(status=None, close="hang", headers={}),
        attempt(read(b"a"), read(b"b", wait_ms=60_000)),
    ],
    ids=["hang", "no head", "long wait"],
)
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_an_edge_that_leaves_is_on_record(silent, how):
    """In any silence a closed connection is noticed at once and is the edge's doing."""
    async with Player(vector(silent)) as player, asked(player) as (reader, writer):
        if silent["status"]:
            await reader.readuntil(b"a\r\n")
        deadline_s = time.monotonic() + 2
        while not player.requests:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.005)
        assert not await player.settled(0.02)
        getattr(writer if how == "close" else writer.transport, how)()
        assert await player.settled()
        assert player.aborted_by_edge == [True]


async def test_an_edge_that_leaves_a_large_body_is_on_record():
    """A client that closes while megabytes are under way has aborted."""
    played = vector(attempt(read(b"x", repeat=30_000_000), read(BODY)))
    async with Player(played) as player, asked(player) as (reader, writer):
        await reader.readuntil(b"xxx")
        writer.transport.abort()
        assert await player.settled()
        assert player.aborted_by_edge == [True]


async def test_attempts_in_order_on_one_connection():
    """The i-th POST gets the i-th attempt, also over a kept-alive connection; one too many is answered and marked."""
    played = vector(attempt(status=503, headers={"content-type": "application/json"}), attempt(read(BODY)))
    async with Player(played) as player, aiohttp.ClientSession() as session:
        assert await post(session, player) == (503, b"")
        async with session.get(f"{player.base_url}/models") as models:
            assert models.status == 200
        assert await post(session, player) == (200, BODY)
        assert (await post(session, player))[0] == 500
        assert [request.unexpected for request in player.requests] == [False, False, True]
        assert player.aborted_by_edge == [False] * 3


async def test_http_date():
    """A header ``@http-date+Ns`` is the date N seconds after it was sent."""
    played = vector(attempt(status=429, headers={"retry-after": "@http-date+90s"}))
    async with Player(played) as player, aiohttp.ClientSession() as session:
        async with session.post(f"{player.base_url}/x", json={}) as answer:
            date = parsedate_to_datetime(answer.headers["retry-after"])
        assert 85 <= (date - datetime.now(UTC)).total_seconds() <= 90


def test_writes_of_empty_reads():
    """A read without bytes is a wait only, and an attempt without reads writes nothing."""
    waiting = attempt(read(b"", wait_ms=5), read(b"ab"))
    assert list(writes_of(waiting, "as_given")) == [(0.005, b""), (0, b"ab")]
    assert list(writes_of(waiting, "byte_by_byte")) == [(0.005, b""), (0, b"a"), (0, b"b")]
    assert list(writes_of(attempt(), "one_read")) == [(0, b"")]
    with pytest.raises(ValueError, match="framing"):
        list(writes_of(waiting, "backwards"))


def test_unsupported():
    """HTTP/2 is read off the vector, and refused by the player itself."""
    h2 = vector(attempt(close="rst_stream", http="2", h2_error="CANCEL"))
    assert unsupported(h2) == "HTTP/2 towards the provider"
    assert unsupported(vector(attempt(http="1.1"))) is None
    with pytest.raises(ValueError, match="HTTP/2"):
        Player(h2)
