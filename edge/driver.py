"""One generation from its opening to its end: exactly one terminal, whatever happens to it.

The order of things: message_start and the first attempt_start are acknowledged before the provider is called; events of
an attempt that is not committed are held without seq; what has something to deliver first is committed, and its events
get their numbers; then every event is published as it is captured. An attempt's end is written before the terminal.
Whatever interrupts (cancel, time-outs, the log, another writer's terminal) cancels the reading of the providers, which
closes their sockets, and the same ending is written in one place (``ending``).

Before: ``race`` (which runs the attempts), ``recorder``. After: ``follow``.
"""

import asyncio
from typing import TYPE_CHECKING

import structlog

from edge.admission.holdings import Holdings
from edge.attempts.announcing import Lineage
from edge.attempts.attempt import Attempt
from edge.attempts.attempt_result import AttemptResult
from edge.attempts.race import Race
from edge.attempts.stopping import FOREIGN_TERMINAL
from edge.clock import Clock
from edge.dialects import ClientRequest, Dialect
from edge.driving.ending import head_of, interruption, write_ending
from edge.driving.timers import Timers
from edge.driving.watch import Limits
from edge.generation import Generation
from edge.policy.changes import Shrunk, shrink
from edge.policy.moves import Rules
from edge.policy.routes import Target
from edge.policy.succession import asked_for
from edge.provider.health import Health
from edge.provider.upstream import Upstream
from edge.recorder import LOG_UNAVAILABLE, Recorder
from schemas.events import CancelRequested, ClientReader, EndedBy, Kind
from schemas.lifecycle import Signal, State
from schemas.settings import Settings
from schemas.usage import tokens_of_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["FOREIGN_TERMINAL", "Driver"]

