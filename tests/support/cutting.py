"""A TCP proxy that cuts: after so many bytes towards the client, by RST, by FIN, or by silence; or all of it now.

Each connection asks for its own ``Cut``. What lies before the cut arrives, what lies behind it never does; the server's
side of the connection ends with the client's.
"""

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Literal

How = Literal["rst", "fin", "hang"]
_READ_BYTES = 65_536
_RST = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Cut:
    """What becomes of one connection.

    ``after_bytes`` towards the client, response heads included; None never cuts. ``hang`` keeps both sockets open and
    forwards nothing more. ``delay_s`` passes before each piece towards the client.
    """

    after_bytes: int | None = None
    how: How = "rst"
    delay_s: float = 0


WHOLE = Cut()


class CuttingProxy:
    """Forwards to one address; ``plan`` is asked for each new connection's cut.

    Attributes:
        url: where clients connect to.
        plan: gives a Cut; a test may set another at any time. Default: nothing is cut.
        connections: how many were made.
        cuts: how many were cut.
        refusing: new connections are reset at once.

    """

    def __init__(self, target_url, plan=lambda: WHOLE):
        _, _, authority = target_url.partition("//")
        self._host, _, port = authority.rstrip("/").partition(":")
        self._port = int(port)
        self.plan = plan
        self.connections = 0
        self.cuts = 0
        self.refusing = False
        self._server = None
        self._open = {}

    @property
    def url(self):
        """Give the address that clients take."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def sever(self, how="rst"):
        """Cut every connection that is open now; how many there were."""
        for pair in self._open.values():
            _end(pair, how)
            self.cuts += 1
        return len(self._open)

    async def _serve(self, reader, writer):
        self.connections += 1
        if self.refusing:
            _end((writer,), "rst")
            return
        cut, task = self.plan(), asyncio.current_task()
        self._open[task] = (writer,)
        try:
            up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
            self._open[task] = (writer, up_writer)
            await self._forward((reader, writer), (up_reader, up_writer), cut)
        except OSError:
            _end(self._open[task], "rst")  # nobody listens behind us, or a side went away: so does the other
        except asyncio.CancelledError:
            _end(self._open[task], "fin")
        finally:
            del self._open[task]

    async def _forward(self, client, server, cut):
        up = asyncio.ensure_future(_pipe(client[0], server[1]))
        try:
            whole = await _pipe(server[0], client[1], cut.after_bytes, cut.delay_s)
            if not whole:
                self.cuts += 1
                if cut.how == "hang":
                    await up  # until the client leaves by itself
            _end((client[1], server[1]), "rst" if not whole and cut.how == "rst" else "fin")
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)


async def _pipe(reader, writer, after_bytes=None, delay_s=0):
    """Forward to the end of the stream (True), or up to so many bytes (False)."""
    left = after_bytes
    while left is None or left > 0:
        piece = await reader.read(_READ_BYTES if left is None else min(left, _READ_BYTES))
        if not piece:
            with contextlib.suppress(OSError):
                writer.write_eof()
            return True
        if delay_s:
            await asyncio.sleep(delay_s)  # the line's own latency, not a wait for anything
        writer.write(piece)
        await writer.drain()
        left = None if left is None else left - len(piece)
    return False


def _end(writers, how):
    """Close sockets: by RST, by FIN behind what was written, or (hang) not at all."""
    for writer in writers:
        if how == "rst":
            sock = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
            writer.transport.abort()
        elif how == "fin":
            writer.close()


async def refused_head_bytes(url):
    """How long the head of a call's refusal is."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\ncontent-length: 2\r\n\r\n{}")
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return len(head)
