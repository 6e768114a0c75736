"""The events of an attempt that is not committed: held in memory, without seq. Pure.

They are given on when the attempt is committed, or counted and read here where it never is. Before: ``capture``. After:
``attempt``.
"""

from typing import NamedTuple

from edge.dialects import Captured
from schemas.events import PartType


class Hold(NamedTuple):
    """What is held back before the commit. ``whole``: all of it, until a proper end; ``us``: content, for so long."""

    whole: bool = False
    us: int = 0


NO_HOLD = Hold()


class Held:
    """What was captured and not delivered."""

    __slots__ = ("_events", "size")

    def __init__(self) -> None:
        self._events: list[tuple[Captured, int, int]] = []
        self.size = 0  # characters of the provider's own words

    def add(self, captured: Captured, at_us: int, paused_us: int) -> None:
        """Keep an event, captured at ``elapsed_us``, with our own pause before it."""
        self._events.append((captured, at_us, paused_us))
        self.size += len(captured.raw)

    def taken(self) -> list[tuple[Captured, int, int]]:
        """Everything, once: it is somebody else's from now on."""
        events, self._events = self._events, []
        return events

    @property
    def captured(self) -> list[Captured]:
        """What is still here, in order."""
        return [captured for captured, _, _ in self._events]

    def content_bytes(self) -> int:
        """UTF-8 bytes of the content."""
        return sum(len(p.text.encode()) for c in self.captured for p in c.canonical if p.is_content)

    def text(self) -> str:
        """The plain text."""
        return "".join(p.text for c in self.captured for p in c.canonical if p.type is PartType.TEXT)
