"""Whether a failed attempt may be followed by another one, and when: pure.

Before the commit every failure and time-out of a provider is safe to try on the next route or after a backoff, except
a 400-class answer, a cancel, and a wait beyond the deadline. After the commit nothing is ever tried again: it would be
paid twice and spliced. Before: ``capture``. After: ``driver``.
"""

import re
from email.utils import parsedate_to_datetime
from typing import NamedTuple

FORBIDDEN = frozenset(
    {"bad_request", "cancelled", "superseded", "log_unavailable", "timeout", "unauthorized"}
)
"""No provider's fault, or nothing that another try could change."""
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
BACKOFF_MS_MAX = 10_000
RETRY_AFTER_S_MAX = 86_400.0 * 365
"""Far beyond any deadline; a longer number is noise."""


class Retry(NamedTuple):
    """Try again after a wait."""

    wait_us: int
    reason: str


class Failure(NamedTuple):
    """What an attempt ended with."""

    code: str
    committed: bool
    attempts_made: int
    now_us: int
    retry_after: str | None = None


class Rules(NamedTuple):
    """The chain's limits."""

    attempts_max: int
    backoff_ms: int
    deadline_us: int


def after_failure(failure: Failure, rules: Rules, *, unix_s: float, jitter: float) -> Retry | None:
    """The next attempt, or None where the chain is spent.

    Args:
        failure: what happened.
        rules: the limits.
        unix_s: the wall time that a Retry-After date is compared with.
        jitter: a random number in [0, 1).

    """
    if failure.committed or failure.code in FORBIDDEN or failure.attempts_made >= rules.attempts_max:
        return None
    backoff_ms = min(rules.backoff_ms * 2 ** (failure.attempts_made - 1), BACKOFF_MS_MAX)
    wait_us = int(backoff_ms * 1000 * (0.5 + jitter / 2))
    asked_s = retry_after_s(failure.retry_after, unix_s)
    if asked_s is not None:
        wait_us = max(wait_us, int(asked_s * 1_000_000))
    if failure.now_us + wait_us >= rules.deadline_us:
        return None
    return Retry(wait_us, failure.code)


def retry_after_s(value: str | None, unix_s: float) -> float | None:
    """Seconds of a Retry-After header (a number, or an HTTP date); None for none and for nonsense."""
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), RETRY_AFTER_S_MAX)
    try:
        asked_s = parsedate_to_datetime(value).timestamp() - unix_s
        return min(max(0.0, asked_s), RETRY_AFTER_S_MAX)
    except (ValueError, TypeError, OverflowError):
        return None
