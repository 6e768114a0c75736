"""The processes that a row needs: the commands and environments are those of `tokentrail up`, nothing is started again.

Each is a process of its own, so that its CPU can be read from /proc; a process that ends while it is measured makes the
row fail. Everything lives in a temporary folder and on free ports, and is stopped in reverse.
Before: the rows. After: `compose.stack`.
"""

import asyncio
import dataclasses
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compose import topics
from compose.client import answers_ok
from compose.config import load_settings, write_development_config
from compose.embedded.kafka import prepare
from compose.stack import (
    HOST,
    Base,
    Tier,
    UpOptions,
    base_services,
    kafka_options,
    wanted_ports,
    worker_services,
)
from compose.state import Folder
from compose.supervisor import READY_TIMEOUT_S, Service
from compose.warehouse import migrate
from schemas.errors import TokentrailError
from schemas.settings import ClickHouse

ROOT = Path(__file__).parents[2]
TENANT = "acme"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_POLL_S = 0.05
_LAST_LINES = 8


class BenchFailed(TokentrailError):
    """There is no figure; the message says why."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process under measurement."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @property
    def cpu_s(self) -> float:
        """CPU seconds that it has used, user and system, all threads."""
        self.check()
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def check(self) -> None:
        """Raise BenchFailed where it runs no more, with its last words."""
        if self.process.returncode is not None:
            words = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise BenchFailed(
                f"{self.name} ended (exit code {self.process.returncode}):\n  " + "\n  ".join(words)
            )


@dataclass(slots=True)
class Stack:
    """What runs, by name."""

    folder: Folder
    kafka: str
    clickhouse: ClickHouse
    ports: dict[str, int]
    key: str
    services: dict[str, Service]
    children: dict[str, Child] = field(default_factory=dict)

    def cpu_s(self, name: str) -> float:
        """CPU seconds that a process has used."""
        return self.children[name].cpu_s

    @asynccontextmanager
    async def running(self, *names: str, awaited: bool = True) -> AsyncIterator[None]:
        """Run these, ready one after the other, for the length of the block; ``awaited`` False: do not wait for it."""
        async with AsyncExitStack() as stack:
            for name in names:
                await stack.enter_async_context(self._run(self.services[name], awaited=awaited))
            yield
            for name in names:
                self.children[name].check()

    @asynccontextmanager
    async def _run(self, service: Service, *, awaited: bool) -> AsyncIterator[None]:
        log = self.folder.logs / f"{service.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *service.command,
                cwd=service.cwd,
                env=dict(service.env(1)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a terminal's Ctrl-C is for us, who then stop all in order
            )
        child = self.children[service.name] = Child(service.name, process, log)
        service.on_started(process.pid)
        try:
            if awaited:
                await _ready(child, service)
            yield
        finally:
            del self.children[service.name]
            await end_process(process, service.stop_grace_s)


@asynccontextmanager
async def bench_stack(*started: str, edges: int = 0) -> AsyncIterator[Stack]:
    """A log with its topics, and of the rest what is named: provider, bare_proxy, clickhouse, sinks, pipeline, edge-1 …

    What is not started here can be run later for a while: ``Stack.running``.
    """
    with tempfile.TemporaryDirectory(prefix="tokentrail-bench-") as path:
        stack, applied_window_days = await _prepared(Folder(Path(path)), edges)
        async with stack.running("kafka"):
            await topics.apply(stack.kafka, window_days=applied_window_days)
            async with AsyncExitStack() as parts:
                for name in started:
                    await parts.enter_async_context(stack.running(name))
                    if name == "clickhouse":
                        await asyncio.to_thread(migrate, stack.clickhouse)
                yield stack


async def _prepared(folder: Folder, edges: int) -> tuple[Stack, int]:
    """Everything decided, nothing started; and how many days a resume may look back."""
    environ = {**os.environ, "TOKENTRAIL_EDGE__DRAIN_S": "0"}  # what still runs at the end is of no interest
    options = UpOptions(folder=folder, environ=environ, edges=edges, edge_port=0)
    ports = folder.ports({**wanted_ports(options), "bare_proxy": 0})
    keys = write_development_config(folder, f"http://{HOST}:{ports['simulator']}")
    settings = load_settings(folder.config)
    base = Base(
        settings=settings,
        config=folder.config,
        ports=ports,
        runs_kafka=True,
        runs_clickhouse=True,
        runs_simulator=True,
    )
    kafka = await asyncio.to_thread(prepare, kafka_options(options))
    services = {service.name: service for service in base_services(options, base, kafka)}
    services |= {service.name: service for service in worker_services(options, base, kafka.bootstrap_servers)}
    simulator = services.pop("simulator")
    services["provider"] = _of_bench(simulator, "provider", "provider", str(ports["simulator"]))
    proxy = _of_bench(simulator, "bare_proxy", "bare_proxy", str(ports["bare_proxy"]), simulator.url)
    services["bare_proxy"] = dataclasses.replace(proxy, is_ready=_answers(ports["bare_proxy"]))
    stack = Stack(
        folder=folder,
        kafka=kafka.bootstrap_servers,
        clickhouse=settings.clickhouse.model_copy(update={"url": base.clickhouse_url}),
        ports=ports,
        key=keys[TENANT],
        services=services,
    )
    return stack, settings.resume.window_days


def _of_bench(like: Service, name: str, module: str, *words: str) -> Service:
    command: Sequence[str] = [sys.executable, "-m", f"tests.bench.{module}", *words]
    return dataclasses.replace(like, name=name, tier=Tier.BASE, command=command, cwd=ROOT)


def _answers(port: int) -> Callable[[], Awaitable[bool]]:
    return lambda: answers_ok(f"http://{HOST}:{port}/healthz")


async def _ready(child: Child, service: Service) -> None:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not await service.is_ready():
        child.check()
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{child.name} was not ready within {READY_TIMEOUT_S:.0f} s")
        await asyncio.sleep(_POLL_S)


async def end_process(process: asyncio.subprocess.Process, grace_s: float) -> None:
    """SIGTERM, and SIGKILL where that does not help in time."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), grace_s)
        except TimeoutError:
            process.kill()
            await process.wait()
