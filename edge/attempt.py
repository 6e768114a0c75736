"""One call to one provider, read to its end: what the driver's inner task does.

``Attempt.read`` returns what the attempt came to; it is cancelled by an interrupt, which closes the provider's socket.
Events are held until the commit (first content, a proper end, or ``limit.hold_bytes``), then numbered and published as
they are captured; reading pauses while too much is unacknowledged. Before: ``upstream``, ``capture``. After: ``driver``.
"""

import asyncio
from typing import TYPE_CHECKING

from edge.capture import AttemptCapture
from edge.dialects import Captured
from edge.ending import Ending, usage_of
from edge.generation import Head
from edge.output_check import OutputCheck
from edge.policy import retry_after_s
from edge.timing import NOTHING_SAID, of_headers
from edge.upstream import Answer, UpstreamFailed
from schemas.events import AttemptEnd, Dispatch, EndedBy, Kind, Outcome, ProviderError, Released
from schemas.lifecycle import Signal, State
from schemas.outcomes import ERRORS

if TYPE_CHECKING:
    from edge.driver import Driver, Target
    from schemas.payloads import Usage
from schemas.usage import estimated

_NOT_BILLED = (Dispatch.NOT_CONNECTED, Dispatch.REFUSED)
DRAIN_S = 0.25
"""After the protocol's end mark the body's own end is awaited so long, to use the connection again."""


class AttemptResult:
    """What an attempt came to, and everything that its record says."""

    def __init__(self, attempt: "Attempt", ending: Ending) -> None:
        self.attempt = attempt.number
        self.target = attempt.target
        self.capture = attempt.capture
        self.committed = attempt.committed
        self.ending = ending
        self.retry_after = attempt.retry_after
        self.dispatched_us = attempt.dispatched_us
        self.provider_timing = attempt.head_timing.joined(attempt.capture.state.provider_timing)
        self.written = False
        self._attempt = attempt
        self._ended_us = attempt.driver.recorder.elapsed_us()

    def record(self, outcome: Outcome, code: str | None = None) -> AttemptEnd:
        """The self-contained attempt_end."""
        attempt, capture, driver = self._attempt, self.capture, self._attempt.driver
        start = driver.generation.identity.start
        dispatched_us = attempt.dispatched_us
        usage: Usage | None = usage_of(driver, self)
        unmeasured = usage is None
        if unmeasured and capture.content_events:
            usage = estimated(driver.request.prompt_bytes, driver.recorder.digest.content_bytes)
        first = next(iter(capture.state.finishes.values()), None)
        failed = outcome is not Outcome.OK
        return AttemptEnd(
            provider=self.target.route.provider,
            model=self.target.route.model or driver.request.model,
            request_id=start.request_id,
            started_us=driver.generation.accepted_wall_us + (dispatched_us or 0),
            outcome=outcome,
            committed=self.committed,
            dispatch=attempt.dispatch,
            served_model=capture.state.served_model,
            service_tier=capture.state.service_tier,
            model_route=start.model_route,
            error_code=(code or self.ending.code) if failed else None,
            upstream_error=self.ending.provider_error,
            finish_reason=first.finish_reason if first else None,
            usage=usage,
            possibly_billed=failed and unmeasured and attempt.dispatch not in _NOT_BILLED,
            dispatched_us=dispatched_us,
            first_content_us=capture.first_content_us,
            last_content_us=capture.last_content_us,
            content_events=capture.content_events,
            text_events=capture.text_events,
            bytes_seen=capture.bytes_seen,
            tokens_seen_estimate=capture.tokens_estimate,
            tokens_delivered_estimate=driver.recorder.tokens_acked if self.committed else 0,
            gaps=capture.gaps,
            released=[Released(resource="upstream_socket", at_us=self._ended_us)],
            elapsed_us=0 if dispatched_us is None else self._ended_us - dispatched_us,
            stall_threshold_us=driver.settings.stream.stall_threshold_ms * 1000,
        )


