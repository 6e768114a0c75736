"""One generation: its records put in seq order, each taken once.

Numbered records are summed in seq order; up to ``AHEAD_MAX`` of them wait for a hole to fill. Equal copies within
``COMPARED_SEQS`` are dropped, unequal ones flagged ``conflict``. The first terminal in log order wins; numbered records
behind it are ``late`` unless they fill a hole below it. ``revision`` counts the distinct records, so that equal
revisions of one generation have equal rows.

Pure: ``now_us`` is handed in, for the finder alone. Before: ``fold`` (which generation is open). After: ``sums``.
"""

from array import array
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from pipeline.sums import Sums
from schemas.events import Kind, LogEvent, SeqRange
from schemas.parts import Joiner

COMPARED_SEQS = 256
"""So far back a second record of a seq is compared with the first; further back it is taken for a copy."""
AHEAD_MAX = 256
"""Records that wait for a missing seq; when one more comes, the oldest hole is taken as lost."""
HOLES_MAX = 1_000
"""Ranges of missing seqs that are told apart; the last one then takes in everything up to the latest hole."""

_encode = msgspec.msgpack.Encoder().encode


class Took(Enum):
    """What became of a record."""

    FOLDED = "folded"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    LATE = "late"


@dataclass(slots=True)
class Generation:
    """State of one generation; ``take`` is its only way in.

    Args:
        sums: what is kept.
        first: whichever of its records came first.
        first_offset: of the first record that belongs to it: the commit never passes it while it is open.
    """

    sums: Sums
    first: LogEvent
    first_offset: int
    terminal: LogEvent | None = None
    terminal_seq: int = -1
    next_seq: int = 0
    holes: list[SeqRange] = field(default_factory=list)
    revision: int = 0
    conflict: bool = False
    late: bool = False
    joiner: Joiner | None = None
    opened_us: int = 0  # the finder's clock, never part of an output
    read_us: int = 0
    decided_us: int | None = None
    _ahead: dict[int, LogEvent] = field(default_factory=dict)
    _digests: "array[int]" = field(default_factory=lambda: array("q"))
    _recent: dict[int, None] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether it has its terminal and an end for every attempt that started."""
        return self.terminal is not None and not self.sums.open_attempts

    @property
    def whole(self) -> bool:
        """Whether no seq below the terminal's is still awaited."""
        return self.terminal is not None and self.next_seq > self.terminal_seq

    @property
    def unused_seq(self) -> int:
        """The first seq above every record of this generation."""
        return max(self._ahead) + 1 if self._ahead else self.next_seq

    def take(self, event: LogEvent) -> Took:
        """Take one record, in whatever order the log gives them."""
        seq = event.seq
        fingerprint = hash(_encode(event))
        if seq is None:
            if not self._is_new(fingerprint):
                return Took.DUPLICATE
            self.sums.trace(event)
            return Took.FOLDED
        if seq == self.next_seq and self.terminal is None:
            self.revision += 1
            if event.is_terminal:
                self._ends_with(seq, event)
            self._fold(seq, event, fingerprint)
            if self._ahead:
                self._drain()
            return Took.FOLDED
        return self._out_of_order(seq, event, fingerprint)

    def flush(self) -> None:
        """Fold what still waits behind holes: what is missing now is lost."""
        while self._ahead:
            self._skip_to(min(self._ahead))
            self._drain()
        if self.terminal is not None:
            self._skip_to(self.terminal_seq)

    def _out_of_order(self, seq: int, event: LogEvent, fingerprint: int) -> Took:
        terminal = self.terminal
        if terminal is not None and seq >= self.terminal_seq:
            if seq == self.terminal_seq and fingerprint == hash(_encode(terminal)):
                return Took.DUPLICATE
            return self._flag_late(fingerprint)
        if seq < self.next_seq:
            if terminal is None and event.kind is Kind.ERROR:
                # readers deliver the first error terminal whatever its seq: so it ends the generation here too
                self.revision += 1
                self.sums.events += 1
                self._ends_with(seq, event)
                return Took.FOLDED
            return self._second_of(seq, fingerprint)
        waiting = self._ahead.get(seq)
        if waiting is not None:
            return self._compare(fingerprint, hash(_encode(waiting)))
        self.revision += 1
        if terminal is None and event.is_terminal:
            self._ends_with(seq, event)
        self._ahead[seq] = event
        if len(self._ahead) > AHEAD_MAX:
            self._skip_to(min(self._ahead))
        self._drain()
        return Took.FOLDED

    def _second_of(self, seq: int, fingerprint: int) -> Took:
        if any(hole.first <= seq <= hole.last for hole in self.holes):
            return self._flag_late(fingerprint)
        if seq < self.next_seq - COMPARED_SEQS:
            return Took.DUPLICATE
        return self._compare(fingerprint, self._digests[seq % COMPARED_SEQS])

    def _compare(self, fingerprint: int, first: int) -> Took:
        if fingerprint == first or not self._is_new(fingerprint):
            return Took.DUPLICATE
        self.conflict = True
        return Took.CONFLICT

    def _flag_late(self, fingerprint: int) -> Took:
        if not self._is_new(fingerprint):
            return Took.DUPLICATE
        self.late = True
        return Took.LATE

    def _is_new(self, fingerprint: int) -> bool:
        """Whether this record is no copy of a recent one outside the seq order; counts it if so."""
        recent = self._recent
        if fingerprint in recent:
            return False
        recent[fingerprint] = None
        if len(recent) > COMPARED_SEQS:
            del recent[next(iter(recent))]
        self.revision += 1
        return True

    def _ends_with(self, seq: int, terminal: LogEvent) -> None:
        self.terminal, self.terminal_seq = terminal, seq
        for waiting in [waiting for waiting in self._ahead if waiting >= seq]:
            del self._ahead[waiting]
            self.late = True

    def _drain(self) -> None:
        while (event := self._ahead.pop(self.next_seq, None)) is not None:
            self._fold(self.next_seq, event, hash(_encode(event)))

    def _fold(self, seq: int, event: LogEvent, fingerprint: int) -> None:
        self._remember(seq, fingerprint)
        self.next_seq = seq + 1
        self.sums.numbered(seq, event)

    def _skip_to(self, seq: int) -> None:
        if seq <= self.next_seq:
            return
        if len(self.holes) < HOLES_MAX:
            self.holes.append(SeqRange(first=self.next_seq, last=seq - 1))
        else:
            self.holes[-1] = SeqRange(first=self.holes[-1].first, last=seq - 1)
        for missing in range(self.next_seq, min(seq, self.next_seq + COMPARED_SEQS)):
            self._remember(missing, 0)
        self.next_seq = seq

    def _remember(self, seq: int, fingerprint: int) -> None:
        index = seq % COMPARED_SEQS
        if index < len(self._digests):
            self._digests[index] = fingerprint
        else:
            self._digests.append(fingerprint)
