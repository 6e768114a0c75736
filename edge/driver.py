"""One task a generation: call the provider, capture, publish, and end it exactly once.

The order of things: message_start and attempt_start are acknowledged before the provider is called; events of an
attempt that is not committed are held without seq; the first content, or a proper end without any, commits it and
gives them their numbers; then every event is published as it is captured. An attempt's end is written before the
terminal. Whatever interrupts (cancel, time-outs, the log, another writer's terminal) cancels the reading of the
provider, which closes its socket, and the same ending is written in one place (``ending``).

Before: ``capture``, ``watch``, ``policy``, ``recorder``. After: ``follow``.
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import structlog

from edge.attempt import Attempt, AttemptResult
from edge.clock import Clock
from edge.dialects import ClientRequest, Dialect
from edge.ending import Ending, head_of, write_ending
from edge.generation import Generation
from edge.policy import Failure, Rules, after_failure
from edge.recorder import LOG_UNAVAILABLE, Recorder
from edge.timers import Timers
from edge.upstream import Upstream
from edge.watch import USAGE_GRACE, Limits, Watch
from schemas.events import (
    AttemptStart,
    CancelRequested,
    ClientReader,
    EndedBy,
    Kind,
)
from schemas.lifecycle import Signal, State
from schemas.outcomes import ERRORS
from schemas.settings import Provider, Route, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger()


class Target(NamedTuple):
    """Where an attempt goes."""

    route: Route
    provider: Provider


class Driver:
    """Runs one generation to its terminal."""

    def __init__(
        self,
        generation: Generation,
        recorder: Recorder,
        request: ClientRequest,
        dialect: Dialect,
        targets: list[Target],
        upstream: Upstream,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self.generation = generation
        self.recorder = recorder
        self.request = request
        self.dialect = dialect
        self.settings = settings
        self.clock = clock
        self.upstream = upstream
        self.watch = Watch(Limits.of(settings, background=request.background))
        self.targets = targets
        self.attempts_made = 0
        self.unknown_events = 0
        self.cancel: CancelRequested | None = None
        self._interrupt: str | None = None
        self._open: Attempt | None = None
        self._result: AttemptResult | None = None
        self._reading: asyncio.Task[AttemptResult] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.timers = Timers(generation, recorder, self.watch, settings, clock, self.interrupt)
        self.first_dispatched_us: int | None = None
        self.named: Callable[[str], None] = _nobody
        self.unacked_max: Callable[[], int] = lambda: settings.limit.unacked_bytes

    @property
    def interrupted(self) -> str | None:
        """Why the reading must end, once something asked for it."""
        return self._interrupt

    @property
    def tokens_seen(self) -> int:
        """Tokens of the running attempt so far, estimated."""
        return self._open.capture.tokens_estimate if self._open is not None else 0

    def open(self) -> None:
        """Append message_start; it and the first attempt_start are acknowledged before ``run`` calls anybody."""
        now_us = self.recorder.elapsed_us()
        self.recorder.numbered(Kind.MESSAGE_START, now_us, message_start=self.generation.identity.start)

    def announce_first(self) -> None:
        """Append the first attempt_start."""
        self._announce("first", None)

    async def run(self) -> None:
        """Everything after the opening was acknowledged."""
        self.generation.signal(Signal.START_ACKED)
        self.timers.start()
        try:
            await self._chain()
        except Exception:
            self._fail()
            raise
        finally:
            self.timers.stop()

    def _fail(self) -> None:
        """A bug of ours ended the driver: its generation still gets exactly one terminal."""
        if self.generation.state is State.FINALIZED:
            return
        attempt, written = self._open, self._open is None
        if attempt is None:
            attempt = Attempt(self, self.targets[0], max(0, self.attempts_made - 1))
        result = attempt.result(self._interruption("edge_lost"), ended_by=EndedBy.CUT)
        result.written = written
        self._end(result)

    def log_failed(self) -> None:
        """The log refused a record: the reading ends. Where the end was among it, an error stands for that."""
        if self.generation.state is not State.FINALIZED:
            self.interrupt(LOG_UNAVAILABLE)
        elif self._result is not None:
            result, self._result = self._result, None
            result.written = result.attempt in self.recorder.ends_acked
            self._end_as(result, LOG_UNAVAILABLE)
            write_ending(self, result, result.ending, terminal=self._interrupt != FOREIGN_TERMINAL)

    def interrupt(self, code: str) -> None:
        """End the reading now; the first reason stands."""
        if self._interrupt is None and self.generation.state is not State.FINALIZED:
            self._interrupt = code
            if self._reading is not None:
                self._reading.cancel()
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(None)

    def request_cancel(self, cancel: CancelRequested) -> None:
        """A cancel call: recorded, then the provider's socket is closed (soft: after the read in progress, if one is)."""
        if self.cancel is not None or self.generation.state is State.FINALIZED:
            return
        self.cancel = cancel
        self.recorder.trace(Kind.CANCEL_REQUESTED, cancel=cancel)
        if cancel.mode == "hard" or self._reading is None:
            self.interrupt("cancelled")
        else:
            soft_s = self.settings.cancel.soft_ms / 1000
            asyncio.get_running_loop().call_later(soft_s, self.interrupt, "cancelled")

    def note_reader(self, kind: Kind, reader: ClientReader) -> None:
        """Record that one of this edge's own readers came or left, while the generation runs."""
        if self.generation.state is not State.FINALIZED:
            self.recorder.trace(kind, client=reader)

    async def _chain(self) -> None:
        rules = Rules(self.settings.retry.max_attempts, self.settings.retry.backoff_ms, self._deadline_us())
        while True:
            result = await self._attempt(self.targets[self.attempts_made % len(self.targets)])
            self.attempts_made += 1
            self.unknown_events += result.capture.state.unknown_count
            code = result.ending.code
            if code is None or self._interrupt in _FINAL:
                break
            if (
                self.cancel is not None
            ):  # the attempt's own failure stands on it; the generation was cancelled
                write_ending(self, result, result.ending, terminal=False)
                result.ending = self._interruption("cancelled")
                break
            failure = Failure(
                code=code,
                committed=result.committed,
                attempts_made=self.attempts_made,
                now_us=self.recorder.elapsed_us(),
                retry_after=result.retry_after,
            )
            unix_s = self.clock.wall_us() / 1e6
            retry = after_failure(failure, rules, unix_s=unix_s, jitter=self.clock.jitter())
            if retry is None:
                break
            if not await self._again(result, retry.wait_us, retry.reason):
                break
        self._end(result)

    def _deadline_us(self) -> int:
        asked_ms = self.generation.identity.start.request_deadline_ms
        timeout = self.settings.timeout
        whole_s = timeout.generation_s if self.request.background else timeout.request_s
        whole_us = int(whole_s * 1_000_000)
        return whole_us if asked_ms is None else min(whole_us, asked_ms * 1000)

    async def _again(self, result: AttemptResult, wait_us: int, reason: str) -> bool:
        """Write the failed attempt, wait, announce the next; False where something interrupted the wait."""
        write_ending(self, result, result.ending, terminal=False)
        self._open = None
        self.generation.signal(Signal.ATTEMPT_FAILED)
        self._interrupt = None
        self.timers.rearm()
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(self._waiting, wait_us / 1e6)
        except TimeoutError:
            self._announce(reason, wait_us // 1000)
            if not await self.recorder.settled(self.settings.log.delivery_s):
                self.interrupt(LOG_UNAVAILABLE)
            return True  # an attempt that was announced has its end written, also where it is not called any more
        result.ending = self._interruption(self._interrupt or LOG_UNAVAILABLE)
        return False

    def _announce(self, reason: str, backoff_ms: int | None) -> None:
        target = self.targets[self.attempts_made % len(self.targets)]
        start = self.generation.identity.start
        self.recorder.trace(
            Kind.ATTEMPT_START,
            attempt=self.attempts_made,
            attempt_start=AttemptStart(
                provider=target.route.provider,
                model=target.route.model or self.request.model,
                reason="first" if reason == "first" else "retry",
                retry_reason=None if reason == "first" else reason,
                retry_count=self.attempts_made or None,
                same_prompt_hash=None if reason == "first" else True,
                priority=start.priority,
                deadline_ms=start.request_deadline_ms,
                backoff_ms=backoff_ms,
                prompt_hash=self.request.prompt_hash,
                idempotency_key_hash=start.idempotency_key_hash,
            ),
        )

    async def _attempt(self, target: Target) -> AttemptResult:
        attempt = self._open = Attempt(self, target, self.attempts_made)
        if self._interrupt is None:
            self._reading = asyncio.get_running_loop().create_task(attempt.read())
            await asyncio.wait({self._reading})
            reading, self._reading = self._reading, None
            self.watch.attempt_over()
            if not reading.cancelled():
                return reading.result()
        code = self._interrupt or "cancelled"
        if code == USAGE_GRACE:
            return attempt.result(Ending.proper(self.dialect))
        ended_by = _ENDED_BY.get(code, EndedBy.WATCHDOG)
        if code == "cancelled" and self.cancel is not None and self.cancel.reason == "client_disconnect":
            ended_by = EndedBy.DISCONNECT
        return attempt.result(self._interruption(code), ended_by=ended_by)

    def _interruption(self, code: str) -> Ending:
        if code == "cancelled":
            return Ending(code="cancelled", cancelled=True, message=ERRORS["cancelled"].meaning)
        known = code if code in ERRORS else LOG_UNAVAILABLE
        return Ending(code=known, message=ERRORS[known].meaning)

    def _end_as(self, result: AttemptResult, code: str) -> None:
        """What the attempt came to stands on its own end; the generation ends as something else."""
        write_ending(self, result, result.ending, terminal=False)
        result.ending = self._interruption(code)

    def _end(self, result: AttemptResult) -> None:
        if self.recorder.failed and (result.ending.code is None or result.ending.cancelled):
            self._end_as(result, LOG_UNAVAILABLE)  # a message_end behind a hole would be no end to anybody
        ending, self._result = result.ending, result
        write_ending(self, result, ending, terminal=self._interrupt != FOREIGN_TERMINAL)
        self.generation.signal(Signal.TERMINAL)
        if not self.generation.head.done():
            self.generation.head.set_result(head_of(self.dialect, ending))


def _nobody(upstream_id: str) -> None:
    """The provider's id of an answer, where nobody comes back for it by that id."""
    del upstream_id


FOREIGN_TERMINAL = "foreign_terminal"
"""Another writer (the orphan finder) has ended the generation: only the attempt's end is left to be said."""
_FINAL = ("cancelled", "edge_lost", LOG_UNAVAILABLE, FOREIGN_TERMINAL)
_ENDED_BY = {
    "cancelled": EndedBy.CANCEL,
    "edge_lost": EndedBy.CUT,
    LOG_UNAVAILABLE: EndedBy.CUT,
    FOREIGN_TERMINAL: EndedBy.CUT,
}
