"""One edge's working parts, and how a generation begins: everything behind the HTTP surface.

``begin`` appends message_start and attempt_start, waits for their acknowledgement, and starts the driver: only here is a
generation born. ``enter`` and ``launch`` are its halves, between which ``once`` decides. ``start`` and ``stop`` own the
process's resources: a stop lets running generations end for a while, then ends the rest as ``edge_lost`` itself.

Before: ``routes``, ``opening``. After: ``driver``.
"""

import asyncio
from collections.abc import Mapping

import structlog

from edge.admission.gate import STOPPING, Admission, Slot
from edge.auth import Keys
from edge.clock import Clock
from edge.configured import Configured
from edge.dialects import ClientRequest, Dialect
from edge.driver import FOREIGN_TERMINAL, Driver
from edge.driving.afterwards import ended_by_log
from edge.driving.ending import end_unbegun
from edge.driving.opening import Opening
from edge.driving.successor import begin_successor
from edge.driving.tools import Tools
from edge.generation import Follows, Identity
from edge.idempotency.once import Once
from edge.log import EventLog, LogAway
from edge.metrics import Metrics
from edge.policy.routes import Target
from edge.provider.health import Health
from edge.provider.upstream import Upstream
from edge.reading.archive import Archive
from edge.reading.resume import Desk
from edge.recorder import LOG_UNAVAILABLE, Recorder
from edge.registry import Entry, Registry
from schemas.codec import Codec
from schemas.errors import TokentrailError
from schemas.outcomes import ERRORS
from schemas.settings import ApiKey, Settings
from schemas.signing import Signing
from schemas.stopping import to_the_end

log = structlog.get_logger()
_NOT_TAKEN = "the log did not take the start of the generation in time"


class Busy(TokentrailError):
    """This edge runs as many generations as it may."""


