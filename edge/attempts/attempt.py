"""One call to one provider, read to its end: what each task of the race does.

``Attempt.read`` returns what the attempt came to; it is cancelled by an interrupt, which closes the provider's socket.
Events are held without seq until there is something to deliver (``Hold`` says when) and the race commits this attempt;
then they are numbered and published as they are captured; reading pauses while too much is unacknowledged. Before:
``upstream``, ``capture``. After: ``judging``, ``race``.
"""

import asyncio
from typing import TYPE_CHECKING

from edge.attempts.attempt_result import AttemptResult
from edge.attempts.holding import NO_HOLD, Held, Hold
from edge.attempts.output_check import OutputCheck
from edge.capture import AttemptCapture
from edge.dialects import Captured
from edge.driving.ending import Ending
from edge.driving.timing import NOTHING_SAID, of_headers
from edge.driving.watch import Watch
from edge.generation import Head
from edge.policy.retries import asked_wait_ms, says_not_again
from edge.provider.masking import mask_of
from edge.provider.upstream import Answer, UpstreamFailed
from schemas.events import Dispatch, EndedBy, Kind, ProviderError
from schemas.lifecycle import Signal, State
from schemas.outcomes import ERRORS

if TYPE_CHECKING:
    from edge.dialects import ClientRequest
    from edge.driver import Driver
    from edge.policy.routes import Target

DRAIN_S = 0.25
"""After the protocol's end mark the body's own end is awaited so long, to use the connection again."""


