"""The one rule of reading: live, resumed, on another edge, from the archive.

A reader delivers a record if its seq is the next expected one, or if it is the first terminal in log order and an
``error``. A ``message_end`` that leaves a seq missing ends the reading with a gap. Everything else is skipped: copies,
holes and records behind the terminal look the same to everyone. Only the fold may reorder.

Before: ``lifecycle``. After: ``digest``.
"""

from enum import Enum

from schemas.events import Kind, LogEvent


class Verdict(Enum):
    """What a reader does with a record."""

    DELIVER = "deliver"
    SKIP = "skip"
    GAP = "gap"  # a proper end although a seq is missing: nothing more can be delivered


class Reading:
    """The position of one reader in one generation.

    Args:
        next_seq: the first seq that is wanted (0, or the cursor's seq + 1).
    """

    __slots__ = ("ended", "next_seq")

    def __init__(self, next_seq: int = 0) -> None:
        self.next_seq = next_seq
        self.ended = False

    def offer(self, event: LogEvent) -> Verdict:
        """Judge the next record in log order (multi-part records joined)."""
        seq = event.seq
        if seq is None or self.ended:
            return Verdict.SKIP
        if seq == self.next_seq:
            self.next_seq = seq + 1
            self.ended = event.is_terminal
            return Verdict.DELIVER
        if event.kind is Kind.ERROR:
            self.next_seq = seq + 1
            self.ended = True
            return Verdict.DELIVER
        if event.kind is Kind.MESSAGE_END:
            self.ended = True  # the first terminal: an error behind it is not delivered
            return Verdict.GAP if seq > self.next_seq else Verdict.SKIP
        return Verdict.SKIP