log = structlog.get_logger()


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
        health: Health,
    ) -> None:
        self.generation = generation
        self.recorder = recorder
        self.request = request
        self.dialect = dialect
        self.settings = settings
        self.clock = clock
        self.upstream = upstream
        self.wishes = generation.wishes
        self.targets = targets
        self._learn(health)
        deadline_ms = generation.identity.start.request_deadline_ms
        self.limits = Limits.of(settings, background=request.background, deadline_ms=deadline_ms)
        self.unknown_events = 0
        self.cancel: CancelRequested | None = None
        self.interrupted: str | None = None
        self._result: AttemptResult | None = None
        shrunk = self._shorter()
        self.race = Race(self, health, self._rules(shrunk), Lineage(self, shrunk))
        self.timers = Timers(
            generation, recorder, settings, clock, self.race.deadline_us, self.race.expire, self.interrupt
        )
        self.holdings = Holdings(int(settings.disconnect.grace_s * 1_000_000))
        self.first_dispatched_us: int | None = None
        self.successor: str | None = None
        self.begin_successor: Callable[[Driver, str], Awaitable[str | None]] = _no_successor
        self.named: Callable[[str], None] = _nobody
        self.unacked_max: Callable[[], int] = lambda: settings.limit.unacked_bytes

    @property
    def attempts_made(self) -> int:
        """How many attempts were announced."""
        return self.race.chain.made

    @property
    def holds_whole(self) -> bool:
        """Whether the whole answer is held: nobody reads it before its end, and something could still better it."""
        return not (self.request.stream or self.request.background) and (
            self.wishes.hedge.on or self.wishes.repair
        )

    @property
    def tokens_seen(self) -> int:
        """Tokens of the attempts in flight so far, estimated."""
        return max((a.capture.tokens_estimate for a in self.race.live.values()), default=0)

    @property
    def ending(self) -> bool:
        """Whether nothing new is begun: it was interrupted, or a cancel waits for the read in progress."""
        return self.interrupted is not None or self.cancel is not None

    def open(self) -> None:
        """Append message_start; it and the first attempt_start are acknowledged before ``run`` calls anybody."""
        now_us = self.recorder.elapsed_us()
        self.recorder.numbered(Kind.MESSAGE_START, now_us, message_start=self.generation.identity.start)

    def announce_first(self) -> None:
        """Append the first attempt_start."""
        self.race.begin()

    async def run(self) -> None:
        """Everything after the opening was acknowledged."""
        self.generation.signal(Signal.START_ACKED)
        self.timers.start()
        try:
            result = await self.race.run()
            kind = self._what_follows(result)
            self.successor = None if kind is None else await self.begin_successor(self, kind)
            if result.unchecked and not result.written:
                self._end_as(result, "postprocess_timeout")
            if self.cancel is not None and result.ending.code not in (None, "cancelled"):
                self._end_as(result, "cancelled")
            self._end(result)
        except Exception:
            self._fail()
            raise
        finally:
            self.timers.stop()

    def _what_follows(self, result: AttemptResult) -> str | None:
        """``restart``, ``continue`` or None: what the client asked for where it ended like this.

        Nothing follows by itself a side effect or an approved action, nor what was cancelled or is not in the log.
        """
        if not result.committed or self.interrupted is not None or self.cancel is not None:
            return None
        if self.recorder.failed or self.race.chain.forbidden:
            return None
        return asked_for(result.ending.code, self.wishes.on_stall, self.wishes.on_break)

    def _fail(self) -> None:
        """A bug of ours ended the driver: its generation still gets exactly one terminal."""
        if self.generation.state is State.FINALIZED:
            return
        result = self.race.abandoned()
        if result is None:
            result = Attempt(self, self.targets[0], 0).result(interruption("edge_lost"), EndedBy.CUT)
            result.written = True
        self._end(result)

    def log_failed(self) -> None:
        """The log refused a record: the reading ends. Where the end was among it, an error stands for that."""
        if self.generation.state is not State.FINALIZED:
            self.interrupt(LOG_UNAVAILABLE)
        elif self._result is not None:
            result, self._result = self._result, None
            result.written = result.attempt in self.recorder.ends_acked
            self._end_as(result, LOG_UNAVAILABLE)
            write_ending(self, result, result.ending, terminal=self.interrupted != FOREIGN_TERMINAL)

    def interrupt(self, code: str) -> None:
        """End the reading now; the first reason stands."""
        if self.interrupted is None and self.generation.state is not State.FINALIZED:
            self.interrupted = code
            self.race.stop()

    def forbid_retries(self) -> None:
        """A side effect was committed, or an action approved, behind this answer: nothing is tried again by itself."""
        self.race.forbid()

    def request_cancel(self, cancel: CancelRequested) -> None:
        """A cancel call: recorded, then the providers' sockets are closed (soft: after the read in progress, if one is).

        The first one is on record; a later one that is hard does not wait for what a soft one left time for.
        """
        if self.generation.state is State.FINALIZED:
            return
        if self.cancel is None:
            self.cancel = cancel
            self.recorder.trace(Kind.CANCEL_REQUESTED, cancel=cancel)
        elif cancel.mode == "soft":
            return
        if cancel.mode == "hard" or not self.race.reading:
            self.interrupt("cancelled")
        else:
            soft_s = self.settings.cancel.soft_ms / 1000
            asyncio.get_running_loop().call_later(soft_s, self.interrupt, "cancelled")

    def note_reader(self, kind: Kind, reader: ClientReader) -> None:
        """Record that one of this edge's own readers came or left, while the generation runs."""
        if self.generation.state is not State.FINALIZED:
            self.recorder.trace(kind, client=reader)

    def _learn(self, health: Health) -> None:
        """Where a hedge's time is learned: what the first target's recent answers say."""
        hedge, route = self.wishes.hedge, self.targets[0].route
        if hedge.quantile is not None:
            model = route.model or self.request.model
            found_us = health.latencies.quantile_us(route.provider, model, hedge.quantile)
            self.wishes = self.wishes._replace(hedge=hedge.learned(found_us))

    def _shorter(self) -> Shrunk | None:
        """The request without its oldest turns, where it is long enough to be careful with and its key allows that."""
        budget = self.settings.retry.long_context_tokens
        if budget is None or not self.wishes.shrink or tokens_of_bytes(self.request.prompt_bytes) <= budget:
            return None
        return shrink(self.dialect, self.request, budget)

    def _rules(self, shrunk: Shrunk | None) -> Rules:
        retry, hedge = self.settings.retry, self.wishes.hedge
        long_tokens = retry.long_context_tokens
        return Rules(
            attempts_max=retry.max_attempts,
            backoff_ms=retry.backoff_ms,
            deadline_us=min(self.limits.request_us, self.limits.generation_us),
            providers=tuple(target.route.provider for target in self.targets),
            in_flight_max=hedge.in_flight_max if hedge.on else 0,
            long_prompt=long_tokens is not None and tokens_of_bytes(self.request.prompt_bytes) > long_tokens,
            shrink=shrunk is not None,
            repair=self.wishes.repair,
        )

    def _end_as(self, result: AttemptResult, code: str) -> None:
        """What the attempt came to stands on its own end; the generation ends as something else."""
        write_ending(self, result, result.ending, terminal=False)
        result.ending = interruption(code)

    def _end(self, result: AttemptResult) -> None:
        if self.recorder.failed and (result.ending.code is None or result.ending.cancelled):
            self._end_as(result, LOG_UNAVAILABLE)  # a message_end behind a hole would be no end to anybody
        ending, self._result = result.ending, result
        write_ending(self, result, ending, terminal=self.interrupted != FOREIGN_TERMINAL)
        self.generation.signal(Signal.TERMINAL)
        if not self.generation.head.done():
            self.generation.head.set_result(head_of(self.dialect, ending))


async def _no_successor(driver: Driver, kind: str) -> str | None:
    """Nobody can begin another generation."""
    del driver, kind
    return None


def _nobody(upstream_id: str) -> None:
    """The provider's id of an answer, where nobody comes back for it by that id."""
    del upstream_id
