"""What an attempt came to, and its ``attempt_end``: self-contained, so that billing needs no other record.

Before: ``attempt``. After: ``ending``, ``race``.
"""

from typing import TYPE_CHECKING

from edge.driving.ending import Ending, usage_of
from schemas.events import AttemptEnd, Dispatch, Outcome, Released
from schemas.usage import estimated

if TYPE_CHECKING:
    from edge.attempts.attempt import Attempt
    from schemas.payloads import Usage

LOST_RACE = "lost_race"
"""Another attempt delivered first."""
UPSTREAM_SOCKET, KV_CACHE = "upstream_socket", "kv_cache"
_NOT_BILLED = (Dispatch.NOT_CONNECTED, Dispatch.REFUSED)


class AttemptResult:
    """What an attempt came to, and everything that its record says."""

    def __init__(self, attempt: "Attempt", ending: Ending) -> None:
        self.attempt = attempt.number
        self.target = attempt.target
        self.capture = attempt.capture
        self.of = attempt
        self.ending = ending
        self.unparsable: str | None = None  # why its answer is not the JSON that was asked for
        self.unchecked = False  # the time of the final check is over
        self.dispatched_us = attempt.dispatched_us
        self.provider_timing = attempt.head_timing.joined(attempt.capture.state.provider_timing)
        self.written = False
        self.outcome = Outcome.UNKNOWN  # until its end is written
        self.ended_us = attempt.driver.recorder.elapsed_us()

    @property
    def committed(self) -> bool:
        """Whether this attempt supplied the answer."""
        return self.of.committed

    def record(self, outcome: Outcome, code: str | None = None) -> AttemptEnd:
        """The self-contained attempt_end."""
        attempt, capture, driver = self.of, self.capture, self.of.driver
        start = driver.generation.identity.start
        dispatched_us = attempt.dispatched_us
        reported = usage_of(driver, self)
        unmeasured = reported is None
        first = next(iter(capture.state.finishes.values()), None)
        failed = outcome is not Outcome.OK
        return AttemptEnd(
            provider=self.target.route.provider,
            model=attempt.model,
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
            usage=reported or self.estimate(),
            possibly_billed=failed and unmeasured and attempt.dispatch not in _NOT_BILLED,
            dispatched_us=dispatched_us,
            first_content_us=capture.first_content_us,
            last_content_us=capture.last_content_us,
            content_events=capture.content_events,
            text_events=capture.text_events,
            bytes_seen=capture.bytes_seen,
            tokens_seen_estimate=capture.tokens_estimate,
            tokens_delivered_estimate=driver.recorder.tokens_delivered if self.committed else 0,
            gaps=capture.gaps,
            released=self._released(),
            elapsed_us=0 if dispatched_us is None else self.ended_us - dispatched_us,
            stall_threshold_us=driver.settings.stream.stall_threshold_ms * 1000,
        )

    def estimate(self) -> "Usage | None":
        """Its usage by what it was sent and what came of it; None where nothing came."""
        attempt = self.of
        if not self.capture.content_events:
            return None
        seen = attempt.held.content_bytes()
        if attempt.committed:
            seen = attempt.driver.recorder.digest.content_bytes
        return estimated(attempt.request.prompt_bytes, seen)

    def _released(self) -> list[Released]:
        """The socket, once there was one, and with it what the provider kept for its answer."""
        if self.dispatched_us is None:
            return []
        names = [UPSTREAM_SOCKET]
        if self.of.dispatch not in _NOT_BILLED:
            names.append(KV_CACHE)
        return [Released(resource=name, at_us=self.ended_us) for name in names]
