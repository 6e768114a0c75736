"""Plays the provider of a vector that needs HTTP/2, behind the one hop through which an edge meets such a provider: a proxy.

An edge speaks HTTP/1.1 to whom it calls. What a provider's ``RST_STREAM`` becomes on the way is then a proxy's doing, and a
real nginx does it here (its gRPC module is its HTTP/2 client); without one these vectors are not played. Before it:
``player``. After it: ``observed``.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import h2.config
import h2.connection
import h2.events
from h2.errors import ErrorCodes

from compose.faults import reset_transport
from tests.support.nginx import FOUND, Nginx
from tests.support.processes import free_port

from . import player

_READ_BYTES = 65_536
_HOP = """
server {{
    listen 127.0.0.1:{port};
    client_max_body_size 0;
    location / {{
        grpc_pass grpc://127.0.0.1:{player};
        grpc_next_upstream off;
    }}
}}
"""


def unsupported(vector):
    """What neither player can play of a vector here, or None."""
    reason = player.unsupported(vector)
    return f"{reason}, and no nginx on this machine" if reason and FOUND is None else None


def player_of(vector, framing):
    """Give the player that a vector needs."""
    kind = player.Player if player.unsupported(vector) is None else Http2Player
    return kind(vector, framing)


class Http2Player(player.Player):
    """See Player; ``base_url`` is the hop's."""

    refused = staticmethod(lambda _: None)

    @property
    def base_url(self):
        """What a provider's ``base_url`` is configured with."""
        return f"http://127.0.0.1:{self._nginx.port}/v1"

    async def __aenter__(self):
        await super().__aenter__()
        self._stack = contextlib.ExitStack()
        folder, port = self._stack.enter_context(tempfile.TemporaryDirectory()), free_port()
        self._nginx = self._stack.enter_context(
            Nginx(Path(folder), port, _HOP.format(port=port, player=self._port))
        )
        await self._nginx.until_ready()
        return self

    async def __aexit__(self, *_):
        self._stack.close()
        await super().__aexit__()

    async def _connected(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        connection = _Connection(reader, writer)
        try:
            if (head := await connection.read_head()) is not None:
                await self._serve(connection, *head)
                await connection.left()
        except (ConnectionError, asyncio.CancelledError):
            reset_transport(writer.transport)
        finally:
            self._tasks.discard(task)
            await connection.close()

    async def _play(self, attempt, connection, request):
        going_on = await super()._play(attempt, connection, request)
        if attempt["close"] == "rst_stream":
            await connection.pause(player.RESET_DELAY_S)
            connection.reset_stream(ErrorCodes[attempt["h2_error"]])
        return going_on


class _Connection:
    """The server's side of HTTP/2, for the one request that the hop sends on a connection; as ``player``'s for HTTP/1.1."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="latin-1")
        )
        self._h2.initiate_connection()
        self._flush()
        self._stream_id = None
        self._head = None
        self._body = b""
        self._whole = asyncio.Event()  # the request, or the connection's end
        self._gone = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self.last = None

    async def read_head(self):
        """Method, path, headers of the request, once all of it is there; None at the end of the connection."""
        await self._whole.wait()
        if self._head is None:
            return None
        pseudo = {name: value for name, value in self._head if name.startswith(":")}
        return pseudo[":method"], pseudo[":path"], dict(self._head)

    async def read_body(self, headers):
        """The request's body."""
        del headers
        return self._body

    def watch(self):
        """See ``player``: the connection is watched from its beginning."""

    async def unwatch(self):
        """See ``player``."""

    async def pause(self, seconds):
        """Wait (None: for ever), and at least let others run."""
        await asyncio.sleep(0)
        if seconds is None or seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), seconds)
        if self._gone.is_set():
            raise player.Gone

    def write_head(self, status, headers):
        """One HEADERS frame."""
        sent = [(name, player.sent_now(value)) for name, value in headers.items()]
        self._h2.send_headers(self._stream_id, [(":status", str(status)), *sent])
        self._flush()

    async def write_piece(self, data):
        """One write of the vector: one DATA frame."""
        self._h2.send_data(self._stream_id, data)
        self._flush()
        await self._writer.drain()

    def write_end(self):
        """END_STREAM."""
        self._h2.end_stream(self._stream_id)
        self._flush()
        return True

    def write_whole(self, status, body):
        """A JSON answer that is not the vector's."""
        self.write_head(status, {"content-type": "application/json"})
        self._h2.send_data(self._stream_id, body, end_stream=True)
        self._flush()

    def reset_stream(self, code):
        """RST_STREAM."""
        self._h2.reset_stream(self._stream_id, code)
        self._flush()

    def reset(self):
        """RST."""
        reset_transport(self._writer.transport)

    async def left(self):
        """Wait until the hop has closed."""
        await self._gone.wait()

    async def close(self):
        """FIN, where the connection is still open."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _read(self):
        try:
            while data := await self._reader.read(_READ_BYTES):
                for event in self._h2.receive_data(data):
                    self._take(event)
                self._flush()
        finally:
            self._gone.set()
            self._whole.set()

    def _take(self, event):
        match event:
            case h2.events.RequestReceived():
                self._stream_id, self._head = event.stream_id, event.headers
            case h2.events.DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                self._body += event.data
            case h2.events.StreamEnded():
                self._whole.set()
            case h2.events.StreamReset():
                self._gone.set()

    def _flush(self):
        self._writer.write(self._h2.data_to_send())
