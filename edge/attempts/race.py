"""The attempts of one generation that are in flight: begins, drops and ends them as the policy's chain says.

What each attempt came to is told to the chain once; a loser is cancelled at its socket and its end is written as any
other's, before the terminal. Nothing but the committed attempt is ever published. Before: ``edge.policy.chain``,
``attempt``. After: ``driver``.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from edge.attempts.announcing import Lineage
from edge.attempts.attempt import Attempt
from edge.attempts.attempt_result import LOST_RACE, AttemptResult
from edge.attempts.holding import Hold
from edge.attempts.judging import judged
from edge.attempts.stopping import (
    interrupted,
    last_of_abandoned,
    last_of_stopped,
    only_its_usage_is_missing,
    report,
)
from edge.driving.ending import Ending, interruption, write_ending
from edge.driving.watch import Watch
from edge.policy import moves
from edge.policy.chain import Chain, step
from edge.policy.hedging import due
from edge.provider.health import Health
from edge.recorder import LOG_UNAVAILABLE
from schemas.events import EndedBy, Kind
from schemas.lifecycle import Signal, State

if TYPE_CHECKING:
    from edge.driver import Driver


class Race:
    """Runs the attempts of one generation.

    Args:
        driver: whose attempts these are.
        health: what the process knows of the providers.
        rules: what this generation may do.
        lineage: knows what each attempt is sent.

    """

    def __init__(self, driver: "Driver", health: Health, rules: moves.Rules, lineage: Lineage) -> None:
        self._driver = driver
        self._health = health
        self._rules = rules
        self._idle = Watch(driver.limits)
        self._lineage = lineage
        self._tasks: dict[asyncio.Task[AttemptResult], Attempt] = {}
        self._announced: list[Attempt] = []
        self._final: AttemptResult | None = None
        self._news: asyncio.Future[None] | None = None
        self._refused_us = 0
        self._running = False
        self.chain = Chain()
        self.live: dict[int, Attempt] = {}
        self.results: dict[int, AttemptResult] = {}

    @property
    def reading(self) -> bool:
        """Whether any attempt was begun and is not over."""
        return bool(self._tasks)

    def begin(self) -> None:
        """Announce the first attempt; it is called when ``run`` begins."""
        self._do(self._step(moves.Began()))

    def forbid(self) -> None:
        """A side effect was committed, or an action approved: from now on nothing is tried again by itself."""
        self._do(self._step(moves.Forbidden()))

    def delivered(self, attempt: Attempt) -> None:
        """An attempt has something to deliver: it is committed now, or another one was before it."""
        self._do(self._step(moves.Delivered(attempt.number)))

    def stop(self) -> None:
        """The driver was interrupted: everything in flight is ended."""
        for task in self._tasks:
            task.cancel()
        self.wake()

    def wake(self) -> None:
        """Something changed that the waiting must know of."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def deadline_us(self) -> int:
        """When the next time-out of anything in flight expires."""
        watched = [attempt.watch for attempt in self.live.values() if attempt.interrupted is None]
        return min(watch.deadline()[0] for watch in (*watched, self._idle))

    def expire(self, now_us: int) -> None:
        """Act on the time-outs that have expired: an attempt's own ends it, the whole's ends all."""
        if (code := self._idle.expired(now_us)) is not None:
            self._driver.interrupt(code)
            return
        for attempt in list(self.live.values()):
            code = attempt.watch.expired(now_us) if attempt.interrupted is None else None
            if code is not None:
                attempt.interrupt(code)

    async def run(self) -> AttemptResult:
        """Run to the end; what the generation ends with. Every other attempt's end is written by then."""
        self._running = True
        driver = self._driver
        announced, self._announced = self._announced, []
        for attempt in announced:
            if driver.interrupted is None:
                self._launch(attempt, acked=True)
            else:
                self._take(attempt, interrupted(driver, attempt))
        while self._final is None:
            if driver.interrupted is not None and not self._tasks:
                self._final = last_of_stopped(driver, list(self.results.values()))
                break
            await self._wait()
            self._collect()
            if self._final is None and not driver.ending:
                self._look(driver.recorder.elapsed_us())
        while self._tasks:  # losers, on their way out
            await asyncio.wait(self._tasks)
            self._collect()
        for result in self.results.values():
            if result is not self._final and not result.written:
                write_ending(driver, result, result.ending, terminal=False)
        return self._final

    async def _wait(self) -> None:
        """Until an attempt is over, or a wait or a hedge is due, or something says so."""
        next_us = None if self._driver.ending else self._next_us()
        timeout_s = None
        if next_us is not None:
            timeout_s = max(0, next_us - self._driver.recorder.elapsed_us()) / 1e6
        self._news = asyncio.get_running_loop().create_future()
        try:
            waited: set[asyncio.Future[Any]] = {*self._tasks, self._news}
            await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._news = None

    def _next_us(self) -> int | None:
        if self.chain.again is not None:
            return self.chain.again_us
        found = self._hedge_due()
        return None if found is None else found[0]

    def _hedge_due(self) -> tuple[int, str] | None:
        rules, chain = self._driver.wishes.hedge, self.chain
        if not rules.on or chain.committed is not None or chain.made >= self._rules.attempts_max:
            return None
        if len(self.live) > rules.in_flight_max:
            return None
        silences = [attempt.watch.silence() for attempt in self.live.values()]
        return due(rules, [s for s in silences if s is not None], self._refused_us) if all(silences) else None

    def _look(self, now_us: int) -> None:
        if self.chain.again is not None:
            self._do(self._step(moves.Due()))
            return
        found = self._hedge_due()
        if found is not None and now_us >= found[0]:
            self._refused_us = now_us
            self._do(self._step(moves.Silent(found[1])))

    def _collect(self) -> None:
        for task in [task for task in self._tasks if task.done()]:
            attempt = self._tasks.pop(task)
            stopped = task.cancelled()
            self._take(attempt, interrupted(self._driver, attempt) if stopped else task.result())

    def _take(self, attempt: Attempt, result: AttemptResult) -> None:
        """What an attempt came to: on record, and told to the chain."""
        driver, ending = self._driver, result.ending
        del self.live[attempt.number]
        self.results[attempt.number] = result
        report(self._health, result, driver.clock.now_us())
        driver.unknown_events += result.capture.state.unknown_count
        if attempt.interrupted == LOST_RACE or self._final is not None:
            write_ending(driver, result, ending, terminal=False)
            return
        if driver.cancel is not None and (ending.code is not None or result.unparsable is not None):
            driver.interrupt("cancelled")
        if driver.interrupted is not None:
            return
        if ending.code is None:
            actions = self._step(moves.Ended(attempt.number, result.unparsable))
        else:
            asked_us = None if ending.retry_after_ms is None else ending.retry_after_ms * 1000
            actions = self._step(moves.Failed(attempt.number, ending.code, asked_us, ending.not_again))
        if moves.End(attempt.number) not in actions and self.chain.spare != attempt.number:
            write_ending(driver, result, ending, terminal=False)
        self._do(actions)

    def _step(self, event: moves.Event) -> tuple[moves.Action, ...]:
        driver = self._driver
        world = self._health.world(
            self._rules.providers,
            driver.clock.now_us(),
            driver.generation.accepted_us,
            driver.clock.jitter(),
        )
        self.chain, actions = step(self.chain, event, world, self._rules)
        return actions

    def _do(self, actions: tuple[moves.Action, ...]) -> None:
        for action in actions:
            match action:
                case moves.Pay(target, hedge):
                    self._health.pay(self._rules.providers[target], hedge=hedge)
                case moves.Start():
                    self._start(action)
                case moves.Commit(number):
                    known = self.live.get(number)
                    (known or self.results[number].of).commit()
                case moves.Drop(number):
                    self.live[number].interrupt(LOST_RACE)
                case moves.End(number):
                    self._final = self.results[number]

    def _start(self, start: moves.Start) -> None:
        """Announce an attempt, and call the provider once that is acknowledged."""
        driver = self._driver
        if driver.generation.state is State.PREFILL and not self.live:
            driver.generation.signal(Signal.ATTEMPT_FAILED)
        target = driver.targets[start.target]
        request = self._lineage.request_for(start, self.results)
        hold = Hold(driver.holds_whole, 0 if start.reason.startswith("hedge") else driver.wishes.hold_us)
        attempt = self.live[start.number] = Attempt(driver, target, start.number, request, hold)
        attempt.reason = start.reason
        attempt.called_us = driver.clock.now_us()
        self._health.called(target.route.provider, attempt.called_us)
        said = self._lineage.announce(start, self.results)
        driver.recorder.trace(Kind.ATTEMPT_START, attempt=start.number, attempt_start=said)
        if self._running:
            self._launch(attempt, acked=False)
        else:
            self._announced.append(attempt)

    def _launch(self, attempt: Attempt, *, acked: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._call(attempt, acked=acked))
        attempt.task = task
        self._tasks[task] = attempt

    async def _call(self, attempt: Attempt, *, acked: bool) -> AttemptResult:
        driver = self._driver
        if not acked and not await driver.recorder.settled(driver.settings.log.delivery_s):
            driver.interrupt(LOG_UNAVAILABLE)
            await asyncio.sleep(0)  # where the cancellation of this task is raised
        if driver.cancel is not None:  # nobody is called any more
            driver.interrupt("cancelled")
            await asyncio.sleep(0)
        try:
            result = await attempt.read()
        except asyncio.CancelledError:
            if not only_its_usage_is_missing(attempt):
                raise
            result = attempt.result(Ending.proper(driver.dialect))
        return await judged(attempt, result)

    def abandoned(self) -> AttemptResult | None:
        """A bug of ours ended the driver: every attempt that is open ends as lost; what the generation ends with."""
        for task in self._tasks:
            task.cancel()
        for number, attempt in self.live.items():
            self.results[number] = attempt.result(interruption("edge_lost"), ended_by=EndedBy.CUT)
        self.live = {}
        return last_of_abandoned(self._driver, list(self.results.values()))
