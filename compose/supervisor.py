"""Child processes kept alive: started when what they need is ready, started again when they die, stopped in reverse.

Invariants: a child that dies is started again with the same command, hence the same port and the same data, after a
delay that grows with each death in a row; children write straight to their log files, so that the death of the
supervisor disturbs none of them; a stop wakes whoever is frozen (a worker may need that log to commit), then goes from the
highest tier to the lowest, each tier at once and awaited for its grace.
Before this file: ``stack`` says what to run. After it: ``run`` ties it to the folder's lock and state.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compose.embedded.kafka.process import PidRecord, start_mark, terminate
from compose.state import RunningProcess
from schemas.errors import TokentrailError

READY_TIMEOUT_S = 90.0
"""A first start on a busy two-core machine took 25 s at worst; later than this something is wrong."""
FIRST_STARTS_MAX = 3
"""Deaths before the first readiness after which starting is given up: a third try has never helped."""
DELAY_FIRST_S = 0.2
DELAY_MAX_S = 10.0
HEALTHY_S = 30.0
"""Who lived so long did not die of its start."""
PROBE_GRACE_S = 3.0
"""How long a stop waits for questions under way: an HTTP probe gives up after 2 s."""
_POLL_S = 0.1
_LOG_BYTES_MAX = 32 << 20
_TAIL_BYTES = 4_000
_TAIL_LINES = 8


class StartFailed(TokentrailError):
    """A child could not be started; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a child died in a row, and how long to wait before it is started again."""

    deaths: int = 0

    @property
    def delay_s(self) -> float:
        """0.2 s after the first death, twice as long after each further one, at most 10 s."""
        return 0.0 if not self.deaths else min(DELAY_MAX_S, DELAY_FIRST_S * 2 ** (self.deaths - 1))

    def after_death(self, lived_s: float) -> "Restarts":
        """The next count; a long life makes it a first death again."""
        return Restarts(1 if lived_s >= HEALTHY_S else self.deaths + 1)


@dataclass(frozen=True, slots=True)
class Service:
    """One process to keep alive. ``env`` takes the number of the start (from 1): some names are unique per process."""

    name: str
    tier: int
    command: Sequence[str]
    cwd: Path
    env: Callable[[int], Mapping[str, str]]
    is_ready: Callable[[], Awaitable[bool]]
    url: str = ""
    stop_grace_s: float = 10.0
    on_started: Callable[[int], None] = lambda _: None
    explain_exit: Callable[[int], str] = lambda _: ""


@dataclass(slots=True)
class _Child:
    service: Service
    process: asyncio.subprocess.Process | None = None
    mark: str = ""
    starts: int = 0
    restarts: Restarts = field(default_factory=Restarts)
    was_ready: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Supervisor:
    """Keeps services alive until ``stop``. ``say(name, line)`` tells people; ``on_change`` runs after every start."""

    def __init__(
        self,
        logs: Path,
        say: Callable[[str, str], None],
        on_change: Callable[[], None],
        hurry: asyncio.Event | None = None,
    ) -> None:
        self._logs, self._say, self._on_change = logs, say, on_change
        self._hurry = hurry or asyncio.Event()
        self._children: dict[str, _Child] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        logs.mkdir(parents=True, exist_ok=True)

    @property
    def running(self) -> list[RunningProcess]:
        """The children that run now."""
        return [
            RunningProcess(
                name=child.service.name,
                pid=child.process.pid,
                mark=child.mark,
                tier=child.service.tier,
                stop_grace_s=child.service.stop_grace_s,
                url=child.service.url,
                starts=child.starts,
            )
            for child in self._children.values()
            if child.process is not None and child.process.returncode is None
        ]

    async def start(self, services: Sequence[Service], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start these together and return when all are ready. Raises StartFailed; what runs is left to ``stop``."""
        children = [_Child(service) for service in services]
        for child in children:
            self._children[child.service.name] = child
            child.task = asyncio.create_task(self._keep(child), name=f"keep {child.service.name}")
        waits = [asyncio.create_task(_first_ready(child, child.task)) for child in children if child.task]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*waits)
        except TimeoutError:
            late = ", ".join(c.service.name for c in children if not c.was_ready.is_set())
            raise StartFailed(
                f"Not ready after {timeout_s:.0f} s: {late}. See the logs in {self._logs}."
            ) from None
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def stop(self) -> None:
        """Stop all, the highest tier first; a process that outlives its grace is killed, and all are once ``hurry`` is set."""
        for child in self._children.values():
            if child.process is not None and child.process.returncode is None:
                _signal(child.process, signal.SIGCONT)
        for tier in sorted({c.service.tier for c in self._children.values()}, reverse=True):
            tasks = []
            for child in self._children.values():
                if child.service.tier == tier and child.task is not None:
                    child.stop.set()
                    tasks.append(child.task)
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._watchers:
            await asyncio.wait(self._watchers, timeout=PROBE_GRACE_S)

    async def _keep(self, child: _Child) -> None:
        """One child's life: started, watched, started again, until it is to stop. Nobody else touches its process."""
        name = child.service.name
        while not child.stop.is_set():
            started_s = time.monotonic()
            how = await self._live(child)
            if child.stop.is_set():
                return
            child.restarts = child.restarts.after_death(time.monotonic() - started_s)
            if not child.was_ready.is_set() and child.restarts.deaths >= FIRST_STARTS_MAX:
                raise StartFailed(f"{name} does not start ({how}). {self._last_words(child)}")
            self._say(name, f"ended ({how}); it is started again in {child.restarts.delay_s:.1f} s")
            with contextlib.suppress(TimeoutError):  # the delay passed and nobody asked to stop
                async with asyncio.timeout(child.restarts.delay_s):
                    await child.stop.wait()

    async def _live(self, child: _Child) -> str:
        """Start the process and stay with it to its end, or end it when it is to stop; how it ended, in words."""
        try:
            process = await self._spawn(child)
        except OSError as error:  # no memory, no file handles, a full disk: as passing as a death
            return f"cannot be run: {error}"
        over = asyncio.Event()
        self._watch(child, over)
        stop = asyncio.create_task(child.stop.wait())
        exited = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({stop, exited}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.set()
            stop.cancel()
        if child.stop.is_set():
            await self._end(child.service, process)
        return _how_it_ended(await exited)

    async def _spawn(self, child: _Child) -> asyncio.subprocess.Process:
        service = child.service
        child.starts += 1
        path = self.log_file(service.name)
        if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
            path.replace(path.with_suffix(".log.1"))
        with path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *service.command,
                cwd=service.cwd,
                env=dict(service.env(child.starts)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a terminal's Ctrl-C is for the supervisor, which then stops in order
            )
        child.process, child.mark = process, start_mark(process.pid) or ""
        try:
            service.on_started(process.pid)
            self._on_change()
        except (
            OSError,
            TokentrailError,
        ) as error:  # it is kept alive, also where that cannot be written down
            self._say(service.name, f"its start could not be noted: {error}")
        return process

    def _watch(self, child: _Child, over: asyncio.Event) -> None:
        """Watch for readiness beside the child's life; a question under way is never cut off, only its answer dropped."""
        watcher = asyncio.create_task(self._watch_ready(child, over), name=f"watch {child.service.name}")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch_ready(self, child: _Child, over: asyncio.Event) -> None:
        started_s = time.monotonic()
        while not await child.service.is_ready():  # another process cannot set our events
            if over.is_set():
                return
            await asyncio.sleep(_POLL_S)
        if over.is_set():
            return
        took_s = time.monotonic() - started_s
        where = f" at {child.service.url}" if child.service.url else ""
        self._say(child.service.name, f"ready{where} after {took_s:.1f} s")
        child.was_ready.set()

    async def _end(self, service: Service, process: asyncio.subprocess.Process) -> None:
        _signal(process, signal.SIGTERM)
        _signal(process, signal.SIGCONT)  # a frozen process ends only after it thawed
        exited, hurried = asyncio.create_task(process.wait()), asyncio.create_task(self._hurry.wait())
        waits = (exited, hurried)
        await asyncio.wait(waits, timeout=service.stop_grace_s, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not exited.done():
            why = (
                "no more waiting"
                if self._hurry.is_set()
                else f"still runs {service.stop_grace_s:.0f} s after SIGTERM"
            )
            self._say(service.name, f"{why}: killed")
            _signal(process, signal.SIGKILL)

    def log_file(self, name: str) -> Path:
        """Where a child's output goes."""
        return self._logs / f"{name}.log"

    def _last_words(self, child: _Child) -> str:
        returncode = child.process.returncode if child.process is not None else None
        if returncode is not None and (explained := child.service.explain_exit(returncode)):
            return explained
        path = self.log_file(child.service.name)
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
        return f"The end of {path}:\n" + "\n".join(f"  {line}" for line in lines)


async def stop_leftovers(left: Sequence[RunningProcess]) -> None:
    """Stop what a dead supervisor left behind, the highest tier first; only processes that are still the same ones."""
    for tier in sorted({process.tier for process in left}, reverse=True):
        group = [process for process in left if process.tier == tier]
        records = [PidRecord(p.pid, p.mark, 0, "") for p in group]
        await asyncio.to_thread(terminate, records, max(p.stop_grace_s for p in group))


async def _first_ready(child: _Child, keeper: asyncio.Task[None]) -> None:
    """Return once the child is ready; raise what its keeper raises before that."""
    ready = asyncio.create_task(child.was_ready.wait())
    try:
        await asyncio.wait({ready, keeper}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
    if keeper.done():
        keeper.result()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return


def _how_it_ended(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    return f"killed by {signal.Signals(-returncode).name}"
