"""What a reader of the native dialect acknowledges, and when: every 32 events, or two seconds after the first of them.

Ranges are said again until an edge took them. Pure. Before: ``checksums``. After: ``course``.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tokentrail_client.checksums import EVENTS_PER_RANGE, RANGES_MAX, Range, added
from tokentrail_client.effects import Ask, Lost, Repair
from tokentrail_client.frames import SEQ_DIGITS_MAX

EVERY_S = 2.0
TELL_S = 2.0
"""An edge that does not take an acknowledgement must not hold the reading."""


class Acks:
    """The events of one session that no edge has been told of yet.

    Attributes:
        reader_id: the ``X-Reader-Id`` of the connection that is read.

    """

    def __init__(self) -> None:
        self.reader_id = ""
        self._lacking: str | None = None
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

    def answered(self, answer: tuple[int, bytes] | Lost, now: float) -> None:
        """What became of saying so. An edge that did not take it is told again with what comes next."""
        self._events, self._since = 0, now
        if not isinstance(answer, Lost) and answer[0] < 300:  # noqa: PLR2004 - HTTP's own number
            self._ranges = []
            self._lacking = _nack_of(answer[1])

    def lacking(self) -> str | None:
        """What to ask for at the next connect (``X-Resume-Nack``), told once: what no open stream could bring."""
        lacking, self._lacking = self._lacking, None
        return lacking

    def request(self, url: str, auth: Iterable[tuple[str, str]], ranges: Iterable[Range]) -> Ask:
        """The request that says so. The one place that knows how an edge wants to hear it."""
        claims = [[part.first, part.last, f"{part.crc32:08x}"] for part in ranges]
        body = json.dumps({"reader_id": self.reader_id, "ranges": claims}).encode()
        return Ask("POST", url, {**dict(auth), "content-type": "application/json"}, body, TELL_S)


def _nack_of(body: bytes) -> str | None:
    """What an edge says that it would send again, as the next connect names it."""
    try:
        ranges = json.loads(body).get("nack") or []
        return ",".join(f"{int(first)}-{int(last)}" for first, last in ranges[:RANGES_MAX]) or None
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return None


def repairs(resent: list[str]) -> Iterator[Repair]:
    """The events that an edge sent again, taken out of the list; what cannot be read repairs nothing."""
    taken = resent[:]
    resent.clear()
    for text in taken:
        said = _object_in(text)
        seq, event, data = (said.get(name) for name in ("seq", "event", "data"))
        if seq is not None and isinstance(data, str) and isinstance(event, str | None):
            yield Repair(seq, event, data)


def _object_in(text: str) -> dict[str, Any]:
    """What is said; nothing where it is no object of the size of an edge's, or no text that UTF-8 has."""
    try:
        said = json.loads(text)
        json.dumps(said, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # half a surrogate, among others
        return {}
    seq = said.get("seq") if isinstance(said, dict) else None
    return said if isinstance(seq, int) and -1 < seq < 10**SEQ_DIGITS_MAX else {}
