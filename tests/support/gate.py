"""A way to a server that can be shut: behind it somebody takes connections and bytes, and never answers, as one that froze."""

import asyncio
import contextlib


class Gate:
    """Passes bytes on to a server until it is shut; ``asked`` is set when bytes come while it is.

    Without a target it is shut from the beginning.
    """

    def __init__(self, host=None, port=0):
        self._target = (host, port)
        self.asked = asyncio.Event()
        self.is_shut = host is None
        self._tasks = set()

    async def __aenter__(self):
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_):
        """Break off whatever is connected."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def shut(self):
        """From now on nothing passes."""
        self.is_shut = True
        self.asked.clear()

    async def _connected(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(OSError), contextlib.closing(writer):
            if self._target[0] is None:
                await self._pass(reader, None)
                return
            there, back = await asyncio.open_connection(*self._target)
            with contextlib.closing(back):
                await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, reader, writer):
        while data := await reader.read(1 << 16):
            if self.is_shut:
                self.asked.set()
                continue
            writer.write(data)
            await writer.drain()
