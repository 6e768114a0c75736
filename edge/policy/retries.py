"""Which failure may be followed by another attempt, and after which wait: pure.

Three classes. *Safe*: before the commit every failure and time-out of a provider, on another route or after a wait.
*Careful*: only with a changed prompt (a long prompt that brought no first content in time). *Forbidden*: what no other
try could change, or what another try would make worse: 400-class answers, a cancel, the end of the whole. After the
commit nothing is ever tried again, whatever the code: it would be paid twice and spliced. Before: ``capture``. After:
``chain``.
"""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

FORBIDDEN = frozenset(
    {
        "bad_request",
        "cancelled",
        "superseded",
        "log_unavailable",
        "timeout",
        "unauthorized",
        "edge_lost",
        "foreign_terminal",
    }
)
"""No provider's fault, or nothing that another try could change."""
CAREFUL = frozenset({"ttft_timeout"})
"""Where the prompt is long: the same one again would wait as long again."""
BACKOFF_MS_MAX = 10_000
RETRY_AFTER_S_MAX = 86_400.0 * 365
"""Far beyond any deadline; a longer number is noise."""
SPREAD = 0.1
"""Of a wait that the provider named: so much is added at most, or all who were told the same would come together."""
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)


class RetryClass(StrEnum):
    """What may follow a failure."""

    SAFE = "safe"
    CAREFUL = "careful"
    FORBIDDEN = "forbidden"


def class_of(code: str, *, long_prompt: bool) -> RetryClass:
    """The class of a failure that happened before the commit."""
    if code in FORBIDDEN:
        return RetryClass.FORBIDDEN
    if code in CAREFUL and long_prompt:
        return RetryClass.CAREFUL
    return RetryClass.SAFE


def backoff_us(backoff_ms: int, attempts_made: int, jitter: float) -> int:
    """The wait before a provider that failed is called again: doubled with each attempt, half of it by chance.

    Args:
        backoff_ms: the first one.
        attempts_made: so far, at least one.
        jitter: a random number in [0, 1).

    """
    grown_ms = min(backoff_ms * 2 ** min(attempts_made - 1, 32), BACKOFF_MS_MAX)
    return int(grown_ms * 1000 * (0.5 + jitter / 2))


def asked_wait_us(asked_us: int, jitter: float) -> int:
    """A wait that the provider asked for: never less, and a little more by chance."""
    return asked_us + int(asked_us * SPREAD * jitter)


def asked_wait_ms(headers: Mapping[str, str], unix_s: float) -> int | None:
    """How long the head of an answer asks to wait: the milliseconds of some providers, or else Retry-After."""
    exact = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(exact):
        return int(min(float(exact), RETRY_AFTER_S_MAX * 1000))
    wait_s = retry_after_s(headers.get("retry-after"), unix_s)
    return None if wait_s is None else int(wait_s * 1000)


def says_not_again(headers: Mapping[str, str]) -> bool:
    """Whether a provider says that this call must not be made to it again, as its SDK would obey it."""
    return headers.get("x-should-retry", "").strip().lower() == "false"


def retry_after_s(value: str | None, unix_s: float) -> float | None:
    """Seconds of a Retry-After header (a number, or an HTTP date); None for none and for nonsense."""
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), RETRY_AFTER_S_MAX)
    try:
        date = parsedate_to_datetime(value)
        if date.tzinfo is None:  # HTTP's dates are UTC, also where one does not say so
            date = date.replace(tzinfo=UTC)
        return min(max(0.0, date.timestamp() - unix_s), RETRY_AFTER_S_MAX)
    except (ValueError, TypeError, OverflowError):
        return None
