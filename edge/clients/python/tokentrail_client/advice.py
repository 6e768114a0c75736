"""What to do about an answer or a lost connection: the client's retry matrix, as one table.

Pure. Before: ``endings``. After: ``effects``.

| what came | what follows |
|---|---|
| a stream | read it |
| in place of an answer a page, another generation's stream (a cache), or a redirect, which nobody follows | again |
| any of these answers, cut within its body | again, ``call_tries`` times at most; then its head counts |
| 204 | the terminal was here already: done |
| RST, FIN before the terminal, silence | resume |
| 429, 5xx that says ``x-should-retry: true`` | again, after its Retry-After |
| 429, 5xx that says ``false`` | never |
| 429, 5xx that says neither | again where it names a Retry-After, or is the 502, 503, 504 of something before the edges |
| any other 4xx | never |
| the application's own abort, the terminal | never |

Every edge says ``x-should-retry`` on a refusal; a bare 502, 503 or 504 is a proxy's word that it lost the edge: a cut.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import NamedTuple

_PROXYS = frozenset({502, 503, 504})


class Action(StrEnum):
    """What follows an answer."""

    READ = "read"
    DONE = "done"
    AGAIN = "again"
    STOP = "stop"


_GOOD = {200: Action.READ, 204: Action.DONE}


class Verdict(NamedTuple):
    """What follows, and not before how many seconds."""

    action: Action
    wait_s: float = 0.0


def verdict_on(status: int, headers: Mapping[str, str], now: datetime | None = None) -> Verdict:
    """What follows an answer with this status and these headers (names in lower case)."""
    if status < 400:  # noqa: PLR2004 - HTTP's own numbers, here and below
        return Verdict(_GOOD.get(status, Action.AGAIN))  # a redirect, or what no edge says: somebody else's
    if status != 429 and status < 500:  # noqa: PLR2004
        return Verdict(Action.STOP)
    wait_s = retry_after_s(headers, now)
    said = headers.get("x-should-retry", "").strip().lower()
    if said == "false":
        return Verdict(Action.STOP)
    if said == "true" or wait_s is not None or status in _PROXYS:
        return Verdict(Action.AGAIN, wait_s or 0.0)
    return Verdict(Action.STOP)


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that an answer asks to wait: ``retry-after-ms``, or ``retry-after`` as seconds or as a date."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if text.replace(".", "", 1).isdigit() and text.isascii():
            return float(text) / scale
    try:
        due = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if due.tzinfo is None:
        due = due.replace(tzinfo=UTC)
    return max(0.0, (due - (now or datetime.now(UTC))).total_seconds())


def backoff_s(failures: int, first_s: float, most_s: float, jitter: float) -> float:
    """How long to wait before the next try: at most ``first_s``, doubled with each failure in a row, up to ``most_s``.

    ``jitter`` in [0, 1) spreads the clients of an edge that died: each waits a part of its time.
    """
    return jitter * min(most_s, first_s * float(1 << min(failures, 30)))
