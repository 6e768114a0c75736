"""A provider that compresses although it was not asked to, over a real socket."""

import asyncio
import zlib
from contextlib import asynccontextmanager

import brotli
import pytest
import zstandard

from edge.clock import system_clock
from edge.provider.upstream import Upstream
from schemas.settings import Provider
from tests.support.running import RunningEdge, ends_of
from tests.support.upstream import DONE, chunk, finish


class Flushing:
    """Packs so that what was packed can be read at once."""

    def __init__(self, name):
        if name == "br":
            packer = brotli.Compressor()
            self._pack, self._flush = packer.process, packer.flush
        elif name == "zstd":
            zstd = zstandard.ZstdCompressor().compressobj()
            self._pack, self._flush = zstd.compress, lambda: zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        else:
            packer = zlib.compressobj(wbits=zlib.MAX_WBITS + (16 if name == "gzip" else 0))
            self._pack, self._flush = packer.compress, lambda: packer.flush(zlib.Z_SYNC_FLUSH)

    def __call__(self, data):
        """Give a flushed block."""
        return self._pack(data) + self._flush()


@asynccontextmanager
async def provider(encoding, blocks, go_on=None, status="200 OK"):
    """A server whose answer is these blocks; the blocks after the first wait for ``go_on``."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\ncontent-encoding: {encoding}\r\n"
        writer.write(head.encode() + b"connection: close\r\n\r\n" + blocks[0])
        if go_on is not None:
            await go_on.wait()
        writer.write(b"".join(blocks[1:]))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Provider(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")


async def ended(target):
    """Run one generation in front of it, without a second try: its records."""
    providers = {"one": target, "two": target}
    async with RunningEdge(
        Upstream(1), system_clock(), providers=providers, retry={"max_attempts": 1}
    ) as edge:
        return await edge.over(await edge.begin())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_a_flushed_block_is_there_at_once(encoding):
    """What the provider flushed is read before it sends anything more."""
    pack, go_on = Flushing(encoding), asyncio.Event()
    upstream = Upstream(1)
    await upstream.start()
    try:
        async with (
            provider(encoding, [pack(chunk("a")), pack(DONE)], go_on) as target,
            upstream.call(target, "/x", {}, {}) as answer,
        ):
            assert await asyncio.wait_for(answer.read(), 5) == chunk("a")
            go_on.set()
            assert await asyncio.wait_for(answer.read(), 5) == DONE
            assert await answer.read() == b""
    finally:
        await upstream.stop()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity"])
async def test_a_compressed_answer_is_an_answer(encoding):
    """A whole generation of a compressed stream ends properly, with the provider's own bytes on record."""
    pack = (lambda data: data) if encoding == "identity" else Flushing(encoding)
    async with provider(encoding, [pack(chunk("Hel")), pack(chunk("lo") + finish() + DONE)]) as target:
        records = await ended(target)
    said = [part.text for event in records for part in event.canonical if part.text]
    assert (said, ends_of(records)[-1].error_code) == (["Hel", "lo"], None)


@pytest.mark.parametrize(
    ("encoding", "blocks", "said"),
    [
        ("gzip", [b"data: {}\n\n", b"x" * 99], "not in its content encoding"),
        ("br", [b"\xff" * 99], "not in its content encoding"),
        ("rot13", [chunk("a"), DONE], "not known"),
    ],
)
async def test_an_encoding_that_cannot_be_read(encoding, blocks, said):
    """A broken encoding and one that nobody knows are errors of the provider's protocol, never content."""
    async with provider(encoding, blocks) as target:
        records = await ended(target)
    assert ends_of(records)[-1].error_code == records[-1].error.code == "upstream_protocol"
    assert said in records[-1].error.message
    assert not [event for event in records if event.canonical]


async def test_a_failures_own_status_counts():
    """An error whose body cannot be read still says what its status says."""
    async with provider("rot13", [b"?"], status="429 Too Many") as target:
        records = await ended(target)
    assert records[-1].error.code == "rate_limited"


async def test_a_cut_inside_the_encoding():
    """A compressed stream that stops in the middle is a cut stream, with what came before it delivered."""
    async with provider("gzip", [Flushing("gzip")(chunk("Hel"))]) as target:
        records = await ended(target)
    assert records[-1].error.code == "incomplete_upstream"
    assert [part.text for event in records for part in event.canonical if part.text] == ["Hel"]
