"""When a second attempt may run beside the first: pure.

Two silences are acted on: no content since the dispatch (``after_us``), and none since the last content of an attempt
that nothing was delivered of (``stall_us``: a non-streaming client, or one that lets us hold back). Every attempt in
flight must be silent for its time; who has delivered anything is never raced against. Before: ``chain``. After: ``race``
arms the timer.
"""

from collections.abc import Iterable
from typing import NamedTuple

AFTER_US_MIN = 20_000
"""A learned time is never shorter: below it the second call costs more than it saves."""
TTFT, STALL = "hedge_ttft", "hedge_stall"


class HedgeRules(NamedTuple):
    """What one call may do; None: that silence is waited out. ``quantile``: of recent answers, instead of ``after_us``."""

    after_us: int | None = None
    stall_us: int | None = None
    in_flight_max: int = 1
    quantile: float | None = None

    @property
    def on(self) -> bool:
        """Whether there is any hedge at all."""
        return not (self.after_us is None and self.stall_us is None and self.quantile is None)

    def learned(self, quantile_us: int | None) -> "HedgeRules":
        """The same with the time that a provider's recent answers say, where enough of them are known."""
        return self if quantile_us is None else self._replace(after_us=max(quantile_us, AFTER_US_MIN))


NO_HEDGE = HedgeRules()


class Silence(NamedTuple):
    """An attempt in flight: silent since when (its dispatch or its last content, pauses of our own left out)."""

    since_us: int
    content: bool


def due(rules: HedgeRules, silences: Iterable[Silence], not_before_us: int) -> tuple[int, str] | None:
    """When the next hedge is due and why; None for never.

    Args:
        rules: the times.
        silences: of every attempt in flight.
        not_before_us: the last refusal, behind which it is asked again only after its time.

    """
    at_us, reason = -1, TTFT
    for silence in silences:
        wait_us = rules.stall_us if silence.content else rules.after_us
        if wait_us is None:
            return None
        if (until_us := max(silence.since_us, not_before_us) + wait_us) > at_us:
            at_us = until_us
        if silence.content:
            reason = STALL
    return None if at_us < 0 else (at_us, reason)
