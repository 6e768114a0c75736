"""The process: one consumer and one loop per table, all in one event loop.

Order of things: log format, ClickHouse answers, migrations, consumers join, ``sinks ready``; on SIGTERM or SIGINT each
loop inserts and commits what it has read, for ``stop.settle_s``, then leaves its group. What it does not finish is read
again after the next start. A stop that comes before there is anything to finish waits for nothing. An error that no policy
settles ends the process with code 1: a restart goes on where the commits stand.

Before: ``__main__``. After: ``kafka`` → ``intake`` → ``batch`` → ``loop`` → ``clickhouse``.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import structlog

from schemas.codec import Codec
from schemas.errors import TokentrailError
from schemas.exposition import exposed
from schemas.lines import Lines
from schemas.seldom import Seldom
from schemas.stopping import Deadline, in_thread, on_signal, to_the_end
from sinks import migrate
from sinks.batch import Limits
from sinks.clickhouse import connect
from sinks.intake import TABLES, intake_of
from sinks.kafka import KafkaGraveyard, KafkaSchemas, KafkaSource
from sinks.loop import BACKOFF_FIRST_S, BACKOFF_MAX_S, Loop, Ports
from sinks.metrics import Observed, SinkMetrics
from sinks.store import Unavailable
from sinks.threaded import ThreadedStore

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from schemas.settings import Settings
    from sinks.store import Table

T = TypeVar("T")
CANCEL_S = 2.0
"""What was begun and is not waited for any more has so long to let go of its connections."""

GC_ALLOCATIONS = 50_000
"""The default of 700 walks the batches' records many times a second: one to two of twelve us a row when measured."""

_log = structlog.get_logger("sinks")


def main(settings: Settings, *, accept_loss: bool = False) -> int:
    """Run until told to stop; the exit code."""
    _configure_log()
    if not settings.clickhouse.url:
        _log.error("no warehouse", what_to_do="set TOKENTRAIL_CLICKHOUSE__URL")
        return 2
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 10, 10)
    try:
        # Never closed: what a client still does that does not hear its end is left with the process
        asyncio.Runner().run(serve(settings, accept_loss=accept_loss))
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
    deadline = Deadline(settings.worker_stop_s, _tell_cut)

    def ask() -> None:
        stop.set()
        if deadline.begin():
            _log.info("stopping", limit_s=settings.stop.settle_s)

    on_signal(ask)
    codec = Codec()
    graveyard = KafkaGraveyard(settings.kafka)
    schemas = KafkaSchemas(settings.kafka, codec)
    try:
        await _migrated(settings, stop)
        await _unless(stop, graveyard.start())
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
        figures = SinkMetrics([Observed(sink.table.name, sink.loop, sink.source) for sink in sinks])
        async with exposed(settings.metrics.host, settings.metrics.sinks_port, figures.render):
            await _run(sinks, stop, settings.stop.settle_s)
    except _StoppedEarlyError:
        _log.info("sinks stopped before they read anything")
    else:
        _log.info("sinks stopped", rows={sink.table.name: sink.loop.rows_stored for sink in sinks})
    finally:
        deadline.begin()  # also where nobody asked: a sink failed
        await graveyard.stop()


async def _run(sinks: Sequence[_Sink], stop: asyncio.Event, settle_s: float) -> None:
    running = [asyncio.create_task(to_the_end(sink.run()), name=sink.table.name) for sink in sinks]
    ready = asyncio.create_task(_say_ready(sinks))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*running, stopped], return_when=asyncio.FIRST_COMPLETED)
        for sink, task in zip(sinks, running, strict=True):
            sink.stop(task)
        _, unfinished = await asyncio.wait(running, timeout=settle_s)
        for task in unfinished:
            _log.warning(
                "stopped before it was stored and committed: the next start reads it again",
                table=task.get_name(),
                waited_s=settle_s,
            )
    finally:
        for one in (*running, ready, stopped):
            one.cancel()
        results = await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(ready, stopped, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


class _StoppedEarlyError(Exception):
    """A stop came while the process was being started."""


async def _unless(stop: asyncio.Event, step: Coroutine[Any, Any, T]) -> T:
    """Take a step of the start; _StoppedEarlyError where a stop comes before it is done."""
    work: asyncio.Task[T] = asyncio.create_task(step)
    asked = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((work, asked), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            raise _StoppedEarlyError
        return work.result()
    finally:
        work.cancel()
        asked.cancel()
        await asyncio.wait((work, asked), timeout=CANCEL_S)


async def _say_ready(sinks: Sequence[_Sink]) -> None:
    for sink in sinks:
        await sink.source.placed()
    _log.info("sinks ready", tables=[sink.table.name for sink in sinks])


async def _migrated(settings: Settings, stop: asyncio.Event) -> None:
    """Bring the tables up to date, waiting for the warehouse."""
    backoff_s = BACKOFF_FIRST_S
    while True:
        try:
            applied = await _unless(stop, in_thread(lambda: _migrate(settings)))
        except Unavailable as error:
            _log.warning("warehouse away", url=settings.clickhouse.url, retry_s=backoff_s, error=str(error))
            await _unless(stop, asyncio.sleep(backoff_s))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
        else:
            _log.info("tables are up to date", applied=applied)
            return


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
        self._joined = False
        self._store = ThreadedStore(settings)
        limits = Limits(settings.sink.batch_rows, settings.sink.batch_bytes, settings.sink.batch_age_s)
        ports = Ports(self.source, self._store, graveyard, schemas, time.monotonic)
        self.loop = Loop(
            table, lambda: intake_of(table, codec), ports, limits, settings.pipeline.schema_wait_s
        )

    async def run(self) -> None:
        """Join, loop, leave."""
        try:
            await self.source.start(self.loop)
            self._joined = True
            await self.loop.run()
        finally:
            await self.source.stop()
            await self._store.close()

    def stop(self, running: asyncio.Task[None]) -> None:
        """End ``run`` after the turn under way; one that has not joined has nothing to finish."""
        self.loop.stop()
        if not self._joined:
            running.cancel()


def _tell_cut() -> None:
    _log.critical("the stop took too long, ending without it; the next start reads again what is left")


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
    foreign.addFilter(Seldom())
    logging.getLogger().handlers = [foreign]
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", Lines(sys.stderr))),
    )
