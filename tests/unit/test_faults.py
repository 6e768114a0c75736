"""The fault proxy between a client and a server: what each rule does to the bytes, and that none is lost after it."""

import asyncio
import contextlib
import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.faults import FaultProxy


@contextlib.asynccontextmanager
async def proxied(serve):
    """A server with this handler behind a proxy."""

    async def handle(reader, writer):
        with contextlib.suppress(ConnectionError):  # resets are what these tests are about
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server, FaultProxy(*server.sockets[0].getsockname()) as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def connected(proxy):
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    yield reader, writer
    writer.close()


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def counting(reader, writer):
    """Send numbered lines until the client goes."""
    for number in itertools.count():
        writer.write(b"%09d\n" % number)
        await writer.drain()
        await asyncio.sleep(0.001)


async def until(condition, within_s=2.0):
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come"
        await asyncio.sleep(0.005)


async def silent(reader, seconds=0.1):
    """Nothing arrives for so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await reader.read(1)
            return False
    return True


async def test_forwards_bytes_and_ends():
    """Without rules the proxy is not seen: bytes and half-closes pass both ways, then the connection is gone."""
    async with proxied(echo) as proxy, connected(proxy) as (reader, writer):
        payload = bytes(range(256)) * 4000
        writer.write(payload)
        writer.write_eof()
        assert await reader.read(-1) == payload
        assert proxy.bytes_to_client == len(payload)
        await until(lambda: proxy.open_connections == 0)
        assert proxy.accepted == 1


@given(n_bytes=st.integers(0, 300))
@settings(max_examples=15)
def test_cut_after_exactly_n_bytes(n_bytes):
    """Exactly n bytes arrive, then a clean end; the rule is spent, so the next connection is whole."""

    async def body():
        async with proxied(counting) as proxy:
            proxy.cut_after(n_bytes)
            async with connected(proxy) as (reader, _):
                assert len(await reader.read(-1)) == n_bytes
            async with connected(proxy) as (reader, _):
                assert len(await reader.readexactly(400)) == 400

    asyncio.run(body())


async def test_cut_counts_from_the_call():
    """On an open connection the count begins when the rule is set, not at the connection's start."""
    async with proxied(echo) as proxy, connected(proxy) as (reader, writer):
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        proxy.cut_after(2)
        writer.write(b"after")
        assert await reader.read(-1) == b"af"


async def test_cut_reaches_the_server():
    """The server sees its connection end as well."""
    gone = asyncio.Event()

    async def serve(reader, writer):
        writer.write(b"hello")
        await reader.read()
        gone.set()

    async with proxied(serve) as proxy:
        proxy.cut_after(3)
        async with connected(proxy) as (reader, _):
            assert await reader.read(-1) == b"hel"
            async with asyncio.timeout(2):
                await gone.wait()


async def test_reset_now():
    """Both sides get a RST, and a later connection is served."""
    server_saw = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        writer.write(b"x")
        try:
            await reader.read()
        except ConnectionResetError as error:
            if not server_saw.done():
                server_saw.set_result(type(error))

    async with proxied(serve) as proxy:
        async with connected(proxy) as (reader, _):
            assert await reader.readexactly(1) == b"x"
            proxy.reset_now()
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            async with asyncio.timeout(2):
                assert await server_saw is ConnectionResetError
        async with connected(proxy) as (reader, _):
            assert await reader.readexactly(1) == b"x"


async def test_a_reset_passes_through():
    """A client that resets is a reset for the server too, not an end."""
    server_saw = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        writer.write(b"x")
        try:
            server_saw.set_result(await reader.read())
        except ConnectionResetError as error:
            server_saw.set_result(type(error))

    async with (
        proxied(serve) as proxy,
        FaultProxy(proxy.host, proxy.port) as outer,
        connected(outer) as (reader, _),
    ):
        assert await reader.readexactly(1) == b"x"
        outer.reset_now()
        async with asyncio.timeout(2):
            assert await server_saw is ConnectionResetError


