"""Plays the provider of one ``upstream`` vector: exact bytes, one TCP write per read, exact ends, on plain sockets.

The i-th POST gets the vector's i-th attempt. No HTTP library stands between the vector and the wire: HTTP/1.1, chunked,
one chunk per write, TCP_NODELAY. What the edge did is on record in ``Player.requests``. Before it: ``values`` (how a
vector is read). After it: ``player_http2``, and ``form_upstream`` compares.
"""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any, NamedTuple, Self

from compose.faults import reset_transport

RESET_DELAY_S = 0.1  # by the casebook: RST 100 ms after the last read
HTTP_DATE = "@http-date+"


class Write(NamedTuple):
    """A read of the vector as it went out: CLOCK_MONOTONIC seconds, bytes of body."""

    at_s: float
    size: int


@dataclass(slots=True)
class Request:
    """One POST of the edge and what became of it. Instants are CLOCK_MONOTONIC seconds (``time.monotonic``)."""

    path: str
    headers: dict[str, str]  # names in lower case
    body: Any  # parsed JSON
    received_s: float
    writes: list[Write] = field(default_factory=list)
    ended_s: float | None = None  # None: still open
    aborted_by_edge: bool = False  # the edge closed the connection before the attempt's own end
    unexpected: bool = False  # the vector has no attempt for it


def unsupported(vector: dict[str, Any]) -> str | None:
    """What the player of HTTP/1.1 cannot play of a vector, or None."""
    if any(str(a.get("http", "1.1")) == "2" or a["close"] == "rst_stream" for a in vector["attempts"]):
        return "HTTP/2 towards the provider"
    return None


def writes_of(attempt: dict[str, Any], framing: str) -> Iterator[tuple[float, bytes]]:
    """(seconds to wait, bytes to write) of an attempt in a framing; empty bytes are a wait only."""
    reads = (
        (r["wait_ms"] / 1000, base64.b64decode(r["bytes"]) * r.get("repeat", 1)) for r in attempt["reads"]
    )
    if framing == "as_given":
        yield from reads
    elif framing == "one_read":
        yield 0.0, b"".join(data for _, data in reads)
    elif framing == "byte_by_byte":
        for wait_s, data in reads:
            yield wait_s, data[:1]
            yield from ((0.0, data[i : i + 1]) for i in range(1, len(data)))
    else:
        raise ValueError(f"framing {framing!r} is not of the casebook")


class Player:
    """``async with Player(vector, framing) as player: … player.base_url … player.requests``.

    Args:
        vector: of form upstream (only ``attempts`` is looked at).
        framing: as_given, one_read or byte_by_byte.

    """

    refused = staticmethod(unsupported)

    def __init__(self, vector: dict[str, Any], framing: str = "as_given") -> None:
        if reason := self.refused(vector):
            raise ValueError(reason)
        self.requests: list[Request] = []
        self._attempts: list[dict[str, Any]] = vector["attempts"]
        self._framing = framing
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._open_requests = 0
        self._settled = asyncio.Event()

    @property
    def base_url(self) -> str:
        """What a provider's ``base_url`` is configured with."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def aborted_by_edge(self) -> list[bool]:
        """For each request, whether the edge closed its connection before the attempt's end."""
        return [request.aborted_by_edge for request in self.requests]

    async def settled(self, within_s: float = 2.0) -> bool:
        """Wait until no request is open any more; False if one still is. Read the records after it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        return self._settled.is_set()

    async def left(self) -> None:
        """Wait until the edge has closed every connection; what it did not read is on record then."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> Self:
        self._settled.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=256)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        connection = _Connection(reader, writer)
        try:
            while (head := await connection.read_head()) is not None:
                if not await self._serve(connection, *head):
                    break
        except ConnectionError:
            # A reset behind the attempt's last write: the edge closed without having read it all.
            if connection.last is not None:
                connection.last.aborted_by_edge = True
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            # The edge left between or within requests (on record where it matters), or the player ends.
            reset_transport(writer.transport)
        finally:
            self._tasks.discard(task)
            await connection.close()

    async def _serve(
        self, connection: "_Connection", method: str, path: str, headers: dict[str, str]
    ) -> bool:
        """Answer one request; whether the connection stays open."""
        body = await connection.read_body(headers)
        if method != "POST":
            connection.write_whole(200, b'{"object":"list","data":[]}')
            return True
        index = len(self.requests)
        request = Request(
            path, headers, json.loads(body), time.monotonic(), unexpected=index >= len(self._attempts)
        )
        self.requests.append(request)
        if request.unexpected:
            request.ended_s = time.monotonic()
            connection.write_whole(500, b'{"error":{"message":"the vector has no attempt for this request"}}')
            return True
        self._open_requests += 1
        self._settled.clear()
        connection.last = request
        connection.watch()
        try:
            return await self._play(self._attempts[index], connection, request)
        except (ConnectionError, Gone):
            request.aborted_by_edge = True
            return False
        finally:
            await connection.unwatch()
            request.ended_s = time.monotonic()
            self._open_requests -= 1
            if not self._open_requests:
                self._settled.set()

    async def _play(self, attempt: dict[str, Any], connection: "_Connection", request: Request) -> bool:
        """Write the attempt; raises Gone or ConnectionError where the edge leaves before its end."""
        if attempt["status"] is None:
            await connection.pause(None)
        connection.write_head(attempt["status"], attempt["headers"])
        for wait_s, data in writes_of(attempt, self._framing):
            await connection.pause(wait_s)
            if data:
                request.writes.append(Write(time.monotonic(), len(data)))
                await connection.write_piece(data)
        match attempt["close"]:
            case "fin":
                return connection.write_end()
            case "hang":
                await connection.pause(None)
            case "reset":
                await connection.pause(RESET_DELAY_S)
                connection.reset()
        return False  # cut: closed without the end mark


