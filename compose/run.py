"""One stack, from an empty folder to ready and back: the order of things of ``up`` and ``demo``.

  1. the folder's lock: one supervisor at a time; who does not get it is told what runs
  2. take over: what a killed supervisor left running is stopped
  3. configuration: the working directory's, the folder's, or a new one
  4. log, warehouse, provider: each ready
  5. topics, migrations
  6. sinks, pipeline, edges: each ready; ``stack.json`` says so
  7. … until the block is left: all is stopped in reverse, ``stack.json`` is gone

Before this file: ``stack``, ``supervisor``, ``state``. After it: ``commands/up`` and ``demo``.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from compose import topics
from compose.config import SIMULATED, config_in_force, load_settings, write_development_config
from compose.embedded import model
from compose.embedded.kafka import PreparedKafka, prepare
from compose.embedded.kafka.process import start_mark
from compose.readiness import members_of
from compose.stack import (
    HOST,
    PIPELINE_GROUPS,
    SINK_GROUPS,
    Base,
    UpOptions,
    base_services,
    kafka_options,
    wanted_ports,
    worker_services,
)
from compose.state import ServerInfo, StackState
from compose.supervisor import Service, Supervisor, stop_leftovers
from compose.warehouse import migrate, version_of
from schemas.errors import TokentrailError
from schemas.settings import ClickHouse
from schemas.stopping import in_thread

Say = Callable[[str, str], None]


class AlreadyRuns(TokentrailError):
    """Another supervisor holds the folder. ``state`` None: it has only just begun."""

    def __init__(self, state: StackState | None) -> None:
        who = f" under process {state.supervisor_pid}" if state is not None else ""
        super().__init__(
            f"The stack of this folder already runs{who}. Stop it there with Ctrl-C, or give another folder with --dir."
        )
        self.state = state


@asynccontextmanager
async def running(
    options: UpOptions, say: Say, hurry: asyncio.Event | None = None
) -> AsyncIterator[StackState]:
    """A ready stack. Raises AlreadyRuns, or the error of whatever could not be started; then nothing runs.

    Once ``hurry`` is set the stop waits for nobody: what still runs is killed.
    """
    with options.folder.lock() as ours:
        if not ours:
            state = options.folder.read_state()
            # What a dead supervisor left there stands until the one that takes over writes its own
            raise AlreadyRuns(state if state is not None and state.supervisor_runs else None)
        await _take_over(options, say)
        base = _decide(options, say)
        kafka = None
        if base.runs_kafka:
            say("up", "preparing Kafka (the first time on a machine it downloads 43 MB)")
            kafka = await in_thread(lambda: prepare(kafka_options(options)))
        services = base_services(options, base, kafka)
        runner = _Runner(options, base, kafka, say, hurry or asyncio.Event())
        try:
            await runner.start(services)
            yield runner.state
        finally:
            say("up", "stopping")
            await runner.supervisor.stop()
            options.folder.forget_state()
            say("up", "stopped; nothing is left running")


class _Runner:
    """Ties the supervisor to ``stack.json``."""

    def __init__(
        self, options: UpOptions, base: Base, kafka: PreparedKafka | None, say: Say, hurry: asyncio.Event
    ) -> None:
        self._options, self._base, self._say = options, base, say
        self.bootstrap_servers = kafka.bootstrap_servers if kafka else base.settings.kafka.bootstrap_servers
        self.supervisor = Supervisor(options.folder.logs, say, self._write, hurry)
        self.state = StackState(
            supervisor_pid=os.getpid(),
            supervisor_mark=start_mark(os.getpid()) or "",
            started_us=time.time_ns() // 1000,
            config=str(base.config.absolute()),
            kafka=ServerInfo(
                address=self.bootstrap_servers,
                kind="embedded" if kafka else "external",
                version=kafka.version if kafka else "",
            ),
            clickhouse=ServerInfo(
                address=base.clickhouse_url, kind="embedded" if base.runs_clickhouse else "external"
            ),
            edges=[f"http://{HOST}:{base.ports[f'edge-{n}']}" for n in range(1, options.edges + 1)],
            model=base.default_model,
        )

    @property
    def _warehouse(self) -> ClickHouse:
        return self._base.settings.clickhouse.model_copy(update={"url": self._base.clickhouse_url})

    async def start(self, base_services: list[Service]) -> None:
        self._write()
        await self.supervisor.start(base_services)
        applied = await topics.apply(
            self.bootstrap_servers, window_days=self._base.settings.resume.window_days
        )
        self._say("topics", f"{len(applied.created)} created, {len(applied.altered)} altered, rest right")
        migrated = await in_thread(lambda: migrate(self._warehouse))
        version = await in_thread(lambda: version_of(self._warehouse))
        self._say("clickhouse", f"version {version}; {len(migrated)} migration(s) applied")
        clickhouse = msgspec.structs.replace(self.state.clickhouse, version=version)
        self.state = msgspec.structs.replace(self.state, clickhouse=clickhouse)
        # A killed worker stays in its groups for seconds: what it left is not the readiness of the next one
        left = await members_of(self.bootstrap_servers, (*SINK_GROUPS, *PIPELINE_GROUPS))
        await self.supervisor.start(worker_services(self._options, self._base, self.bootstrap_servers, left))
        self.state = msgspec.structs.replace(self.state, ready=True)
        self._write()

    def _write(self) -> None:
        self.state = msgspec.structs.replace(self.state, processes=self.supervisor.running)
        self._options.folder.write_state(self.state)


async def _take_over(options: UpOptions, say: Say) -> None:
    """Stop what a supervisor left running when it was killed; then the folder is as after a clean stop."""
    left = options.folder.read_state()
    if left is None:
        return
    alive = [process for process in left.processes if process.runs]
    if alive:
        names = ", ".join(process.name for process in alive)
        say("up", f"the last supervisor (process {left.supervisor_pid}) died; stopping what it left: {names}")
        await stop_leftovers(alive)
    options.folder.forget_state()


def _decide(options: UpOptions, say: Say) -> Base:
    """Which configuration is in force, what runs embedded, on which ports."""
    wanted = wanted_ports(options)
    # A port that the caller named is had, or the stack does not start; the edges' default one is only preferred
    demanded = {n for n, port in wanted.items() if port and (options.edge_port or not n.startswith("edge-"))}
    ports = options.folder.ports(wanted, demanded)
    for name, port in wanted.items():
        if port and ports[name] != port:  # examples name the usual ports: say where theirs went
            say("up", f"port {port} is taken by another program: {name} is at {ports[name]}")
    config = config_in_force(options.folder, options.cwd)
    if not config.exists():
        keys = write_development_config(options.folder, f"http://{HOST}:{ports['simulator']}")
        say("up", f"wrote {config}")
        for tenant, key in keys.items():
            say("up", f"development key of {tenant}: {key}")
    settings = load_settings(config)
    return Base(
        settings=settings,
        config=config,
        ports=ports,
        runs_kafka="bootstrap_servers" not in settings.kafka.model_fields_set,
        runs_clickhouse=not settings.clickhouse.url,
        runs_simulator=bool(SIMULATED.keys() & settings.providers.keys()),
        weights=model.weights(options.folder.path / "model") if options.with_model else None,
    )