class EdgeService:
    """The process behind the routes."""

    def __init__(self, settings: Settings, event_log: EventLog, codec: Codec, clock: Clock) -> None:
        self.settings = settings
        self.log = event_log
        self.codec = codec
        self.clock = clock
        self.metrics = Metrics(settings.models, clock.now_us)
        self.keys = Keys(settings.keys, clock.wall_us)
        self.registry = Registry(settings, self.metrics, clock.now_us)
        self.configured = Configured(
            lambda: clock.wall_us() // 1000, self.registry.erase, self.keys.configure
        )
        self.archive = Archive(settings.clickhouse) if settings.clickhouse.url else None
        of_log = (settings, event_log, codec, self.registry, clock)
        self.desk = Desk(*of_log, self.archive, self.configured, self.keys.ids_of)
        self.health = Health(settings)
        self.admission = Admission(settings, clock.now_us, self.metrics.waiting.set_function)
        self.metrics.watch(self.health, settings.providers, self.registry.log_lag_ms)
        self.upstream = Upstream(settings.timeout.connect_s, settings.limit.upstream_head_bytes)
        self.signing = Signing(settings.secrets.cursor)
        self.stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: list[asyncio.Task[None]] = []
        self._winding: asyncio.Task[None] | None = None
        self.opening = Opening(settings, clock, event_log.partitions, self.secret_of)
        self.once = Once(self)
        self.tools = Tools(self)

    async def start(self) -> None:
        """Connect, once, whoever asks; raises LogAway with what to do."""
        if self._following:
            return
        await self.log.start()
        await self.upstream.start()
        for work in (
            self.registry.follow_control(self.log, self.codec),
            self.configured.follow(self.log, self.codec),
            self.once.claims.follow(self.log, self.codec),
            self.registry.keep_budget_always(),
        ):
            task = asyncio.get_running_loop().create_task(to_the_end(work))
            task.add_done_callback(_report)
            self._following.append(task)

    async def wind_up(self) -> None:
        """Let running generations end for a while, then end the rest; once, and before their readers' connections."""
        self.stopping = True
        self.admission.stop()
        if self._winding is None:
            self._winding = asyncio.get_running_loop().create_task(self._wind_up())
        await asyncio.shield(self._winding)

    async def _wind_up(self) -> None:
        running = [entry.generation for entry in self.registry.running()]
        if running:
            ends = [asyncio.ensure_future(generation.ended.wait()) for generation in running]
            await asyncio.wait(ends, timeout=self.settings.edge.drain_s)
        for entry in self.registry.running():
            entry.driver.interrupt("edge_lost")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.settings.log.delivery_s)
        if left := [generation.id for generation in running if not generation.ended.is_set()]:
            log.warning("ends that the log did not take: the orphan finder writes them", generations=left)

    async def stop(self) -> None:
        """Wind up, flush and disconnect."""
        await self.wind_up()
        for task in self._following:
            task.cancel()
        if self.archive is not None:
            await self.archive.close()
        await self.upstream.stop()
        await self.log.stop()

    async def ready(self) -> str | None:
        """None when this edge can serve, else what is missing."""
        if self.stopping:
            return "stopping"
        heard = self.log
        read = {"control": heard.control_read, "config": heard.config_read, "claims": heard.claims_read}
        if unread := [topic for topic, whole in read.items() if not whole]:
            return f"{unread[0]} is not read to its end yet"
        if any(task.done() for task in self._following):
            return "what other edges and operators say is not heard any more: restart this edge"
        try:
            await self.log.bounds(0)
        except LogAway as away:
            return str(away)
        return None

    async def begin(
        self,
        caller: ApiKey,
        dialect: Dialect,
        request: ClientRequest,
        headers: Mapping[str, str],
        follows: Follows | None = None,
    ) -> Entry:
        """A generation whose opening is acknowledged; raises BadRequest, Busy, ProvidersAway, LogAway, and as ``admit``."""
        entry = await self._admitted(caller, dialect, request, headers, follows=follows)
        await self.launch(entry)
        return entry

    async def enter(
        self,
        caller: ApiKey,
        dialect: Dialect,
        request: ClientRequest,
        headers: Mapping[str, str],
        key_hash: str,
    ) -> Entry:
        """A generation of which the log has message_start and no attempt yet: ``launch`` or ``end_unbegun`` follows."""
        entry = await self._admitted(caller, dialect, request, headers, key_hash)
        try:
            opened = await entry.driver.recorder.settled(self.settings.log.start_ack_s)
        except BaseException:
            self.end_unbegun(entry, "edge_lost")
            raise
        if not opened:
            self.end_unbegun(entry, LOG_UNAVAILABLE)
            raise LogAway(_NOT_TAKEN)
        return entry

    async def launch(self, entry: Entry) -> None:
        """Announce the first attempt and start the driver once that is acknowledged; raises LogAway."""
        driver, opened = entry.driver, False
        try:
            driver.announce_first()
            acked = await driver.recorder.settled(self.settings.log.start_ack_s)
            opened = acked and not entry.generation.on_log  # it slept: by now it may have been taken for dead
        finally:
            if not opened:  # the start may be in the log all the same, so it has an end too
                driver.interrupt(LOG_UNAVAILABLE)
            self._spawn(self._run(entry))
        if not opened:
            raise LogAway(_NOT_TAKEN)

    def end_unbegun(self, entry: Entry, code: str, successor: str | None = None) -> None:
        """End a generation before any attempt of it; ``successor`` stands in its place."""
        message = ERRORS[code].meaning + (f" It is {successor}." if successor is not None else "")
        end_unbegun(entry.driver, code, message, successor)
        self._spawn(self._run(entry, begun=False))

    async def _admitted(
        self,
        caller: ApiKey,
        dialect: Dialect,
        request: ClientRequest,
        headers: Mapping[str, str],
        key_hash: str | None = None,
        follows: Follows | None = None,
    ) -> Entry:
        """A generation that had its turn, its message_start on the way; from here on its end gives the slot back."""
        targets = self.opening.targets(request.model, dialect.name)
        self._check(request.model, targets)
        slot = await self.admission.admit(caller, targets, headers, follows=follows is not None)
        try:
            self._check(request.model, targets)  # it may have waited
            entry = self._born(caller, dialect, request, headers, key_hash, slot, slot.first(targets))
        except BaseException:
            slot.release()
            raise
        try:
            entry.generation.follows = follows
            entry.driver.open()
        except BaseException:
            self.registry.finish(entry)
            raise
        return entry

    def _check(self, model: str, targets: list[Target]) -> None:
        if self.stopping:
            raise LogAway(STOPPING)
        self.health.check(model, [t.route.provider for t in targets], self.clock.now_us())
        if self.registry.full:
            raise Busy("this edge runs as many generations as it may (limit.generations)")

    def _born(
        self,
        caller: ApiKey,
        dialect: Dialect,
        request: ClientRequest,
        headers: Mapping[str, str],
        key_hash: str | None,
        slot: Slot,
        targets: list[Target],
    ) -> Entry:
        generation = self.opening.generation(
            caller, dialect.name, request, targets, headers, key_hash, slot.waited_us
        )
        settings, clock = self.settings, self.clock
        told = (self.log, self.codec, clock, settings.edge.id, int(settings.pipeline.orphan_after_s * 5e5))
        recorder = Recorder(generation, *told, lambda reason: self._log_failed(entry, reason))
        recorder.published = self.metrics.publish_ms.observe
        driver = Driver(
            generation, recorder, request, dialect, targets, self.upstream, settings, clock, self.health
        )
        driver.named = lambda upstream_id: self._named(generation.identity, upstream_id)
        driver.unacked_max = self.registry.unacked_share
        driver.begin_successor = lambda driver, kind: begin_successor(self, caller, driver, headers, kind)
        entry = self.registry.add(generation, driver, slot)
        return entry

    def secret_of(self, generation_id: str) -> bytes:
        """The secret that signs a generation's ids: the one in force at its start, whoever reads and whenever."""
        return self.signing.secret_of(generation_id, self.clock.wall_us())

    async def _run(self, entry: Entry, *, begun: bool = True) -> None:
        try:
            if begun:
                await entry.driver.run()
            await entry.driver.recorder.settled(self.settings.log.delivery_s)
        finally:
            self.registry.finish(entry)
            self.tools.ended(entry.generation, entry.tools_reported)
        self.metrics.count(entry.generation, entry.driver)

    def _named(self, identity: Identity, upstream_id: str) -> None:
        """The provider's id of an answer is known: every edge is told whose it is, this one at once."""
        record = self.registry.named(identity, upstream_id, self.settings.edge.id, self.clock.wall_us())
        self._spawn(self.log.tell(identity.generation_id.encode(), self.codec.encode(record)))

    def _log_failed(self, entry: Entry, reason: str) -> None:
        if reason == LOG_UNAVAILABLE:
            entry.driver.log_failed()
        if entry.generation.start_offset is not None:
            self._spawn(self._watch_log(entry))

    async def _watch_log(self, entry: Entry) -> None:
        """Emitting from memory is over: the terminal is whatever the log says, ours or another writer's."""
        terminal = await ended_by_log(self.log, self.codec, entry.generation)
        if terminal is not None and terminal.event.edge_id != self.settings.edge.id:
            entry.driver.interrupt(FOREIGN_TERMINAL)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_report)


def _report(task: "asyncio.Task[None]") -> None:
    """A bug is said loudly; the generation it hit was ended by its driver or will be by the orphan finder."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a task of this edge failed", error=repr(error), exc_info=error)
