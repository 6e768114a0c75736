"""Where a session stands, between what it asks: its state, its bounds of time, and whose turn it is to answer. Pure.

The only place that moves the state. Before: ``reading``. After: ``course``, which says what is asked.
"""

from collections.abc import Callable, Generator
from typing import Any, NoReturn

from tokentrail_client.advice import backoff_s
from tokentrail_client.call import Call, Stopped, Times
from tokentrail_client.effects import Effect, Wait
from tokentrail_client.states import Change, OnState, State, moved

Steps = Generator[Effect, Any, None]


class Standing:
    """One session's; see Course for the arguments."""

    def __init__(
        self,
        call: Call,
        times: Times,
        now: Callable[[], float],
        jitter: Callable[[], float],
        on_state: OnState | None,
    ) -> None:
        self.call = call
        self.state = State.CONNECTING
        self.reason: str | None = None
        self._times = times
        self._now = now
        self._jitter = jitter
        self._on_state = on_state
        self._edge = 0
        self._failures = 0
        self._not_before = self._started = self._progress = now()

    def _pause(self, why: str | None = None) -> Steps:
        """Wait for the time of the next try, at the next edge."""
        if self.state is not State.PAUSED:
            self._to(State.PAUSED, why)
        self._edge += 1
        times, now = self._times, self._now()
        due = now + backoff_s(self._failures, times.backoff_s, times.backoff_max_s, self._jitter())
        latest = min(self._started + times.session_s, self._progress + times.read_s)
        yield Wait(max(0.0, min(max(self._not_before, due), latest) - now))
        self._check()

    def _check(self) -> None:
        """Stop where a bound is passed."""
        now, times = self._now(), self._times
        if now - self._started >= times.session_s:
            self._stop("session_timeout", f"no end within {times.session_s:g} s", timed_out=True)
        if now - self._progress >= times.read_s:
            self._stop("read_timeout", f"no event for {times.read_s:g} s", timed_out=True)

    def _stop(self, reason: str, message: str, *, timed_out: bool = False) -> NoReturn:
        self._to(State.CANCELLED, reason)
        raise Stopped(reason, message, timed_out=timed_out)

    def _root(self) -> str:
        return self.call.roots[self._edge % len(self.call.roots)]

    def _to(self, new: State, reason: str | None = None) -> None:
        old, self.state, self.reason = self.state, moved(self.state, new), reason
        if self._on_state is not None:
            self._on_state(Change(self.call.session, old, new, reason))