class Attempt:
    """Reads one provider's answer.

    Args:
        driver: whose attempt this is.
        target: where it goes.
        number: of the attempt.
        request: what is asked, where it is not what the client asked.
        hold: what is held back.

    """

    def __init__(
        self,
        driver: "Driver",
        target: "Target",
        number: int,
        request: "ClientRequest | None" = None,
        hold: Hold = NO_HOLD,
    ) -> None:
        self.driver = driver
        self.target = target
        self.number = number
        self.request = request or driver.request
        self.watch = Watch(driver.limits.at(target.route))
        self.task: asyncio.Task[AttemptResult] | None = None
        self.interrupted: str | None = None
        self.reason = "first"
        self.called_us = 0  # on the process's clock: what its provider's record counts by
        self.hold = hold
        self._hold_over: bool = not hold.us
        self._hold_timer: asyncio.TimerHandle | None = None
        limit = driver.settings.limit
        threshold_us = driver.settings.stream.stall_threshold_ms * 1000
        self._mask = mask_of(target.provider)
        self.capture = AttemptCapture(
            driver.dialect,
            limit.frame_bytes,
            threshold_us,
            limit.tool_arguments_bytes,
            OutputCheck(self.request.body),
            self._mask,
        )
        self.committed = False
        self.dispatch = Dispatch.NOT_CONNECTED
        self.dispatched_us: int | None = None
        self.head_timing = NOTHING_SAID
        self.held = Held()
        self._paused_us = 0

    @property
    def model(self) -> str:
        """What the provider calls the model."""
        return self.target.route.model or self.request.model

    def interrupt(self, code: str) -> None:
        """End this attempt at its socket; the first reason stands."""
        if self.interrupted is None:
            self.interrupted = code
            if self.task is not None:
                self.task.cancel()

    def result(self, ending: Ending, ended_by: EndedBy | None = None) -> AttemptResult:
        """Close the attempt with an ending; a proper one is still to be judged."""
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        if ended_by is not None:
            self.capture.close(self.driver.recorder.elapsed_us(), ended_by, self._paused_us)
        return AttemptResult(self, ending)

    async def read(self) -> AttemptResult:
        """Call and read to the end; cancelled by the driver when something interrupts."""
        driver = self.driver
        body = driver.dialect.upstream_body(self.request, self.model)
        self.dispatched_us = driver.recorder.elapsed_us()
        if driver.first_dispatched_us is None:
            driver.first_dispatched_us = self.dispatched_us
        if driver.generation.state is State.QUEUED:
            driver.generation.signal(Signal.DISPATCHED)
        self.watch.dispatched(self.dispatched_us)
        driver.timers.rearm()
        driver.race.wake()  # a hedge may be due
        self.dispatch = Dispatch.SENT
        provider, path = self.target.provider, driver.dialect.upstream_path(self.model)
        key = None if provider.api_key is None else provider.api_key.get_secret_value()
        headers = driver.dialect.upstream_headers(self.request, key)
        try:
            async with driver.upstream.call(provider, path, body, headers) as answer:
                self.watch.head_came()
                driver.timers.rearm()
                return await self._answer(answer)
        except UpstreamFailed as error:
            if error.dispatch is not Dispatch.ACCEPTED:
                self.dispatch = error.dispatch
            return self._eof(str(error), error.code)

    async def _answer(self, answer: Answer) -> AttemptResult:
        self.head_timing = of_headers(answer.headers)
        success = 200 <= answer.status < 300  # noqa: PLR2004 - HTTP's own numbers
        if not success or answer.content_type != "text/event-stream":
            self.dispatch = Dispatch.ACCEPTED if success else Dispatch.REFUSED
            code, said = self.driver.dialect.failure_of_body(answer.status, await self._said(answer))
            wait_ms = asked_wait_ms(answer.headers, self.driver.clock.wall_us() / 1e6)
            message = said.message or ERRORS[code].meaning
            ending = Ending(code, message, provider_error=said, retry_after_ms=wait_ms)
            return self.result(ending._replace(not_again=says_not_again(answer.headers)))
        self.dispatch = Dispatch.ACCEPTED
        driver = self.driver
        while chunk := await answer.read():
            ended = self._take(chunk)
            if ended is not None:
                if ended.ending.code is None:
                    answer.drain_later(DRAIN_S)
                return ended
            if driver.cancel is not None:
                driver.interrupt("cancelled")
                await asyncio.sleep(0)  # where the cancellation of this task is raised
            if driver.recorder.unacked_bytes > driver.unacked_max():
                await self._pause()
        return self._eof("the provider closed the stream")

    async def _said(self, answer: Answer) -> bytes:
        """The body of an answer that is no stream; its status says enough where the body breaks off."""
        try:
            return self._mask.body(await answer.body())
        except UpstreamFailed:
            return b""

    def _take(self, chunk: bytes) -> AttemptResult | None:
        now_us = self.driver.recorder.elapsed_us()
        for captured in self.capture.feed(chunk):
            ended = self._event(captured, now_us)
            if ended is not None:
                return ended
        return None

    def _event(self, captured: Captured, now_us: int) -> AttemptResult | None:
        driver, capture = self.driver, self.capture
        if captured.failure is not None:
            return self._failure(captured)
        if captured.end:
            return self.result(Ending(raw=captured.raw, raw_event=captured.raw_event))
        if captured.kind is None:
            capture.keepalives += 1
            return None
        paused_us, self._paused_us = self._paused_us, 0
        content = capture.note(captured, now_us, paused_us)
        if capture.too_large is not None:
            said = ProviderError(message=capture.too_large)
            return self._failure(Captured(Kind.ERROR, "", failure=("upstream_frame_too_large", said)))
        self._watch(now_us, content=content)
        if not driver.generation.head.done() and not self.hold.whole:
            driver.generation.head.set_result(Head(ok=True))
        if self.committed:
            self._publish(captured, now_us, paused_us)
        else:
            self._keep(captured, now_us, paused_us, content=content)
        return None

    def _watch(self, now_us: int, *, content: bool) -> None:
        driver, capture = self.driver, self.capture
        if content:
            if self.watch.content(now_us):
                driver.timers.rearm()
            if self.committed and driver.generation.state is not State.STREAMING:
                driver.generation.signal(Signal.CONTENT_CAPTURED)
        if capture.finish_us is not None and len(capture.state.finishes) >= driver.request.choices:
            self.watch.finished(now_us)
            driver.timers.rearm()

    def _keep(self, captured: Captured, now_us: int, paused_us: int, *, content: bool) -> None:
        """Hold an event of an attempt that is not committed, and see whether there is something to deliver.

        A background answer is delivered as soon as it has a name: the client is given it, and comes back by it.
        """
        driver = self.driver
        self.held.add(captured, now_us, paused_us)
        if self.held.size > driver.settings.limit.hold_bytes:
            driver.race.delivered(self)
        elif self.hold.whole:
            return
        elif (content and self._hold_over) or (
            driver.request.background and self.capture.state.upstream_id is not None
        ):
            driver.race.delivered(self)
        elif content and self._hold_timer is None:
            loop = asyncio.get_running_loop()
            self._hold_timer = loop.call_later(self.hold.us / 1e6, self._end_hold)

    def _end_hold(self) -> None:
        """The client waits no longer: what is held is delivered, or, where others race a silence of this one, the next."""
        self._hold_over = True
        if self.interrupted is None and not self.committed and len(self.driver.race.live) == 1:
            self.driver.race.delivered(self)

    def commit(self) -> None:
        """From here on no other attempt supplies anything: what was held gets its numbers. The race alone says so."""
        if self.committed:
            return
        self.committed = True
        generation = self.driver.generation
        if self.capture.content_events and generation.state is State.PREFILL:
            generation.signal(Signal.CONTENT_CAPTURED)
        if not generation.head.done():
            generation.head.set_result(Head(ok=True))
        if self.driver.dialect.by_upstream_id and self.capture.state.upstream_id is not None:
            self.driver.named(self.capture.state.upstream_id)
        recorder = self.driver.recorder
        unacked = recorder.unacked
        for captured, at_us, paused_us in self.held.taken():
            self._publish(captured, at_us, paused_us)
        recorder.sent_late(unacked)
        recorder.hurry()

    def _publish(self, captured: Captured, at_us: int, paused_us: int) -> None:
        recorder = self.driver.recorder
        if captured.usage_only and not self.driver.request.wants_usage:
            recorder.trace(Kind.USAGE, attempt=self.number, raw=captured.raw, raw_event=captured.raw_event)
            return
        event = recorder.numbered(
            captured.kind or Kind.FRAME,
            at_us,
            attempt=self.number,
            paused_us=paused_us,
            raw=self.driver.dialect.at_seq(captured.raw, recorder.next_seq),
            raw_event=captured.raw_event,
            canonical=list(captured.canonical),
        )
        if event.has_content:
            self.capture.last_content_seq = event.seq

    def _failure(self, captured: Captured) -> AttemptResult:
        return self.result(Ending.of_failure(captured), EndedBy.CUT)

    def _eof(self, detail: str, code: str | None = None) -> AttemptResult:
        """The stream ended without the protocol's mark: proper where every choice that spoke has its finish reason."""
        now_us = self.driver.recorder.elapsed_us()
        for captured in self.capture.finish():
            ended = self._event(captured, now_us)
            if ended is not None:
                return ended
        if self.capture.state.finished:
            return self.result(Ending.proper(self.driver.dialect))
        if code is None:
            code = "upstream_error" if self.dispatch is Dispatch.NOT_CONNECTED else "incomplete_upstream"
        return self.result(Ending(code=code, message=f"{ERRORS[code].meaning} ({detail})"), EndedBy.CUT)

    async def _pause(self) -> None:
        """Stop reading while too much is unacknowledged; the timers stand still meanwhile."""
        driver, limit = self.driver, self.driver.unacked_max()
        before_us = driver.recorder.elapsed_us()
        self.watch.pause(before_us)
        try:
            await driver.recorder.below(limit // 2)
        finally:  # also of an attempt that is ended meanwhile
            after_us = driver.recorder.elapsed_us()
            self.watch.resume(after_us)
            self._paused_us += after_us - before_us
        driver.timers.rearm()
        driver.race.wake()
