"""Readers that leave a running stream, each in a way of its own, and what must be on record of it then.

Before: ``tests.support.front``.
"""

import asyncio
import socket
import struct
import time

from h2.errors import ErrorCodes

from schemas.events import Kind, Outcome
from tests.support.front import CHAT, asked, so_many
from tests.support.nginx import NAME
from tests.support.processes import HEADERS, TWENTIETH
from tests.support.waiting import until

GRACE_S = float(TWENTIETH["TOKENTRAIL_DISCONNECT__GRACE_S"])
POLICIES = ("cancel", "grace", "continue")
WAYS = ("FIN", "RST", "connection", ErrorCodes.CANCEL, ErrorCodes.NO_ERROR, ErrorCodes.INTERNAL_ERROR)
"""How a reader leaves: a plain connection to the edge, the one through nginx, RST_STREAM of one of its streams."""


class Direct:
    """A reader on a plain TCP connection to an edge itself, which leaves by FIN or by RST."""

    def __init__(self, front, how):
        self._port, self._how = front.edges[0].port, how
        self.body = b""

    async def post(self, sent, headers):
        """Send a call and read its first frames; the generation's id."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        fields = {"host": NAME, "content-length": str(len(sent)), **HEADERS, **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._writer.write(f"POST {CHAT} HTTP/1.1\r\n{head}\r\n".encode() + sent)
        while self.body.count(b"\nid: ") <= 5:
            data = await self._reader.read(65_536)
            assert data, self.body
            self.body += data
        head = self.body.split(b"\r\n\r\n")[0].decode().lower()
        return head.split("x-generation-id: ")[1].split("\r\n")[0]

    def leave(self):
        """Go."""
        if self._how == "RST":
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        else:
            self._writer.close()


class Through:
    """A reader of one stream of a connection through nginx, which leaves by RST_STREAM or with the whole connection."""

    def __init__(self, connection, how):
        self._connection, self._how = connection, how

    async def post(self, sent, headers):
        """Send a call and read its first frames; the generation's id."""
        self._stream = self._connection.post(CHAT, sent, headers)
        await self._stream.until(so_many(5))
        return self._stream.headers["x-generation-id"]

    def leave(self):
        """Go."""
        if self._how == "connection":
            self._connection.abort()
        else:
            self._stream.leave(self._how)


async def left_by(front, how):
    """Leave a generation of each policy in one way, beside one that is read to its end on that connection: id by policy."""
    async with front.http2() as connection, front.http2() as other:
        beside = (other if how == "connection" else connection).post(CHAT, asked(tokens=120, interval_ms=20))
        plain = how in ("FIN", "RST")
        readers = [Direct(front, how) if plain else Through(connection, how) for _ in POLICIES]
        tags = [f"{policy}-{how}" for policy in POLICIES]
        tokens = [130 if policy == "continue" else 20_000 for policy in POLICIES]
        ids = await asyncio.gather(
            *(
                reader.post(asked(tag, tokens=count, interval_ms=20), {"x-tokentrail-on-disconnect": policy})
                for reader, policy, tag, count in zip(readers, POLICIES, tags, tokens, strict=True)
            )
        )
        at_once, graced, continued = map(front.call_of, tags)
        left_s = time.monotonic()
        for reader in readers:
            reader.leave()
        await until(lambda: at_once.finished_s and graced.finished_s)
        assert at_once.aborted_by_client, how
        assert graced.aborted_by_client, how
        assert at_once.finished_s - left_s < GRACE_S, how
        assert GRACE_S <= graced.finished_s - left_s < 3 * GRACE_S, how
        assert b"[DONE]" in await beside.whole()
        await until(lambda: continued.finished_s)
        assert continued.end == "done", how
        return dict(zip(POLICIES, ids, strict=True))


async def left_in_silence(front):
    """Leave what says nothing at the moment, its policy ``cancel``: how long each call of the provider lived on, in seconds.

    One of them before its head, one that asked for no stream, and three right behind a heartbeat, so that the next is far.
    """
    policy, silence = {"x-tokentrail-on-disconnect": "cancel"}, [[5, 60_000]]
    async with front.http2() as connection:
        unsaid = connection.post(CHAT, asked("unsaid", silent=True), policy)
        whole = connection.post(CHAT, asked("whole", stalls=silence, stream=False), policy)
        stalled = [
            connection.post(CHAT, asked(f"stalled-{n}", ttft_ms=0, stalls=silence), policy) for n in range(3)
        ]
        left_s = {}

        async def leave(tag, stream):
            await until(lambda: front.call_of(tag))
            left_s[tag] = time.monotonic()
            stream.leave()

        async def leave_behind_a_heartbeat(tag, stream):
            await stream.until(so_many(5))
            await stream.until(lambda stream: stream.pieces[-1].data.startswith(b":"))
            await leave(tag, stream)

        await asyncio.gather(
            leave("unsaid", unsaid),
            leave("whole", whole),
            *(leave_behind_a_heartbeat(f"stalled-{n}", stream) for n, stream in enumerate(stalled)),
        )
        calls = {tag: front.call_of(tag) for tag in left_s}
        await until(lambda: all(call.finished_s for call in calls.values()))
    assert all(call.aborted_by_client for call in calls.values())
    return {tag: call.finished_s - left_s[tag] for tag, call in calls.items()}


def on_record(policy, how, records):
    """Hold the log to what became of a generation whose only reader was lost in the middle."""
    (left,) = [event for event in records if event.kind is Kind.CLIENT_DETACHED]
    # who closes a socket with bytes unread resets it, a reader as a proxy
    assert left.client.reason in {"network_reset", "network_reset" if how == "RST" else "client_abort"}
    assert left.client.last_seq >= 5
    end = records[-1]
    if policy == "continue":
        assert (end.kind, end.message_end.finish_reason, end.message_end.cancel) == (
            Kind.MESSAGE_END,
            "stop",
            None,
        )
        assert end.elapsed_us > left.elapsed_us
        return
    (noted,) = [event for event in records if event.kind is Kind.CANCEL_REQUESTED]
    (attempt,) = [event.attempt_end for event in records if event.kind is Kind.ATTEMPT_END]
    assert (end.kind, end.message_end.finish_reason) == (Kind.MESSAGE_END, "cancelled")
    for cancel in (noted.cancel, end.message_end.cancel):
        said = (cancel.mode, cancel.reason, cancel.source, cancel.policy, cancel.stage.value)
        assert said == ("hard", "client_disconnect", "edge", policy, "decode")
        assert cancel.tokens_generated > 0
    assert 0 < end.message_end.tokens_delivered <= end.message_end.tokens_generated
    assert (attempt.outcome, attempt.error_code) == (Outcome.CANCELLED, "cancelled")
    assert (end.message_end.cancel.last_seq, end.message_end.cancel.disconnect_reason) == (
        left.client.last_seq,
        left.client.reason,
    )
    given_back = end.message_end.released
    assert noted.cancel.at_us <= given_back.upstream_socket_us <= end.elapsed_us
    assert given_back.kv_cache_us == given_back.upstream_socket_us
    waited_s = (noted.cancel.at_us - left.elapsed_us) / 1e6
    assert waited_s < GRACE_S if policy == "cancel" else GRACE_S - 0.01 <= waited_s < 3 * GRACE_S
