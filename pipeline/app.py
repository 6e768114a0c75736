"""The pipeline worker as a Faust app: the fold as a service inside it, billing as an agent. The only file with Faust.

Faust acknowledges an event even when its agent raises, and its clean stop waits for ever on one that is not
acknowledged (notes on Kafka, 6). So whatever must not be lost ends the process at once, like a crash (``halt``): nothing
unfinished is committed, the supervisor starts the worker again, the result is the same.

A stop is ``ending``'s: the fold commits its last turn, beside it Faust waits for the agent and commits, and then the
process ends, in ``stop.settle_s`` at the latest. Before: ``__main__``. After: ``fold_service``, ``billing_agent``,
``ending``.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NoReturn

import faust
import structlog
from mode import Service

from pipeline.billing_agent import BillingAgent
from pipeline.dead_letters import Source, letter
from pipeline.ending import EXIT_HALTED, Ending, Part
from pipeline.fold_service import FoldService, Stopping
from pipeline.kafka import Message, Producer, read_whole
from pipeline.metrics import WorkerMetrics
from pipeline.schema_topic import SchemaTopic
from pipeline.tariff import load_tariff
from schemas.codec import Codec
from schemas.errors import Poison
from schemas.exposition import exposed
from schemas.settings import Settings
from schemas.stopping import leave
from schemas.topics import ATTEMPTS, BILLING_GROUP, DEAD_LETTERS, SCHEMAS

SESSION_TIMEOUT_S = 6.0
HEARTBEAT_S = 1.5
COMMIT_S = 0.5

log = structlog.get_logger(__name__)


class WorkerApp(faust.App):  # type: ignore[misc]
    """A Faust app whose stop is ours; its own is a part of it."""

    ending: Ending

    async def on_stop(self) -> None:
        """The stop of the whole process; after a signal it does not return."""
        await self.ending.settle()

    def acknowledged(self) -> Coroutine[Any, Any, None]:
        """Faust's own stop: reads no more, waits until every event is acknowledged, commits."""
        stop: Coroutine[Any, Any, None] = super().on_stop()
        return stop


class _Worker(faust.Worker):  # type: ignore[misc]
    """Faust's worker, which tells ours of a signal first: its own stop may hang before it gets to the app.

    Without its spinner, which writes a terminal's control characters into the lines of a log.
    """

    def __init__(self, app: WorkerApp, **options: Any) -> None:
        super().__init__(app, **options)
        self.spinner = None

    def _schedule_shutdown(self, number: signal.Signals) -> None:
        self.app.ending.ask()
        super()._schedule_shutdown(number)


def build_app(settings: Settings, instance_id: str) -> WorkerApp:
    """The app with its fold service and its billing agent.

    Args:
        settings: everything.
        instance_id: stable over restarts of this worker, its own among all that run.
    """
    app = WorkerApp(
        BILLING_GROUP,
        broker=";".join(f"kafka://{server}" for server in settings.kafka.bootstrap_servers.split(",")),
        datadir=str(settings.pipeline.data_dir),
        store="memory://",
        autodiscover=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
        key_serializer="raw",
        value_serializer="raw",
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_rebalance_timeout=SESSION_TIMEOUT_S,
        broker_commit_interval=COMMIT_S,
        producer_acks=-1,
        consumer_group_instance_id=instance_id,
        stream_wait_empty=True,
    )
    codec = Codec()
    producer = Producer(settings.kafka)
    schemas = SchemaTopic(codec, lambda: read_whole(settings.kafka, SCHEMAS.name), producer.send_all)
    fold = FoldService(settings, codec, producer, schemas, instance_id)
    billing = _billing(settings, codec, producer)
    figures = partial(
        exposed, settings.metrics.host, settings.metrics.pipeline_port, WorkerMetrics(fold, billing).render
    )
    announced, folded = _add_fold(app, fold, producer, schemas, figures)
    _add_billing(app, billing, schemas, announced, settings.pipeline.schema_wait_s)
    app.ending = Ending(
        settings,
        announced.is_set,
        [
            Part("fold", fold.stop, folded.wait, fold.left),
            _billing_part(app, billing, schemas),
        ],
    )
    return app


