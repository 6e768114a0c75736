"""How many of the latest streams ended before their time, and why: the window behind ``sse_abort_rate_permille``.

A stream is one connection that read a generation. Of each model the last ``STREAMS`` count, and none that ended longer ago
than ``WINDOW_US``. Pure: time is an argument. Before: ``routes.common`` says how a stream ended. After: ``metrics``.
"""

from collections import Counter, deque

STREAMS = 1_000
WINDOW_US = 300_000_000


class AbortRate:
    """The window of one model."""

    def __init__(self) -> None:
        self._ended: deque[tuple[int, str | None]] = deque()
        self._by_reason: Counter[str | None] = Counter()

    def add(self, reason: str | None, now_us: int) -> None:
        """A stream ended; None: in its time."""
        self._ended.append((now_us, reason))
        self._by_reason[reason] += 1
        self._forget(now_us)

    def permille(self, reason: str, now_us: int) -> float:
        """How many of a thousand ended for a reason; 0 where no stream ended lately."""
        self._forget(now_us)
        return 1000 * self._by_reason[reason] / len(self._ended) if self._ended else 0.0

    def _forget(self, now_us: int) -> None:
        while self._ended and (len(self._ended) > STREAMS or now_us - self._ended[0][0] > WINDOW_US):
            self._by_reason[self._ended.popleft()[1]] -= 1
