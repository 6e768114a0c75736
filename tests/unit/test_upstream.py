"""The provider's HTTP: what a call that failed may say."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from edge.provider.upstream import TURN_BYTES, Upstream, UpstreamFailed, turn_of
from schemas.events import Dispatch
from schemas.settings import Provider
from tests.support.waiting import until

KEY = "sk-of-the-platform"


@asynccontextmanager
async def provider(answer):
    """A server that reads a request's head and answers these bytes, whatever they are."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def failure(port):
    """Call and read to the end; how that failed."""
    upstream = Upstream(1)
    await upstream.start()
    target = Provider(base_url=f"http://127.0.0.1:{port}/v1")

    async def read_all():
        async with upstream.call(target, "/x", {}, {"authorization": f"Bearer {KEY}"}) as answer:
            while await answer.read():
                continue

    try:
        with pytest.raises(UpstreamFailed) as failed:
            await read_all()
    finally:
        await upstream.stop()
    return failed.value


@pytest.mark.parametrize(
    ("answer", "dispatch"),
    [
        (b"", Dispatch.SENT),
        (b"no HTTP at all\r\n\r\n", Dispatch.SENT),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", Dispatch.SENT),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", Dispatch.ACCEPTED),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", Dispatch.ACCEPTED),
        (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\nnot gzip!",
            Dispatch.ACCEPTED,
        ),
    ],
)
async def test_a_failure_says_neither_our_key_nor_where_the_provider_is(answer, dispatch):
    """What goes to the client and into the log has no header and no address of ours, and is short."""
    async with provider(answer) as port:
        failed = await failure(port)
    assert failed.dispatch in (dispatch, Dispatch.SENT)
    assert not [word for word in (KEY, "headers", "127.0.0.1", str(port)) if word in str(failed)]
    assert len(str(failed)) < 300


async def test_nobody_listens():
    """A refused connection costs nothing, and says why in the system's words."""
    async with provider(b"") as port:
        pass
    failed = await failure(port)
    assert failed.dispatch is Dispatch.NOT_CONNECTED
    assert str(port) not in str(failed)
    assert "Connection refused" in str(failed)


FRAME = b"data: " + b"x" * 150 + b"\n\n"


@pytest.mark.parametrize("data", [b"", b"x", FRAME, FRAME * 500, b"x" * 100_000, FRAME * 60 + b"x" * 99_999])
def test_what_came_at_once_is_read_in_turns(data):
    """Nothing is lost or reordered; a turn is bounded, and ends where a frame ends if one does."""
    turns, rest = [], data
    while rest:
        turn, rest = turn_of(rest)
        turns.append(turn)
    assert b"".join(turns) == data
    assert all(0 < len(turn) <= TURN_BYTES for turn in turns)
    assert all(turn.endswith(b"\n\n") or b"\n\n" not in turn for turn in turns[:-1])


async def test_a_burst_leaves_the_loop_to_others():
    """Between the reads of a provider that sent everything at once, others have their turn."""
    others = 0

    async def other():
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(FRAME) * 800)
    async with provider(head + FRAME * 800) as port:
        upstream = Upstream(1)
        await upstream.start()
        target = Provider(base_url=f"http://127.0.0.1:{port}/v1")
        reads = []
        async with upstream.call(target, "/x", {}, {}) as answer:
            await until(
                lambda: answer._response.content.total_bytes >= 2 * TURN_BYTES
            )  # more than one turn is there
            task = asyncio.ensure_future(other())
            while piece := await answer.read():
                reads.append(len(piece))
            task.cancel()
        await upstream.stop()
    assert sum(reads) == len(FRAME) * 800
    assert max(reads) <= TURN_BYTES
    assert others >= len(reads) - 3
