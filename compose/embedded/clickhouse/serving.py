"""Runs the application on a bound socket until SIGTERM or SIGINT, and stops it in order.

Purpose: the order of a stop: no new connections, running requests get `QUERIES_STOP_AFTER_S`, then their queries are
stopped (their clients hear why), then sessions and engine are closed. A query that cannot be stopped is left with its
process when the deadline comes. Invariants: a stop on request ends without an exception, whatever signals follow
the first; an acknowledged insert is in the engine before its answer, so none is lost either way.

Before it in the flow: ``__main__``. After it: ``server``.
"""

import asyncio
import signal
import socket
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from compose.embedded.clickhouse.server import ClickHouseHttp

if TYPE_CHECKING:  # the sandbox leaves it out of reach: whoever calls has it
    from schemas.stopping import Deadline

# An insert takes a fraction of a second, an analyst's query may take minutes: nobody waits that long for a stop.
QUERIES_STOP_AFTER_S = 3.0
_GRACE_S = 10
# An idle client finds its connection open for as long as a ClickHouse server keeps one.
_KEEP_ALIVE_S = 30


class _Server(uvicorn.Server):
    """uvicorn, which stops what runs for too long when it stops itself."""

    def __init__(self, config: uvicorn.Config, application: ClickHouseHttp, deadline: "Deadline") -> None:
        super().__init__(config)
        self._application = application
        self._deadline = deadline

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take the first signal for the stop; later ones change nothing (uvicorn would leave the engine open)."""
        if self._deadline.begin():
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop in order."""
        timer = asyncio.get_running_loop().call_later(QUERIES_STOP_AFTER_S, self._application.stop_queries)
        await super().shutdown(sockets)
        timer.cancel()


def serve(application: ClickHouseHttp, listener: socket.socket, deadline: "Deadline") -> None:
    """Answer on ``listener``; return after a stop, which begins the deadline."""
    config = uvicorn.Config(
        application,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config, application, deadline)
    # uvicorn raises the signal that stopped it once more at its end; a stop on request is not a failure. And one that
    # comes before uvicorn listens for it is not lost.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    server.run(sockets=[listener])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # Python's own end would let a second one kill it
