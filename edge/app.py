"""Wires one edge: settings → log, service, routes. Nothing is built at import.

``build_app`` takes the service, so that tests give it a log in memory; ``main`` is the process. Before: ``__main__``.
After: ``routes``.
"""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import NoReturn, TextIO, cast

import structlog
import uvicorn
from fastapi import FastAPI
from structlog.tracebacks import ExceptionDictTransformer

from edge.asgi.browser import Browser
from edge.asgi.connection import bounded
from edge.asgi.direct import Direct
from edge.clock import system_clock
from edge.log.kafka import KafkaLog
from edge.routes import (
    acks,
    common,
    dialects,
    generations,
    listing,
    operations,
    page,
    responses,
    tools,
    visitors,
)
from edge.service import EdgeService
from schemas.codec import Codec
from schemas.errors import TokentrailError
from schemas.lines import Lines
from schemas.seldom import Seldom
from schemas.settings import Settings
from schemas.stopping import LAST_WORDS_S, SIGNALS, Deadline, leave

log = structlog.get_logger()
VANISHED_MS = 30_000
"""Unacknowledged data for so long: the peer is gone, and the grace time begins."""
GC_ALLOCATIONS = 50_000
"""The default of 700 walks the windows' events many times a second: a sixth of the CPU per chunk when measured."""


def build_app(service: EdgeService) -> FastAPI:
    """The ASGI application of an edge; its lifespan starts and stops the service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(title="tokentrail edge", version="0.1.0", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    common.install(app)
    app.add_middleware(Browser, origins=service.settings.edge.cors_origins)
    for routes in (dialects, acks, responses, listing, generations, tools, visitors, operations, page):
        app.include_router(routes.router)
    return app


def listen(host: str, port: int) -> socket.socket:
    """The listening socket: its accepted ones notice a peer that vanished (keepalive, and a bound on unsent data).

    It says that it is TCP: asyncio's own loop sends without delay only on such a one (uvloop does on any).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, VANISHED_MS)
    try:
        listening.bind((host, port))
    except OSError as error:
        raise TokentrailError(
            f"cannot listen on {host}:{port} ({error.strerror}): set TOKENTRAIL_EDGE__PORT"
        ) from error
    listening.set_inheritable(True)
    return listening


def configure_logs(stream: TextIO) -> None:
    """One JSON object per line. A bug's frames are told without their variables: those hold keys, prompts and answers.

    No request is logged, so neither is an address, which may hold a ticket.
    """
    without_variables = ExceptionDictTransformer(show_locals=False)
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(without_variables),
    ]
    as_json = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*processors, as_json],
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", Lines(stream))),
    )
    libraries = logging.StreamHandler(stream)
    libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, as_json],
            foreign_pre_chain=processors,
        )
    )
    libraries.addFilter(Seldom())
    logging.basicConfig(level=logging.WARNING, handlers=[libraries])


class Server(uvicorn.Server):
    """The HTTP server; what runs here is wound up while its readers are still connected.

    A stop is asked for once and ends in a known time: ``edge.drain_s``, ``log.delivery_s``, ``stop.close_s``.
    """

    def __init__(self, config: uvicorn.Config, service: EdgeService) -> None:
        super().__init__(config)
        self._service = service
        self._deadline = Deadline(service.settings.edge_stop_s, _tell_cut)
        self._close_s = service.settings.stop.close_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: the first one is the stop, later ones change nothing."""
        if self._deadline.begin():
            super().handle_exit(sig, frame)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._asked.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Connect, then listen; a stop does not wait for a log that does not answer. Raises LogAway."""
        self._loop = asyncio.get_running_loop()
        if self.should_exit:
            return
        starting = self._loop.create_task(self._service.start())
        asked = self._loop.create_task(self._asked.wait())
        await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if self._asked.is_set() and not starting.done():
            starting.cancel()
            await asyncio.wait((starting,), timeout=self._close_s)
            log.info("stopped before the log answered")
            return
        starting.result()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and wait for those that are there, the service winding up meanwhile."""
        log.info("stopping", generations=len(self._service.registry.running()))
        winding = asyncio.get_running_loop().create_task(self._service.wind_up())
        try:
            await super().shutdown(sockets)
        finally:
            winding.cancel()
            await asyncio.gather(winding, return_exceptions=True)
        log.info("stopped")


def _tell_cut() -> None:
    log.critical("the stop took too long, ending without it; what did not end here the orphan finder ends")


def main() -> NoReturn:
    """Run one edge until SIGTERM or SIGINT; exits 0 then."""
    settings = Settings()
    configure_logs(sys.stderr)
    codec = Codec()
    service = EdgeService(settings, KafkaLog(settings, codec), codec, system_clock())
    config = uvicorn.Config(
        Direct(build_app(service)),
        log_level="error",  # it warns of each request that is none: anybody could fill the log without a key
        access_log=False,
        http=bounded(settings.limit),
        ws="none",
        timeout_graceful_shutdown=int(settings.edge.drain_s) + LAST_WORDS_S,
        timeout_keep_alive=75,
        server_header=False,
    )
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 50)
    server = Server(config, service)
    for number in SIGNALS:
        # uvicorn raises once more at its end what stopped it: an end on request is no death by a signal
        signal.signal(number, server.handle_exit)
    try:
        server.run(sockets=[listen(settings.edge.host, settings.edge.port)])
    except TokentrailError as error:
        log.error("the edge cannot start", error=str(error))  # noqa: TRY400 - it says what to do, the frames do not
        leave(1)
    leave(0)