class Attempt:
    """Reads one provider's answer."""

    def __init__(self, driver: "Driver", target: "Target", number: int) -> None:
        self.driver = driver
        self.target = target
        self.number = number
        limit = driver.settings.limit
        threshold_us = driver.settings.stream.stall_threshold_ms * 1000
        self.capture = AttemptCapture(
            driver.dialect,
            limit.frame_bytes,
            threshold_us,
            limit.tool_arguments_bytes,
            OutputCheck(driver.request.body),
        )
        self.committed = False
        self.dispatch = Dispatch.NOT_CONNECTED
        self.dispatched_us: int | None = None
        self.retry_after: str | None = None
        self.head_timing = NOTHING_SAID
        self._held: list[tuple[Captured, int, int]] = []
        self._held_bytes = 0
        self._paused_us = 0

    def result(self, ending: Ending, ended_by: EndedBy | None = None) -> AttemptResult:
        """Close the attempt with an ending."""
        if ended_by is not None:
            self.capture.close(self.driver.recorder.elapsed_us(), ended_by)
        if ending.code is None:
            self._commit()
        return AttemptResult(self, ending)

    async def read(self) -> AttemptResult:
        """Call and read to the end; cancelled by the driver when something interrupts."""
        driver = self.driver
        model = self.target.route.model or driver.request.model
        body = driver.dialect.upstream_body(driver.request, model)
        self.dispatched_us = driver.recorder.elapsed_us()
        if driver.first_dispatched_us is None:
            driver.first_dispatched_us = self.dispatched_us
        driver.generation.signal(Signal.DISPATCHED)
        driver.watch.dispatched(self.dispatched_us)
        driver.timers.rearm()
        self.dispatch = Dispatch.SENT
        provider, path = self.target.provider, driver.dialect.upstream_path(model)
        key = None if provider.api_key is None else provider.api_key.get_secret_value()
        headers = driver.dialect.upstream_headers(driver.request, key)
        try:
            async with driver.upstream.call(provider, path, body, headers) as answer:
                driver.watch.head_came()
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
            self.retry_after = answer.headers.get("retry-after")
            code, said = self.driver.dialect.failure_of_body(answer.status, await self._said(answer))
            wait_s = retry_after_s(self.retry_after, self.driver.clock.wall_us() / 1e6)
            return self.result(
                Ending(
                    code=code,
                    message=said.message or ERRORS[code].meaning,
                    provider_error=said,
                    retry_after_ms=None if wait_s is None else int(wait_s * 1000),
                )
            )
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
            return await answer.body()
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
        if not driver.generation.head.done():
            driver.generation.head.set_result(Head(ok=True))
        if self.committed:
            self._publish(captured, now_us, paused_us)
            return None
        self._held.append((captured, now_us, paused_us))
        self._held_bytes += len(captured.raw)
        named = driver.request.background and capture.state.upstream_id is not None
        if content or named or self._held_bytes > driver.settings.limit.hold_bytes:
            self._commit()
        return None

    def _watch(self, now_us: int, *, content: bool) -> None:
        driver, capture = self.driver, self.capture
        if content:
            if driver.watch.content(now_us):
                driver.timers.rearm()
            if driver.generation.state is not State.STREAMING:
                driver.generation.signal(Signal.CONTENT_CAPTURED)
        if capture.finish_us is not None and len(capture.state.finishes) >= driver.request.choices:
            driver.watch.finished(now_us)
            driver.timers.rearm()

    def _commit(self) -> None:
        """From here on no other attempt supplies anything: what was held gets its numbers.

        A background answer commits as soon as it has a name: the client is given it, and comes back by it.
        """
        self.committed = True
        if self.driver.dialect.by_upstream_id and self.capture.state.upstream_id is not None:
            self.driver.named(self.capture.state.upstream_id)
        held, self._held = self._held, []
        for captured, at_us, paused_us in held:
            self._publish(captured, at_us, paused_us)

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
        code, said = captured.failure or ("upstream_error", ProviderError())
        ended_by = EndedBy.CUT
        ending = Ending(
            code=code,
            message=said.message or ERRORS[code].meaning,
            raw=captured.raw if code != "upstream_protocol" else None,
            raw_event=captured.raw_event,
            provider_error=said,
        )
        return self.result(ending, ended_by)

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
        driver.watch.pause(before_us)
        await driver.recorder.below(limit // 2)
        after_us = driver.recorder.elapsed_us()
        driver.watch.resume(after_us)
        driver.timers.rearm()
        self._paused_us += after_us - before_us
