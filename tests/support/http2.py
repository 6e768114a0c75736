"""A client of HTTP/2 that can do what libraries hide: reset one stream of a connection while the others live on.

One connection over TLS, many streams. What came of each stream is on record with the time at which it came. Before:
``tests.support.nginx``.
"""

import asyncio
import contextlib
import time
from typing import NamedTuple

import h2.config
import h2.connection
import h2.events
from h2.errors import ErrorCodes

WITHIN_S = 20
_READ_BYTES = 65_536


class Piece(NamedTuple):
    """One DATA frame: CLOCK_MONOTONIC nanoseconds, bytes."""

    at_ns: int
    data: bytes


class Stream:
    """One request and what came of it.

    Attributes:
        status: of the answer, None before its head.
        headers: names in lower case.
        pieces: the body, frame by frame.
        ended: the proper end came (END_STREAM).
        reset: the server's error code, where the stream was broken off; the connection's end counts as one.
        paused: its client takes nothing: what came is on record, but the server is given no more room on this stream.

    """

    def __init__(self, connection, stream_id):
        self._connection = connection
        self.id = stream_id
        self.status = None
        self.headers = {}
        self.pieces = []
        self.ended = False
        self.reset = None
        self.paused = False
        self.untaken = 0
        self.news = asyncio.Event()

    @property
    def body(self):
        """Give all of it that came."""
        return b"".join(piece.data for piece in self.pieces)

    @property
    def over(self):
        """Tell whether nothing more can come."""
        return self.ended or self.reset is not None

    async def until(self, condition, within_s=WITHIN_S):
        """Wait until a condition on this stream holds."""
        async with asyncio.timeout(within_s):
            while not condition(self):
                assert not self.over, (self.status, self.reset, self.body[-2000:])
                self.news.clear()
                await self.news.wait()
        return self

    async def whole(self, within_s=WITHIN_S):
        """Wait for the proper end; the body."""
        await self.until(lambda stream: stream.ended, within_s)
        return self.body

    def take(self):
        """Take what came while it was paused, and go on."""
        self.paused = False
        self._connection.give_room(self.id, self.untaken)

    def leave(self, code=ErrorCodes.CANCEL):
        """RST_STREAM: this stream is over for us, the connection is not."""
        self.reset = code
        self._connection.reset(self.id, code)


class _Connection(h2.connection.H2Connection):
    """The library takes GOAWAY for the end of everything; by the protocol the streams that run are finished."""

    def _receive_goaway_frame(self, frame):
        del frame
        return [], []


class Http2:
    """``async with Http2(port, context, name) as connection: await connection.request(…)``."""

    def __init__(self, port, context, name, headers=()):
        self._port, self._context, self._name = port, context, name
        self._headers = dict(headers)
        self._h2 = _Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._streams = {}

    async def __aenter__(self):
        self._context.set_alpn_protocols(["h2"])
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._context, server_hostname=self._name
        )
        assert self._writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        self._h2.initiate_connection()
        self._flush()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_):
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self.abort()

    def abort(self):
        """Close the connection with all its streams, without a word of TLS or HTTP/2."""
        self._writer.transport.abort()

    def get(self, path, headers=()):
        """Ask for a path."""
        return self._ask("GET", path, dict(headers), None)

    def post(self, path, body, headers=()):
        """Send a JSON body."""
        return self._ask("POST", path, {"content-type": "application/json", **dict(headers)}, body)

    def reset(self, stream_id, code):
        """Send RST_STREAM."""
        self._h2.reset_stream(stream_id, code)
        self._flush()

    def give_room(self, stream_id, size):
        """Let the server send so much more on a stream."""
        self._h2.increment_flow_control_window(size, stream_id)
        self._flush()

    def _ask(self, method, path, headers, body):
        stream = Stream(self, self._h2.get_next_available_stream_id())
        self._streams[stream.id] = stream
        pseudo = {":method": method, ":scheme": "https", ":authority": self._name, ":path": path}
        own = {**self._headers, **headers}
        if body is not None:
            own["content-length"] = str(len(body))
        self._h2.send_headers(stream.id, [*pseudo.items(), *own.items()], end_stream=not body)
        if body:  # bodies of tests fit into the first window
            self._h2.send_data(stream.id, body, end_stream=True)
        self._flush()
        return stream

    async def _read(self):
        try:
            with contextlib.suppress(OSError):  # the streams say it below
                while data := await self._reader.read(_READ_BYTES):
                    at_ns = time.monotonic_ns()
                    for event in self._h2.receive_data(data):
                        self._take(event, at_ns)
                    self._flush()
        finally:
            for stream in self._streams.values():
                if not stream.over:
                    stream.reset = ErrorCodes.CONNECT_ERROR
                stream.news.set()

    def _take(self, event, at_ns):
        stream = self._streams.get(getattr(event, "stream_id", None))
        if stream is None:
            return
        match event:
            case h2.events.ResponseReceived():
                stream.headers = dict(event.headers)
                stream.status = int(stream.headers[":status"])
            case h2.events.DataReceived():
                self._give_room(stream, event.flow_controlled_length)
                stream.pieces.append(Piece(at_ns, event.data))
            case h2.events.StreamEnded():
                stream.ended = True
            case h2.events.StreamReset():
                stream.reset = event.error_code
        stream.news.set()

    def _give_room(self, stream, size):
        if stream.paused:
            stream.untaken += size
            self._h2.increment_flow_control_window(size)  # of the connection: its other streams go on
        else:
            self._h2.acknowledge_received_data(size, stream.id)

    def _flush(self):
        self._writer.write(self._h2.data_to_send())
