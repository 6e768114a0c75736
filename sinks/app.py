"""The process: one consumer and one loop per table, all in one event loop.

Order of things: log format, ClickHouse answers, migrations, consumers join, ``sinks ready``; on SIGTERM or SIGINT each
loop inserts and commits what it has read, then leaves its group. An error that no policy settles ends the process with
code 1: a restart goes on where the commits stand.

Before: ``__main__``. After: ``kafka`` → ``intake`` → ``batch`` → ``loop`` → ``clickhouse``.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from typing import TYPE_CHECKING

import structlog

from schemas.codec import Codec
from schemas.errors import TokentrailError
from sinks import migrate
from sinks.batch import Limits
from sinks.clickhouse import ClickHouseStore, connect
from sinks.intake import TABLES, intake_of
from sinks.kafka import KafkaGraveyard, KafkaSchemas, KafkaSource
from sinks.loop import BACKOFF_FIRST_S, BACKOFF_MAX_S, Loop, Ports
from sinks.store import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.settings import Settings
    from sinks.store import Erasure, Row, Table

STOP_S = 15.0
"""A last insert has this long; what it does not finish is read again after the next start."""

_log = structlog.get_logger("sinks")


def main(settings: Settings, *, accept_loss: bool = False) -> int:
    """Run until told to stop; the exit code."""
    _configure_log()
    if not settings.clickhouse.url:
        _log.error("no warehouse", what_to_do="set TOKENTRAIL_CLICKHOUSE__URL")
        return 2
    try:
        asyncio.run(serve(settings, accept_loss=accept_loss))
    except TokentrailError as error:
        _log.error("sinks end", error=str(error))
        return 1
    except Exception:  # noqa: BLE001 - the outermost rim: a bug is told like everything else, then the process ends
        _log.exception("sinks crashed")
        return 1
    return 0


async def serve(settings: Settings, *, accept_loss: bool = False) -> None:
    """Run the loops until SIGTERM or SIGINT, or until one of them fails."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if not await _migrated(settings, stop):
        return
    codec = Codec()
    graveyard = KafkaGraveyard(settings.kafka)
    schemas = KafkaSchemas(settings.kafka, codec)
    await graveyard.start()
    try:
        sinks = [
            _Sink(
                settings,
                KafkaSource(settings.kafka, table, graveyard, accept_loss=accept_loss),
                table,
                codec,
                graveyard,
                schemas,
            )
            for table in TABLES
        ]
        await _run(sinks, stop)
    finally:
        await graveyard.stop()
    _log.info("sinks stopped", rows={sink.table.name: sink.loop.rows_stored for sink in sinks})


async def _run(sinks: Sequence[_Sink], stop: asyncio.Event) -> None:
    running = [asyncio.create_task(sink.run(), name=sink.table.name) for sink in sinks]
    ready = asyncio.create_task(_say_ready(sinks))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*running, stopped], return_when=asyncio.FIRST_COMPLETED)
        for sink in sinks:
            sink.loop.stop()
        await asyncio.wait(running, timeout=STOP_S)
    finally:
        for task in (*running, ready, stopped):
            task.cancel()
        results = await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(ready, stopped, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def _say_ready(sinks: Sequence[_Sink]) -> None:
    for sink in sinks:
        await sink.source.placed()
    _log.info("sinks ready", tables=[sink.table.name for sink in sinks])


async def _migrated(settings: Settings, stop: asyncio.Event) -> bool:
    """Bring the tables up to date, waiting for the warehouse; False where the stop came first."""
    backoff_s = BACKOFF_FIRST_S
    while not stop.is_set():
        try:
            applied = await asyncio.to_thread(_migrate, settings)
        except Unavailable as error:
            _log.warning("warehouse away", url=settings.clickhouse.url, retry_s=backoff_s, error=str(error))
        else:
            _log.info("tables are up to date", applied=applied)
            return True
        try:
            async with asyncio.timeout(backoff_s):
                await stop.wait()
        except TimeoutError:
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
    return False


def _migrate(settings: Settings) -> list[str]:
    store = connect(settings.clickhouse)
    try:
        return migrate.apply(store, replicated=settings.clickhouse.replicated)
    finally:
        store.close()


class _Sink:
    """One table: its member of the consumer group, its store, its loop."""

    def __init__(
        self,
        settings: Settings,
        source: KafkaSource,
        table: Table,
        codec: Codec,
        graveyard: KafkaGraveyard,
        schemas: KafkaSchemas,
    ) -> None:
        self.table = table
        self.source = source
        self._store = _ThreadedStore(settings)
        limits = Limits(settings.sink.batch_rows, settings.sink.batch_bytes, settings.sink.batch_age_s)
        ports = Ports(self.source, self._store, graveyard, schemas, time.monotonic)
        self.loop = Loop(
            table, lambda: intake_of(table, codec), ports, limits, settings.pipeline.schema_wait_s
        )

    async def run(self) -> None:
        """Join, loop, leave."""
        try:
            await self.source.start(self.loop)
            await self.loop.run()
        finally:
            await self.source.stop()
            await self._store.close()


class _ThreadedStore:
    """A store of its own for one loop, off the event loop. Connected at the first insert, and again after a failure."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store: ClickHouseStore | None = None

    async def insert(self, table: Table, rows: Sequence[Row], token: str) -> None:
        """Store all rows or none; raises Refused or Unavailable."""
        await asyncio.to_thread(self._do, lambda store: store.insert(table, rows, token))

    async def erase(self, erasure: Erasure) -> None:
        """Erase what is forgotten; raises Unavailable."""
        await asyncio.to_thread(self._do, lambda store: store.erase(erasure))

    def _do(self, act: Callable[[ClickHouseStore], None]) -> None:
        store = self._store or connect(self._settings.clickhouse)
        self._store = None
        try:
            act(store)
        except Unavailable:
            store.close()
            raise
        self._store = store

    async def close(self) -> None:
        """Let go of connections."""
        if self._store is not None:
            await asyncio.to_thread(self._store.close)


def _configure_log() -> None:
    """One JSON object per line on stderr, whoever speaks; of the Kafka client's words errors alone (it is chatty)."""
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = structlog.processors.JSONRenderer()
    foreign = logging.StreamHandler(sys.stderr)
    foreign.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=shared,
        )
    )
    logging.getLogger().handlers = [foreign]
    structlog.configure(
        processors=[*shared, renderer], logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