async def test_half_open_keeps_sockets_and_loses_nothing():
    """Neither bytes nor ends pass, on open and new connections; after heal all of it arrives in order."""
    async with proxied(echo) as proxy, connected(proxy) as (reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        proxy.half_open()
        writer.write(b"b")
        writer.write_eof()
        async with connected(proxy) as (new_reader, new_writer):
            new_writer.write(b"n")
            assert await silent(reader)
            assert await silent(new_reader)
            assert proxy.open_connections == 2
            proxy.heal()
            assert await reader.read(-1) == b"b"
            assert await new_reader.readexactly(1) == b"n"


async def test_delay_is_a_latency_and_not_a_rate():
    """Ten lines sent at once arrive together, one delay later; heal lets go what still waits."""
    async with proxied(echo) as proxy, connected(proxy) as (reader, writer):
        proxy.delay(60)
        started_s = time.monotonic()
        for number in range(10):
            writer.write(b"%d" % number)
            await asyncio.sleep(0)
        assert await reader.readexactly(10) == b"0123456789"
        assert 0.12 <= time.monotonic() - started_s < 0.5  # one delay each way, not ten
        proxy.delay(3_600_000)
        writer.write(b"x")
        assert await silent(reader, 0.05)
        proxy.heal()
        async with asyncio.timeout(2):
            assert await reader.readexactly(1) == b"x"


async def test_throttle():
    """The bytes of a burst arrive at the set rate, and in full."""
    async with proxied(echo) as proxy, connected(proxy) as (reader, writer):
        proxy.throttle(20_000)
        started_s = time.monotonic()
        writer.write(b"x" * 6_000)
        assert len(await reader.readexactly(6_000)) == 6_000
        assert 0.25 <= time.monotonic() - started_s < 2
        with pytest.raises(ValueError, match="half_open"):
            proxy.throttle(0)


async def test_refuse():
    """New connections are reset, open ones go on, heal ends it."""
    async with proxied(echo) as proxy, connected(proxy) as (reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        proxy.refuse()
        async with connected(proxy) as (refused, _):
            with pytest.raises(ConnectionResetError):
                await refused.read(1)
        writer.write(b"b")
        assert await reader.readexactly(1) == b"b"
        proxy.heal()
        async with connected(proxy) as (new_reader, new_writer):
            new_writer.write(b"c")
            assert await new_reader.readexactly(1) == b"c"


async def test_target_away():
    """Where nothing listens behind the proxy the client is reset."""
    async with proxied(echo) as gone:
        host, port = gone._target
    async with FaultProxy(host, port) as proxy, connected(proxy) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await reader.read(1)


@given(rules=st.lists(st.sampled_from(["delay", "throttle", "half_open", "heal"]), max_size=6))
@settings(max_examples=10)
def test_no_byte_is_lost_under_changing_rules(rules):
    """Whatever rules come and go while a stream runs, its bytes arrive whole and in order."""
    lines = b"".join(b"%09d\n" % number for number in range(2000))

    async def body():
        async with proxied(echo) as proxy, connected(proxy) as (reader, writer):
            received = asyncio.create_task(reader.read(-1))
            call = {
                "delay": lambda: proxy.delay(5),
                "throttle": lambda: proxy.throttle(1_000_000),
                "half_open": proxy.half_open,
                "heal": proxy.heal,
            }
            step = len(lines) // (len(rules) + 1) + 1
            for index, start in enumerate(range(0, len(lines), step)):
                writer.write(lines[start : start + step])
                await asyncio.sleep(0.002)
                if index < len(rules):
                    call[rules[index]]()
            writer.write_eof()
            proxy.heal()
            reader_got = b""
            async with asyncio.timeout(5):
                reader_got = await received
            assert reader_got == lines

    asyncio.run(body())
