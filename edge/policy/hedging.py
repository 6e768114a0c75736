"""When a second attempt may run beside the first: pure.

Two silences are acted on: no content since the dispatch (``after_us``), and none since the last content of an attempt
that nothing was delivered of (``stall_us``: a non-streaming client, or one that lets us hold back). Every attempt in
flight must be silent for its time; who has delivered anything is never raced against. Before: ``chain``. After: ``race``
arms the timer.
"""

from collections.abc import Iterable
from typing import NamedTuple

TTFT, STALL = "hedge_ttft", "hedge_stall"


class HedgeRules(NamedTuple):
    """What one call may do; None: that silence is waited out."""

    after_us: int | None = None
    stall_us: int | None = None
    in_flight_max: int = 1

    @property
    def on(self) -> bool:
        """Whether there is any hedge at all."""
        return self.after_us is not None or self.stall_us is not None


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
