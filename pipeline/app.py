"""The pipeline worker as a Faust app: the fold as a service inside it, billing as an agent. The only file with Faust.

Faust acknowledges an event even when its agent raises, and its clean stop waits for ever on one that is not
acknowledged (notes on Kafka, 6). So whatever must not be lost ends the process at once, like a crash (``halt``): nothing
unfinished is committed, the supervisor starts the worker again, the result is the same.

Order of a clean stop: Faust's consumer, the agent, then the fold (its last turn is acknowledged and committed), then
the producer. Before: ``__main__``. After: ``fold_service``, ``billing_agent``.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import faust
import structlog
from mode import Service

from pipeline.billing_agent import BillingAgent
from pipeline.dead_letters import Source, letter
from pipeline.fold_service import FoldService, Stopping
from pipeline.kafka import Message, Producer, read_whole
from pipeline.schema_topic import SchemaTopic
from pipeline.tariff import load_tariff
from schemas.codec import Codec
from schemas.errors import Poison
from schemas.settings import Settings
from schemas.topics import ATTEMPTS, BILLING_GROUP, DEAD_LETTERS, SCHEMAS

EXIT_HALTED = 70
SESSION_TIMEOUT_S = 6.0
HEARTBEAT_S = 1.5
COMMIT_S = 0.5

log = structlog.get_logger(__name__)


class WorkerApp(faust.App):  # type: ignore[misc]
    """A Faust app that tells our own parts of a stop before it waits for them."""

    _stops: tuple[Callable[[], None], ...] = ()

    def stopped_by(self, *stops: Callable[[], None]) -> None:
        """Call these first when the worker is asked to stop: an agent that retries would be waited for, for ever."""
        self._stops = stops

    async def on_stop(self) -> None:
        """Faust's own stop, after ours is under way."""
        for stop in self._stops:
            stop()
        await super().on_stop()


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
    app.stopped_by(fold.stop, billing.stop, schemas.stop)
    announced = _add_fold(app, fold, producer, schemas)
    _add_billing(app, billing, schemas, announced, settings.pipeline.schema_wait_s)
    return app


def run_worker(app: WorkerApp) -> NoReturn:
    """Run until SIGTERM or SIGINT; exits 0 then."""
    faust.Worker(
        app, loglevel="WARN", quiet=True, override_logging=False, redirect_stdouts=False
    ).execute_from_commandline()
    raise AssertionError("unreachable: a Faust worker always exits")


def halt(bug: BaseException) -> NoReturn:
    """End the process as kill -9 would, after a line that says why."""
    log.critical("worker halted", exc_info=bug)
    sys.stderr.flush()
    os._exit(EXIT_HALTED)


def _add_fold(app: WorkerApp, fold: FoldService, producer: Producer, schemas: SchemaTopic) -> asyncio.Event:
    """Run the fold as a service of the app; set when this process has announced what it writes."""
    announced, begun, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.service
    class Fold(Service):  # type: ignore[misc]
        """The fold, the finder and the producer of this worker."""

        @Service.task  # type: ignore[untyped-decorator]
        async def work(self) -> None:
            begun.set()
            try:
                await producer.start()
                await schemas.announce()
                announced.set()
                await fold.run()
            except* Stopping as unfinished:
                log.warning("stopped with a turn unfinished", why=str(unfinished.exceptions[0]))
            except* Exception as bug:  # noqa: BLE001 - Faust would go on without the fold
                halt(bug)
            done.set()

        async def on_stop(self) -> None:
            if begun.is_set():  # else the worker is stopped before it got so far
                await done.wait()
            await producer.stop()

    return announced


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