class Gone(Exception):
    """The edge closed the connection."""


class _Connection:
    """HTTP/1.1 by hand on one connection, with an eye on whether the edge is still there."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer  # asyncio sets TCP_NODELAY on every TCP transport
        self._gone: asyncio.Task[bytes] | None = None
        self.last: Request | None = None
        self._early = b""  # the next request's first byte, where it came before this one's end was noted
        self._chunked = True

    async def read_head(self) -> tuple[str, str, dict[str, str]] | None:
        """Method, path, headers of the next request; None at the end of the connection."""
        try:
            head = self._early + await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as end:
            if end.partial or self._early:
                raise
            return None
        self._early = b""
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def read_body(self, headers: dict[str, str]) -> bytes:
        """The request's body, with a length or chunked."""
        if "chunked" not in headers.get("transfer-encoding", ""):
            return await self._reader.readexactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int((await self._reader.readline()).split(b";")[0], 16):
            body += (await self._reader.readexactly(size + 2))[:size]
        await self._reader.readline()
        return body

    def watch(self) -> None:
        """From now on ``pause`` and ``write_piece`` raise Gone once the edge has left."""
        self._gone = asyncio.create_task(self._reader.read(1))

    async def unwatch(self) -> None:
        """End the watch; a byte of a next request is kept for it."""
        if self._gone is not None:
            self._gone.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                self._early += await self._gone
            self._gone = None

    async def pause(self, seconds: float | None) -> None:
        """Wait (None: for ever), and at least let others run."""
        await asyncio.sleep(0)
        if seconds is None or seconds > 0:
            await asyncio.wait({self._gone}, timeout=seconds)
        if self._gone.done() and not self._gone.result():  # result() raises where it was a reset
            raise Gone

    def write_head(self, status: int, headers: dict[str, str]) -> None:
        """Status line and headers in one write; ``@http-date+Ns`` becomes a date."""
        self._chunked = "content-length" not in headers
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {sent_now(value)}" for name, value in headers.items()]
        if self._chunked:
            lines.append("transfer-encoding: chunked")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def write_piece(self, data: bytes) -> None:
        """One write of the vector: one TCP write, one HTTP chunk."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        await self._writer.drain()

    def write_end(self) -> bool:
        """The body's end mark; the connection stays open."""
        if self._chunked:
            self._writer.write(b"0\r\n\r\n")
        return True

    def write_whole(self, status: int, body: bytes) -> None:
        """A JSON answer that is not the vector's."""
        self.write_head(status, {"content-type": "application/json", "content-length": str(len(body))})
        self._writer.write(body)

    def reset(self) -> None:
        """RST."""
        reset_transport(self._writer.transport)

    async def close(self) -> None:
        """FIN, where the connection is still open."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def sent_now(value: str) -> str:
    """A header's value as it goes out now."""
    if not value.startswith(HTTP_DATE):
        return value
    later = timedelta(seconds=int(value.removeprefix(HTTP_DATE).removesuffix("s")))
    return format_datetime(datetime.now(UTC) + later, usegmt=True)
