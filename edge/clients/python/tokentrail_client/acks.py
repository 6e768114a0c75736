"""What a reader of the native dialect acknowledges, and when: every 32 events, or two seconds after the first of them.

Ranges are said again until an edge took them. Pure. Before: ``checksums``. After: ``course``.
"""

import json
from collections.abc import Iterable

from tokentrail_client.checksums import EVENTS_PER_RANGE, Range, added
from tokentrail_client.effects import Ask, Lost

EVERY_S = 2.0
TELL_S = 2.0
"""An edge that does not take an acknowledgement must not hold the reading."""


class Acks:
    """The events of one session that no edge has been told of yet."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self._events = 0
        self._since = 0.0

    def took(self, events: Iterable[tuple[int, str]], now: float) -> None:
        """Events (number, data) were stored and handed over."""
        found = list(events)
        if found and not self._ranges:
            self._since = now
        self._ranges = added(self._ranges, found)
        self._events += len(found)

    def due(self, now: float, *, last: bool) -> tuple[Range, ...]:
        """The ranges to say now, none before their time; ``last``: nothing follows."""
        full = self._events >= EVENTS_PER_RANGE or now - self._since >= EVERY_S
        return tuple(self._ranges) if self._ranges and (full or last) else ()

    def answered(self, status: int | Lost, now: float) -> None:
        """What became of saying so. An edge that did not take it is told again with what comes next."""
        self._events, self._since = 0, now
        if not isinstance(status, Lost) and status < 300:  # noqa: PLR2004 - HTTP's own number
            self._ranges = []


def said(url: str, auth: Iterable[tuple[str, str]], ranges: Iterable[Range]) -> Ask:
    """The request that says so. The one place that knows how an edge wants to hear it."""
    body = json.dumps({"ranges": [part._asdict() for part in ranges]}).encode()
    return Ask("POST", url, {**dict(auth), "content-type": "application/json"}, body, TELL_S)