def run_worker(app: WorkerApp) -> NoReturn:
    """Run until SIGTERM or SIGINT; exits 0 then."""
    _Worker(
        app, loglevel="WARN", quiet=True, override_logging=False, redirect_stdouts=False
    ).execute_from_commandline()
    raise AssertionError("unreachable: a Faust worker always exits")


def halt(bug: BaseException) -> NoReturn:
    """End the process as kill -9 would, after a line that says why."""
    log.critical("worker halted", exc_info=bug)
    leave(EXIT_HALTED)


def _add_fold(
    app: WorkerApp,
    fold: FoldService,
    producer: Producer,
    schemas: SchemaTopic,
    figures: Callable[[], AbstractAsyncContextManager[int | None]],
) -> tuple[asyncio.Event, asyncio.Event]:
    """Run the fold as a service of the app. Set when this process has announced what it writes; when it has folded."""
    announced, folded = asyncio.Event(), asyncio.Event()

    @app.service
    class Fold(Service):  # type: ignore[misc]
        """The fold, the finder and the producer of this worker."""

        @Service.task  # type: ignore[untyped-decorator]
        async def work(self) -> None:
            try:
                await producer.start()
                await schemas.announce()
                announced.set()
                async with figures():
                    await fold.run()
            except* Stopping as unfinished:
                log.warning("stopped with a turn unfinished", why=str(unfinished.exceptions[0]))
            except* (Exception, asyncio.CancelledError) as bug:  # noqa: BLE001 - Faust would go on without the fold
                halt(bug)
            folded.set()

    return announced, folded


def _billing_part(app: WorkerApp, billing: BillingAgent, schemas: SchemaTopic) -> Part:
    """Billing as its stop sees it: over when Faust has committed, or when a record cannot be settled any more."""
    waits: list[asyncio.Future[Any]] = []

    def stop() -> None:
        billing.stop()
        schemas.stop()  # the agent may wait for one

    async def settled() -> None:
        waits.append(asyncio.ensure_future(app.acknowledged()))
        waits.append(asyncio.ensure_future(billing.gave_up.wait()))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)

    def left() -> str | None:
        if billing.gave_up.is_set():
            return "an attempt is not billed, since the log takes no records"
        if waits and waits[0].done() and not waits[0].cancelled() and waits[0].exception() is None:
            return None
        return "what was billed last is not committed"

    return Part("billing", stop, settled, left)


def _billing(settings: Settings, codec: Codec, producer: Producer) -> BillingAgent:
    async def publish(topic: str, key: bytes, value: bytes) -> None:
        await producer.send_all([Message(topic, key, value)])

    async def dead_letter(source: Source, poison: Poison, *, stage: str) -> None:
        sent = letter(source, poison, stage=stage, failed_us=time.time_ns() // 1000)
        log.error(
            "dead letter", stage=stage, offset=source.offset, reason=poison.reason, detail=poison.detail
        )
        await producer.send_all([Message(DEAD_LETTERS.name, *sent)])

    return BillingAgent(
        codec=codec,
        tariff=load_tariff(settings.price_files),
        publish=publish,
        dead_letter=dead_letter,
        halt=halt,
        schema_wait_s=settings.pipeline.schema_wait_s,
    )


def _add_billing(
    app: WorkerApp, billing: BillingAgent, schemas: SchemaTopic, announced: asyncio.Event, wait_s: float
) -> None:
    """Bill every attempt, one after the other: raw bytes in, everything settled inside the loop body."""

    @app.agent(app.topic(ATTEMPTS.name), concurrency=1)  # type: ignore[untyped-decorator]
    async def bill(stream: Any) -> None:
        await announced.wait()
        async for event in stream.events():
            message = event.message
            await schemas.look_up(message.value, wait_s)
            await billing.settle(
                message.key, message.value, partition=message.partition, offset=message.offset
            )
