"""A provider's circuit breaker: after too many failures it is left alone for a while, then probed by one call. Pure.

====================  ==============================================================================================
closed                calls go through; the outcomes of the last ``window_us`` are kept
open                  of those at least ``least`` failed and they were at least ``share`` of all: no call until ``open_us``
half open             the time is over: one call goes through; its success closes, its failure opens again, and where
                      it says nothing for another ``open_us`` the next call is one too
====================  ==============================================================================================

It is fed by what a provider did: error answers, errors in band, time-outs, streams without content. What we cancelled
says nothing about it; where that was the probe, the next call is one. While it is not closed only the probe counts: a call
that began before the breaker opened may end well although no new one would. Before: ``budgets``. After: ``edge.provider.health``.
"""

from collections import deque

OUTCOMES_MAX = 256
"""Kept for one provider; at more calls a second than these the window is just shorter."""


class Breaker:
    """The breaker of one provider; times are microseconds of one monotonic clock.

    Args:
        least: so many failures at least.
        share: of all outcomes in the window.
        window_us: how long an outcome counts.
        open_us: how long it stays open.

    """

    __slots__ = (
        "_failures",
        "_least",
        "_open_us",
        "_outcomes",
        "_probe_us",
        "_reopens_us",
        "_share",
        "_window_us",
    )

    def __init__(self, least: int, share: float, window_us: int, open_us: int) -> None:
        self._least = least
        self._share = share
        self._window_us = window_us
        self._open_us = open_us
        self._outcomes: deque[tuple[int, bool]] = deque()
        self._failures = 0  # of those outcomes
        self._reopens_us: int | None = None  # None: closed
        self._probe_us: int | None = None  # when the probe in flight was sent

    def lets_through(self, now_us: int) -> bool:
        """Whether a call may be made now."""
        return self.opens_in_us(now_us) == 0

    def opens_in_us(self, now_us: int) -> int:
        """How long no call will be let through, at least."""
        if self._reopens_us is None:
            return 0
        from_us = self._reopens_us
        if self._probe_us is not None:
            from_us = max(from_us, self._probe_us + self._open_us)
        return max(0, from_us - now_us)

    def called(self, now_us: int) -> None:
        """A call is made; the first one after the open time is the probe."""
        if self._reopens_us is not None and now_us >= self._reopens_us:
            self._probe_us = now_us

    def let_go(self, began_us: int) -> None:
        """A call that began at this time was ended by us: it says nothing."""
        if self._is_probe(began_us):
            self._probe_us = None

    def ended(self, now_us: int, began_us: int, *, failed: bool) -> None:
        """A call that began at ``began_us`` came to its end."""
        if self._reopens_us is not None:
            if self._is_probe(began_us):
                self._probe_us = None
                self._reopens_us = now_us + self._open_us if failed else None
            return
        self._outcomes.append((now_us, failed))
        self._failures += failed
        while self._outcomes[0][0] < now_us - self._window_us or len(self._outcomes) > OUTCOMES_MAX:
            self._failures -= self._outcomes.popleft()[1]
        if failed and self._failures >= max(self._least, self._share * len(self._outcomes)):
            self._reopens_us, self._probe_us = now_us + self._open_us, None
            self._outcomes.clear()
            self._failures = 0

    def _is_probe(self, began_us: int) -> bool:
        """Whether a call began when this breaker let one through to try."""
        return self._reopens_us is not None and began_us >= self._reopens_us
