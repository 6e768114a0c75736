"""The time-outs of one attempt and of the whole, as deadlines: pure, times are arguments.

Only content feeds the first-content and the stall timer. While reading is paused by ourselves those timers stand
still. One timer is armed at the nearest ``deadline`` of all attempts in flight, and asks ``expired`` when it fires.
Before: ``policy``. After: ``attempt``, ``race``.
"""

from typing import NamedTuple

from edge.policy.hedging import Silence
from schemas.settings import Route, Settings


class Limits(NamedTuple):
    """The layers, in microseconds."""

    queue_us: int
    ttft_us: int
    stall_us: int
    decode_us: int
    request_us: int
    generation_us: int
    usage_grace_us: int

    @classmethod
    def of(cls, settings: Settings, *, background: bool = False, deadline_ms: int | None = None) -> "Limits":
        """From the settings' seconds; in the background nobody waits for the request as such.

        Args:
            settings: the layers.
            background: whether the generation runs on whoever listens.
            deadline_ms: what the client named for the whole.
        """
        timeout, stream = settings.timeout, settings.stream
        seconds = (
            timeout.queue_s,
            stream.ttft_timeout_s,
            stream.stall_timeout_s,
            timeout.decode_s,
            timeout.generation_s if background else timeout.request_s,
            timeout.generation_s,
            stream.usage_grace_s,
        )
        limits = cls(*(int(s * 1_000_000) for s in seconds))
        if deadline_ms is None:
            return limits
        return limits._replace(request_us=min(limits.request_us, deadline_ms * 1000))

    def at(self, route: Route) -> "Limits":
        """The same for an attempt on a route, which may have times of its own."""
        own = {_LAYERS[name]: int(s * 1_000_000) for name, s in route.times().items()}
        return self._replace(**own) if own else self


_LAYERS = {
    "queue_s": "queue_us",
    "ttft_timeout_s": "ttft_us",
    "stall_timeout_s": "stall_us",
    "decode_s": "decode_us",
}
USAGE_GRACE = "usage_grace"
"""Not a failure: the provider said that it finished and sends nothing more."""


class Watch:
    """The timers of one attempt and of the whole; times are ``elapsed_us``."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dispatched_us: int | None = None
        self._head = False
        self._first_content_us: int | None = None
        self._last_us = 0  # last content, or the dispatch, shifted by pauses
        self._finished_us: int | None = None
        self._paused_at_us: int | None = None
        self._ended = False

    def dispatched(self, now_us: int) -> None:
        """A new attempt was sent."""
        self._dispatched_us, self._last_us = now_us, now_us
        self._head, self._first_content_us, self._finished_us, self._paused_at_us = False, None, None, None
        self._ended = False

    def head_came(self) -> None:
        """The provider answered with a response head."""
        self._head = True

    def content(self, now_us: int) -> bool:
        """Content was captured; whether it is the attempt's first: the stall timer, which takes over, may be nearer.

        A finish before it did not end anything.
        """
        first = self._first_content_us is None
        if first:
            self._first_content_us = now_us
        self._last_us = now_us
        if self._finished_us is not None:
            self._finished_us = now_us
        return first

    def finished(self, now_us: int) -> None:
        """Every choice has its finish reason."""
        if self._finished_us is None:
            self._finished_us = now_us

    def ended(self) -> None:
        """The provider is done; what is still to do is ours."""
        self._ended = True

    def silence(self) -> Silence | None:
        """Since when nothing of it counted as content; None while it was not sent, is paused, or has finished."""
        at_work = self._dispatched_us is not None and self._finished_us is None and not self._ended
        if not at_work or self._paused_at_us is not None:
            return None
        return Silence(self._last_us, self._first_content_us is not None)

    def pause(self, now_us: int) -> None:
        """Reading stopped on our side."""
        if self._paused_at_us is None:
            self._paused_at_us = now_us

    def resume(self, now_us: int) -> None:
        """Reading goes on; what stood still is shifted."""
        if self._paused_at_us is not None:
            stood_us, self._paused_at_us = now_us - self._paused_at_us, None
            self._last_us += stood_us
            if self._finished_us is not None:
                self._finished_us += stood_us

    def deadline(self) -> tuple[int, str]:
        """When the next timer expires (elapsed_us), and its code."""
        limits = self._limits
        whole = min((limits.request_us, "timeout"), (limits.generation_us, "timeout"))
        if self._dispatched_us is None or self._ended:
            return whole
        timers = [whole]
        if not self._head:
            timers.append((self._dispatched_us + limits.queue_us, "queue_timeout"))
        if self._paused_at_us is None:
            if self._finished_us is not None:
                timers.append((self._finished_us + limits.usage_grace_us, USAGE_GRACE))
            elif self._first_content_us is None:
                timers.append((self._last_us + limits.ttft_us, "ttft_timeout"))
            else:
                timers.append((self._last_us + limits.stall_us, "stall_timeout"))
        if self._first_content_us is not None and self._finished_us is None:
            timers.append((self._first_content_us + limits.decode_us, "decode_timeout"))
        return min(timers)

    def expired(self, now_us: int) -> str | None:
        """The code of the timer that has expired, if any."""
        at_us, code = self.deadline()
        return code if now_us >= at_us else None
