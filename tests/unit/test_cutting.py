"""The cutting proxy does what tests of cuts rely on."""

import asyncio

import pytest

from tests.support.cutting import Cut, CuttingProxy

SAID = bytes(range(256)) * 40


async def _says(reader, writer):
    await reader.readline()
    writer.write(SAID)
    await writer.drain()
    if await reader.read() == b"":
        writer.close()


@pytest.fixture
async def server():
    """A server that answers a line with 10 KB and then waits for the client's end."""
    async with await asyncio.start_server(_says, "127.0.0.1", 0) as running:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"


async def connect(proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    writer.write(b"hello\n")
    return reader, writer


async def test_what_is_not_cut_arrives_whole(server):
    """Without a cut every byte is forwarded, and the client's end reaches the server."""
    async with CuttingProxy(server) as proxy:
        reader, writer = await connect(proxy)
        assert await reader.readexactly(len(SAID)) == SAID
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        assert (proxy.connections, proxy.cuts) == (1, 0)


@pytest.mark.parametrize("after_bytes", [0, 1, 777, len(SAID) - 1])
async def test_fin_comes_behind_exactly_so_many_bytes(server, after_bytes):
    """A FIN gives the client the bytes before the cut and then an end of file."""
    async with CuttingProxy(server, lambda: Cut(after_bytes, "fin")) as proxy:
        reader, writer = await connect(proxy)
        assert await asyncio.wait_for(reader.read(), 5) == SAID[:after_bytes]
        writer.close()
        assert proxy.cuts == 1


async def test_rst_is_a_reset(server):
    """An RST is seen as one, and not as a proper end."""
    async with CuttingProxy(server, lambda: Cut(500, "rst")) as proxy:
        reader, writer = await connect(proxy)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.readexactly(len(SAID)), 5)
        writer.close()


async def test_a_hang_says_nothing_until_the_client_leaves(server):
    """After a hang the socket stays open in silence."""
    async with CuttingProxy(server, lambda: Cut(500, "hang", delay_s=0.001)) as proxy:
        reader, writer = await connect(proxy)
        assert await asyncio.wait_for(reader.readexactly(500), 5) == SAID[:500]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        writer.close()


async def test_all_connections_can_be_cut_at_once_and_refused(server):
    """`sever` cuts what is open now, `refusing` what comes next."""
    async with CuttingProxy(server) as proxy:
        reader, writer = await connect(proxy)
        await reader.readexactly(len(SAID))
        assert proxy.sever() == 1
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5)
        writer.close()
        proxy.refusing = True
        reader, writer = await connect(proxy)
        with pytest.raises(OSError, match="reset"):
            await asyncio.wait_for(reader.read(), 5)
        writer.close()
