"""Why a stream ended: readers that leave by FIN, by RST, by falling silent, and streams that we end, on real sockets."""

import asyncio
import errno
import json
import socket
import struct

import pytest
import uvloop

import edge.app
from edge.abort_rate import STREAMS, WINDOW_US, AbortRate
from edge.asgi.parting import REASONS, Parting, of_code, of_terminal
from schemas.events import CancelRequested, ErrorEnd, Kind, LogEvent, MessageEnd
from schemas.outcomes import ERRORS
from tests.support.dialects import KEY, QUICK, world
from tests.support.waiting import until

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
ENDLESS = {"ttft_ms": 0, "interval_ms": 2, "tokens": 1_000_000}
VANISHED_MS = 300
PADDING = "x" * 20_000


class Reader:
    """One raw connection that streams an answer."""

    def __init__(self, url):
        host, port = url.removeprefix("http://").split(":")
        self._address = host, int(port)

    async def ask(self, path="/v1/chat/completions", *, stream=True, receive_bytes=None, **simulate):
        """Call and read until the first event; the generation's id."""
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self._address)
        limit = {} if receive_bytes is None else {"limit": receive_bytes}
        self.reader, self.writer = await asyncio.open_connection(sock=sock, **limit)
        asked = {
            "model": "sim-chat",
            "stream": stream,
            "messages": [{"role": "user", "content": "hi"}],
            "simulate": simulate,
        }
        sent = json.dumps(asked).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(sent)}\r\n\r\n"
        self.writer.write(head.encode() + sent)
        if stream:
            self.said = await self.reader.readuntil(b"\nid: ")
            return self.said.lower().split(b"x-generation-id: ")[1].split(b"\r\n")[0].decode()
        return None

    def fin(self):
        """Close our side, the way of a client that reads on until the server has closed its own."""
        self.writer.write_eof()

    def rst(self):
        """Break the connection."""
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.writer.transport.abort()


def counted(service, model="sim-chat"):
    """Give how many streams of a model were counted for each reason."""
    value = service.metrics.registry.get_sample_value
    return {
        reason: value("sse_aborts_total", {"reason": reason, "model": model})
        for reason in REASONS
        if value("sse_aborts_total", {"reason": reason, "model": model})
    }


def permille(service, reason, model="sim-chat"):
    """Give the rate of a reason."""
    labels = {"reason": reason, "model": model}
    return service.metrics.registry.get_sample_value("sse_abort_rate_permille", labels)


async def left(how):
    """Leave a stream, and wait until its edge has said why."""
    async with world() as two:
        service, reader = two.services[0], Reader(two.urls[0])
        generation_id = await reader.ask(**ENDLESS)
        generation = service.registry.get(generation_id)
        getattr(reader, how)()
        await until(lambda: counted(service))
        assert permille(service, *counted(service)) == 1000
        reader.writer.close()
        return counted(service), generation.left_because


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("how", "reason"), [("fin", "client_abort"), ("rst", "network_reset")])
def test_fin_is_the_client_and_rst_the_network(loop, how, reason):
    """A reader that leaves is counted once, by what its socket said; a cancel behind it is told the same."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(left(how)) == ({reason: 1}, reason)


async def silent():
    """Read nothing any more of a stream that goes on, and wait until its edge has given the connection up."""
    async with world() as two:
        service, reader = two.services[0], Reader(two.urls[0])
        await reader.ask(receive_bytes=4096, **ENDLESS, text=PADDING)
        reader.writer.transport.pause_reading()
        await until(lambda: counted(service), 30)
        reader.writer.transport.abort()
        return counted(service)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_takes_nothing_any_more_is_a_timeout(loop, monkeypatch):
    """The kernel gives up a connection that takes nothing for ``VANISHED_MS``, and that is told from a reset."""
    monkeypatch.setattr(edge.app, "VANISHED_MS", VANISHED_MS)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(silent()) == {"timeout": 1}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({}, "client_abort"),
        ({"reason": "policy_violation"}, "server_cancel"),
        ({"source": "cli"}, "server_cancel"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_cancel_is_whose_it_is(asked, reason, stream):
    """A cancel call is its caller's, one of an operator or for a policy is ours; also of a call that asked for no stream."""
    async with world() as two:
        service, reader = two.services[0], Reader(two.urls[0])
        await reader.ask(stream=stream, **ENDLESS)
        await until(service.registry.running)
        (entry,) = service.registry.running()
        await until(lambda: entry.driver.tokens_seen)
        service.registry.cancel(entry.generation.id, CancelRequested(**asked))
        await until(lambda: counted(service))
        assert counted(service) == {reason: 1}
        reader.writer.close()


