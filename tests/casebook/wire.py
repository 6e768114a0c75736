"""What a client of the casebook sees: HTTP/1.1 by hand with arrival times, and a strict WHATWG parser of its own.

Nothing of the product's is used here, so that a fault in the product's parser cannot hide itself. Before it: a vector.
After it: ``form_upstream`` and ``form_resume`` compare.
"""

import asyncio
import contextlib
import re
import time
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
READ_WITHIN_S = 20.0
"""No vector is silent so long at the client; a read beyond it is a stream that was never ended."""


class Event(NamedTuple):
    """One dispatched event. ``id`` is that of its own frame, None without an id line; ``at_s`` is the clock's."""

    name: str
    data: str
    id: str | None
    at_s: float


class StrictParser:
    """WHATWG HTML 9.2.6 to the letter: what the end of the stream leaves unclosed is dropped."""

    def __init__(self):
        self.events = []
        self.comments = []  # (at_s, text)
        self.last_event_id = ""  # what an EventSource would send as Last-Event-ID
        self._buffer = b""
        self._scanned = 0
        self._at_start = True
        self._skip_lf = False
        self._reset()

    def _reset(self):
        self._name, self._data, self._id = "", [], None

    def feed(self, data, at_s=0.0):
        """Take bytes; the events that they completed."""
        before = len(self.events)
        self._buffer += data
        if self._at_start:
            if len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
                return []
            self._buffer = self._buffer.removeprefix(_BOM)
            self._at_start = False
        at, size = 0, len(self._buffer)
        if self._skip_lf and size:
            at = int(self._buffer[:1] == b"\n")
            self._skip_lf = False
        while found := _LINE_END.search(self._buffer, max(at, self._scanned)):
            self._line(self._buffer[at : found.start()], at_s)
            at = self._scanned = found.end()
            self._skip_lf = found.group() == b"\r" and at == size
        self._buffer = self._buffer[at:]
        self._scanned = len(self._buffer)
        return self.events[before:]

    def _line(self, line, at_s):
        if not line:
            self._dispatch(at_s)
            return
        field, colon, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if not field and colon:
            self.comments.append((at_s, value))
        elif field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id" and "\0" not in value:
            self._id = value

    def _dispatch(self, at_s):
        if self._id is not None:
            self.last_event_id = self._id
        if self._data:
            self.events.append(Event(self._name, "\n".join(self._data), self._id, at_s))
        self._reset()


class Stream:
    """One request and its answer as it comes. Instants are ``time.monotonic`` seconds."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self.sent_s = time.monotonic()
        self.head_s = 0.0
        self.ended_s = None  # when the server ended the answer
        self.status = 0
        self.headers = {}
        self.pieces = []  # (at_s, bytes of body)
        self.parser = StrictParser()

    @property
    def body(self):
        """The bytes so far."""
        return b"".join(data for _, data in self.pieces)

    @property
    def events(self):
        """The events so far."""
        return self.parser.events

    async def head(self):
        """Read the response head."""
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), READ_WITHIN_S)
        self.head_s = time.monotonic()
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        self.status = int(first.split(" ")[1])
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def piece(self):
        """The next piece of the body; b"" at its proper end."""
        if self.ended_s is not None:
            return b""
        data = await asyncio.wait_for(self._piece(), READ_WITHIN_S)
        now_s = time.monotonic()
        if data:
            self.pieces.append((now_s, data))
            self.parser.feed(data, now_s)
        else:
            self.ended_s = now_s
        return data

    async def _piece(self):
        if "chunked" in self.headers.get("transfer-encoding", ""):
            size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            return (await self._reader.readexactly(size + 2))[:size]
        left = int(self.headers.get("content-length", "0")) - len(self.body)
        return await self._reader.readexactly(left) if left else b""

    async def rest(self):
        """Read to the end that the server gives it."""
        while await self.piece():
            continue

    async def close(self):
        """Close the connection: where the answer has not ended, this is a client that is gone."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


async def send(port, method, target, headers, body=b""):
    """Send one request on a connection of its own. ``headers``: values as bytes or text, written as they are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {target} HTTP/1.1".encode(), b"host: 127.0.0.1", b"connection: close"]
    for name, value in headers.items():
        lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode("latin-1")))
    if body:
        lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
    stream = Stream(reader, writer)
    writer.write(b"\r\n".join([*lines, b"", body]) if body else b"\r\n".join([*lines, b"", b""]))
    await writer.drain()
    return stream


async def fetch(port, method, target, headers, body=b""):
    """The whole answer of one request."""
    stream = await send(port, method, target, headers, body)
    try:
        await stream.head()
        await stream.rest()
    finally:
        await stream.close()
    return stream
