"""A small TCP proxy that breaks connections on demand: drills and tests put it between any two parts.

It forwards bytes both ways and does what its rules say: delay, throttle, stop forwarding (half-open), refuse, cut after
so many bytes (FIN), reset (RST). Rules are set by plain calls at any time, hold for open and new connections, and end
with ``heal``.

Invariants: bytes are never lost, doubled or reordered while a connection lives, whatever rules come and go; a change of
rules takes effect at once, also on bytes that wait. Who uses it: ``compose`` drills and the suites under ``tests``.
"""

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Final, Self

READ_BYTES: Final = 65536
QUEUED_READS_MAX: Final = 64  # per direction, 4 MiB: what a delay may hold back before the sender feels it
THROTTLE_STEPS_PER_S: Final = (
    20  # a throttled stream is written in so many pieces a second, so that it looks steady
)


@dataclass(slots=True)
class _Rules:
    """What holds now; a healed proxy has the defaults."""

    delay_s: float = 0.0
    bytes_per_s: int | None = None
    cut_after_bytes: int | None = None
    halted: bool = False
    refusing: bool = False


class FaultProxy:
    """``async with FaultProxy(host, port) as proxy: proxy.url``; see the module for the rules.

    Args:
        target_host, target_port: where the bytes go; connected to when a client connects.
        listen_port: on 127.0.0.1; 0 picks a free one.

    Attributes:
        accepted: connections accepted so far.
        bytes_to_client: bytes forwarded to clients so far, over all connections.
        rules: what holds now; set by the methods.

    """

    def __init__(self, target_host: str, target_port: int, *, listen_port: int = 0) -> None:
        self.host, self.port = "127.0.0.1", listen_port
        self.accepted = 0
        self.bytes_to_client = 0
        self._target = (target_host, target_port)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._changed = asyncio.Event()
        self.rules = _Rules()

    @property
    def url(self) -> str:
        """The proxy as the base of an HTTP URL, without a path."""
        return f"http://{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """Client connections that are open now."""
        return len(self._links)

    def delay(self, ms: float) -> None:
        """Every byte arrives so much later, in both directions; the order and the rate stay."""
        self.rules.delay_s = ms / 1000
        self._change()

    def throttle(self, bytes_per_s: int) -> None:
        """At most so many bytes a second, per connection and direction."""
        if bytes_per_s < 1:
            raise ValueError("a throttle of 0 is half_open()")
        self.rules.bytes_per_s = bytes_per_s
        self._change()

    def half_open(self) -> None:
        """Forward nothing, neither bytes nor ends, and keep every socket: a peer that is gone without a word."""
        self.rules.halted = True
        self._change()

    def refuse(self) -> None:
        """New connections are reset as soon as they are made; open ones go on."""
        self.rules.refusing = True

    def cut_after(self, n_bytes: int) -> None:
        """Close (FIN, both sides) the first connection that has forwarded so many more bytes to its client.

        Counted from now, for each connection by itself; exactly ``n_bytes`` arrive. The rule is spent by one cut.
        """
        self.rules.cut_after_bytes = n_bytes
        for link in self._links:
            link.forwarded_bytes = 0

    def reset_now(self) -> None:
        """Reset (RST) every open connection on both sides, at once."""
        for link in list(self._links):
            link.reset()

    def heal(self) -> None:
        """End all rules; what waits flows on at once, in order."""
        self.rules = _Rules()
        self._change()

    async def changed(self, timeout_s: float | None = None) -> None:
        """Return when the rules change, or after ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self.host, self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        links = list(self._links)
        self.reset_now()
        await asyncio.gather(*(link.task for link in links), return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.rules.refusing:
            reset_transport(writer.transport)
            return
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run(*self._target)
        finally:
            self._links.discard(link)

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class _Cut(Exception):
    """The connection has forwarded what it may; it ends with FIN."""


class _Link:
    """One client connection and its connection to the target; runs in the task of its accept."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a link is made inside the task that runs it")
        self.task: asyncio.Task[None] = task
        self.forwarded_bytes = 0  # to the client, since the cut rule was set
        self._proxy = proxy
        self._client = (reader, writer)
        self._writers = [writer]

    def reset(self) -> None:
        """RST on both sides, now."""
        for writer in self._writers:
            reset_transport(writer.transport)
        self.task.cancel()

    async def run(self, target_host: str, target_port: int) -> None:
        """Forward until both directions have ended; an end or a reset on one side becomes the same on the other."""
        try:
            while self._proxy.rules.halted:
                await self._proxy.changed()
            reader, writer = await asyncio.open_connection(target_host, target_port)
            self._writers.append(writer)
            async with asyncio.TaskGroup() as tasks:
                for pipe in (
                    _Pipe(self._proxy, self, self._client[0], writer, to_client=False),
                    _Pipe(self._proxy, self, reader, self._client[1], to_client=True),
                ):
                    tasks.create_task(pipe.fill())
                    tasks.create_task(pipe.drain())
        except* OSError:  # one side was reset, or the target is not there
            while self._proxy.rules.halted:  # half-open: the other side does not learn of it
                await self._proxy.changed()
            self._reset_all()
        except* _Cut:
            pass
        except* asyncio.CancelledError:  # by reset(), which is the only one to cancel a link
            self._reset_all()
        await self._close()

    def _reset_all(self) -> None:
        for writer in self._writers:
            reset_transport(writer.transport)

    async def _close(self) -> None:
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):  # it may have been reset: closed all the same
                await writer.wait_closed()


class _Pipe:
    """One direction of a link: ``fill`` reads, ``drain`` applies the rules and writes."""

    def __init__(
        self,
        proxy: FaultProxy,
        link: _Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        to_client: bool,
    ) -> None:
        self._proxy, self._link, self._to_client = proxy, link, to_client
        self._reader, self._writer = reader, writer
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_READS_MAX)

    async def fill(self) -> None:
        """Read until the end of this direction; each read is queued with its time of arrival, the end as b""."""
        loop = asyncio.get_running_loop()
        data = b"start"
        while data:
            data = await self._reader.read(READ_BYTES)
            await self._queue.put((loop.time(), data))

    async def drain(self) -> None:
        """Write what is due, piece by piece; raises _Cut where the rule says so."""
        while True:
            arrived_s, data = await self._queue.get()
            await self._until_due(arrived_s)
            if not data:
                self._writer.write_eof()
                return
            while data:
                await self._until_open()
                piece = data[: self._piece_bytes()]
                data = data[len(piece) :]
                self._writer.write(piece)
                await self._writer.drain()
                self._count(len(piece))
                if self._proxy.rules.bytes_per_s is not None:
                    await self._proxy.changed(len(piece) / self._proxy.rules.bytes_per_s)

    async def _until_due(self, arrived_s: float) -> None:
        """Wait for the delay that holds *now*: a change of rules also moves what waits."""
        loop = asyncio.get_running_loop()
        await self._until_open()
        while (remaining_s := arrived_s + self._proxy.rules.delay_s - loop.time()) > 0:
            await self._proxy.changed(remaining_s)
            await self._until_open()

    async def _until_open(self) -> None:
        while self._proxy.rules.halted:
            await self._proxy.changed()

    def _piece_bytes(self) -> int:
        """How much may be written in one go; raises _Cut where nothing may."""
        size = READ_BYTES
        if self._proxy.rules.bytes_per_s is not None:
            size = max(1, self._proxy.rules.bytes_per_s // THROTTLE_STEPS_PER_S)
        if self._to_client and self._proxy.rules.cut_after_bytes is not None:
            size = min(size, self._proxy.rules.cut_after_bytes - self._link.forwarded_bytes)
            self._cut_if_spent()
        return size

    def _count(self, size: int) -> None:
        if self._to_client:
            self._proxy.bytes_to_client += size
            self._link.forwarded_bytes += size
            self._cut_if_spent()

    def _cut_if_spent(self) -> None:
        limit = self._proxy.rules.cut_after_bytes
        if limit is not None and self._link.forwarded_bytes >= limit:
            self._proxy.rules.cut_after_bytes = None
            raise _Cut


def reset_transport(transport: asyncio.BaseTransport) -> None:
    """Close a TCP connection with RST instead of FIN; what was not sent yet is dropped."""
    connection = transport.get_extra_info("socket")
    if connection is not None and not transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()