async def test_a_stream_that_ends_in_its_time_is_no_abort():
    """Neither a whole answer nor a provider's failure counts; both stand in the rate's whole."""
    async with world() as two:
        service = two.services[0]
        for simulate in (QUICK | {"tokens": 3}, {"tokens": 3, "cut_after": 2} | QUICK, QUICK | {"tokens": 3}):
            reader = Reader(two.urls[0])
            await reader.ask(**simulate)
            await reader.reader.readuntil(b"\r\n0\r\n")
            reader.writer.close()
        assert counted(service) == {}
        reader = Reader(two.urls[0])
        await reader.ask(**ENDLESS)
        reader.fin()
        await until(lambda: counted(service))
        assert permille(service, "client_abort") == 250
        reader.writer.close()


async def test_a_time_out_is_a_timeout():
    """A generation that a time-out of ours ended has its streams counted so."""
    async with world(timeout={"request_s": 901}) as two:
        service, reader = two.services[0], Reader(two.urls[0])
        await reader.ask(**ENDLESS)
        (entry,) = service.registry.running()
        entry.driver.interrupt("stall_timeout")
        await until(lambda: counted(service))
        assert counted(service) == {"timeout": 1}
        reader.writer.close()


async def test_a_stop_is_ours():
    """What an edge that stops could not let end was ended by it."""
    async with world() as two:
        service, reader = two.services[0], Reader(two.urls[0])
        await reader.ask(**ENDLESS)
        await service.wind_up()
        await until(lambda: counted(service))
        assert counted(service) == {"server_cancel": 1}
        reader.writer.close()


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ((None,), "client_abort"),
        ((ConnectionResetError(errno.ECONNRESET, "x"),), "network_reset"),
        ((BrokenPipeError(errno.EPIPE, "x"),), "network_reset"),
        ((OSError(errno.EHOSTUNREACH, "x"),), "network_reset"),
        ((OSError(errno.ETIMEDOUT, "x"),), "timeout"),
        ((TimeoutError(),), "timeout"),
        ((ConnectionResetError(errno.ECONNRESET, "x"), None), "network_reset"),
    ],
)
def test_what_a_socket_says(errors, reason):
    """Each error of a socket has one reason, and the first stands; a FIN before a broken write stays a FIN."""
    parting = Parting()
    for error in errors:
        parting.lost(error)
    assert parting.reason == reason
    closed = Parting()
    closed.by_client()
    closed.lost(errors[0])
    assert closed.reason == "client_abort"


def ended_by(**said):
    """Give a terminal."""
    kind = Kind.ERROR if "error" in said else Kind.MESSAGE_END
    return LogEvent(kind=kind, seq=1, generation_id="g", tenant="t", key_id="k", dialect="d", edge_id="e",
                    wall_us=1, elapsed_us=1, **said)  # fmt: skip


def test_every_ending_has_its_reason():
    """A code of every kind and a cancel of every source: time-outs are time-outs, stops are ours, failures none."""
    for code, row in ERRORS.items():
        ours = code in {"edge_lost", "log_unavailable", "erased", "resume_expired", "cancelled"}
        wanted = "server_cancel" if ours else "timeout" if row.finish_reason == "timeout" else None
        assert of_code(code) == of_terminal(ended_by(error=ErrorEnd(code=code, message=""))) == wanted
    for source, reason, wanted in (
        ("api", "user_abort", "client_abort"),
        ("page", "user_abort", "client_abort"),
        ("api", "client_disconnect", "client_abort"),
        ("edge", "client_disconnect", "client_abort"),
        ("api", "policy_violation", "server_cancel"),
        ("forget", "policy_violation", "server_cancel"),
        ("cli", "user_abort", "server_cancel"),
    ):
        cancel = CancelRequested(source=source, reason=reason)
        end = MessageEnd(finish_reason="cancelled", output_hash="", cancel=cancel)
        assert of_terminal(ended_by(message_end=end)) == wanted
    assert of_terminal(ended_by(message_end=MessageEnd(finish_reason="stop", output_hash=""))) is None


def test_the_rate_forgets():
    """It looks at the last thousand streams, and at none that ended more than five minutes ago."""
    rate = AbortRate()
    assert rate.permille("timeout", 0) == 0
    for _ in range(STREAMS):
        rate.add("timeout", 0)
    for _ in range(STREAMS // 4):
        rate.add(None, 1)
    assert rate.permille("timeout", 1) == 750
    assert rate.permille("timeout", WINDOW_US + 1) == 0
    rate.add("timeout", WINDOW_US + 1)
    assert 3 < rate.permille("timeout", WINDOW_US + 1) < 4
    assert rate.permille("timeout", WINDOW_US + 2) == 1000
