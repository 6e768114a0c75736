"""The fold of one partition of ``events.v1``: log events in, attempt and generation records out.

``FoldPartition`` is the state machine; it does no I/O and has no clock. Feed it every record in offset order (``step``,
or ``skip`` for one that could not be decoded) and tell it when the partition's end is reached (``at_end``).

- Only ``message_start`` opens a generation. It is closed when it has its terminal and an ``attempt_end`` for every
  ``attempt_start``. One that is closed but for a missing seq is *held* until the partition's end.
- Records of a generation that is not open are kept aside (strays, bounded) and folded in when its start comes. At the
  partition's end those with a terminal become a ``gap`` of revision 0, the others are dropped and counted.
- Every ``attempt_end`` is an AttemptRecord at once, open generation or not.
- Ids closed lately are remembered (bounded): their records are only counted.

The log is the state: ``safe()`` never passes the first record of an open generation or of a stray, and says below which
offset (P) all outputs exist, once those that were returned are acknowledged. A fold that starts at the committed offset
with ``emit_from`` = P rebuilds the same state and emits nothing below P.

Before: ``fold_service`` (reads, decodes, sends). After: ``strays``, ``generation`` (order), ``sums``, ``finalize``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.finalize import generation_record
from pipeline.generation import Generation, Took
from pipeline.stalls import ContentClock
from pipeline.strays import Group, Strays
from pipeline.sums import Sums, revision_of
from pipeline.wellformed import check
from schemas.codec import Codec
from schemas.events import Kind, LogEvent
from schemas.parts import Joiner
from schemas.records import AttemptRecord, GenerationRecord

Output = AttemptRecord | GenerationRecord


class Limits(NamedTuple):
    """What one partition may hold, and the stall threshold."""

    stall_threshold_us: int = 2_000_000
    stray_records_max: int = 10_000
    closed_ids_max: int = 10_000


class Safe(NamedTuple):
    """What may be committed once every returned output is acknowledged."""

    commit_offset: int
    emitted_below: int  # P


@dataclass(slots=True)
class Counters:
    """Numbers of one partition since it was taken over; never part of an output."""

    records: int = 0
    duplicates: int = 0
    conflicts: int = 0
    late: int = 0
    unknown_kinds: int = 0
    strays_dropped: int = 0
    gaps: int = 0
    attempts: int = 0
    generations: int = 0


class FoldPartition:
    """One partition's state.

    Args:
        codec: joins the parts of large records.
        limits: bounds and the stall threshold.
        position: the offset of the first record that will be fed.
        emit_from: P; outputs of records below it exist already.
    """

    def __init__(
        self, codec: Codec, limits: Limits | None = None, *, position: int = 0, emit_from: int = 0
    ) -> None:
        self.position = position
        self.emit_from = emit_from
        self.counters = Counters()
        self._codec = codec
        self._limits = limits or Limits()
        self._open: dict[str, Generation] = {}
        self._held: dict[str, int] = {}  # id → offset of the record that would have closed it
        self._strays = Strays(codec, self._limits.stray_records_max)
        self._closed: dict[str, None] = {}

    @property
    def open(self) -> Iterable[Generation]:
        """The open generations, oldest first."""
        return self._open.values()

    @property
    def open_count(self) -> int:
        """How many generations are open."""
        return len(self._open)

    @property
    def waits_for_end(self) -> bool:
        """Whether ``at_end`` would do anything."""
        return bool(self._held or self._strays)

    def step(self, offset: int, event: LogEvent, now_us: int = 0) -> Sequence[Output]:
        """Fold the record at ``offset``; what it makes known, which must be acknowledged before ``safe()`` is used.

        Args:
            offset: greater than that of every record before; holes are normal.
            event: the record, its key already compared with its generation id.
            now_us: the finder's monotonic clock.

        Raises Poison for fields that cannot be; nothing but the position has changed then.
        """
        self.position = offset + 1
        check(event)
        self.counters.records += 1
        generation = self._open.get(event.generation_id)
        if generation is None:
            return self._unopened(offset, event, now_us)
        generation.read_us = now_us
        if event.part is not None:
            whole = self._join(generation, offset, event)
            if whole is None:
                return ()
            event = whole
        self._take(generation, event)
        if event.kind is Kind.ATTEMPT_END:
            return [*self._attempt(offset, event), *self._closing(offset, generation)]
        if generation.terminal is not None:
            return self._closing(offset, generation)
        return ()

    def skip(self, offset: int) -> None:
        """A record that could not be decoded and lies in the dead letters now."""
        self.position = offset + 1

    def at_end(self) -> Sequence[Output]:
        """The partition's end is reached: nothing that is missing now is on its way."""
        outputs: list[Output] = []
        for generation_id, offset in list(self._held.items()):
            outputs += self._close(offset, self._open[generation_id])
        for group in self._strays.take_all():
            outputs += self._fragment(group)
        return outputs

    def safe(self) -> Safe:
        """How far the commit may go, and P; see the module."""
        pending = [offset for offset in self._held.values() if offset >= self.emit_from]
        pending += self._strays.terminal_offsets(self.emit_from)
        emitted_below = max(self.emit_from, min([self.position, *pending]))
        pins = [generation.first_offset for generation in self._open.values()]
        pins += self._strays.first_offsets()
        return Safe(min([self.position, emitted_below, *pins]), emitted_below)

    def _unopened(self, offset: int, event: LogEvent, now_us: int) -> Sequence[Output]:
        whole = self._strays.join(offset, event)
        if whole is None:
            return ()
        if whole is not event:
            check(whole)
        outputs = self._attempt(offset, whole) if whole.kind is Kind.ATTEMPT_END else []
        if whole.generation_id in self._closed:
            self.counters.late += 1
        elif whole.kind is Kind.MESSAGE_START:
            outputs += self._opening(offset, whole, now_us)
        else:
            for group in self._strays.put(offset, whole):
                outputs += self._fragment(group)
        return outputs

    def _opening(self, offset: int, start: LogEvent, now_us: int) -> list[Output]:
        group = self._strays.pop(start.generation_id)
        generation = self._new(start, offset if group is None else min(offset, group.first_offset))
        generation.opened_us = generation.read_us = now_us
        self._open[start.generation_id] = generation
        self._take(generation, start)
        for _, stray in group.records if group is not None else ():
            self._take(generation, stray)
        return self._closing(offset, generation)

    def _new(self, first: LogEvent, first_offset: int) -> Generation:
        sums = Sums(ContentClock(self._limits.stall_threshold_us))
        return Generation(sums=sums, first=first, first_offset=first_offset)

    def _join(self, generation: Generation, offset: int, event: LogEvent) -> LogEvent | None:
        if generation.joiner is None:
            generation.joiner = Joiner(self._codec)
        whole = generation.joiner.offer(event, offset)
        if whole is not None:
            check(whole)
        return whole

    def _take(self, generation: Generation, event: LogEvent) -> None:
        took = generation.take(event)
        counters = self.counters
        if took is Took.FOLDED:
            counters.unknown_kinds += event.kind is Kind.UNKNOWN
        elif took is Took.DUPLICATE:
            counters.duplicates += 1
        elif took is Took.CONFLICT:
            counters.conflicts += 1
        else:
            counters.late += 1

    def _attempt(self, offset: int, event: LogEvent) -> list[Output]:
        end = event.attempt_end
        if end is None or offset < self.emit_from:
            return []
        self.counters.attempts += 1
        return [
            AttemptRecord(
                tenant=event.tenant,
                key_id=event.key_id,
                generation_id=event.generation_id,
                attempt=event.attempt,
                revision=revision_of(end),
                dialect=event.dialect,
                edge_id=event.edge_id,
                wall_us=event.wall_us,
                end=end,
            )
        ]

    def _closing(self, offset: int, generation: Generation) -> list[Output]:
        """Close it if nothing of it is outstanding; hold it if only a seq is missing."""
        generation_id = generation.first.generation_id
        if not generation.settled:
            self._held.pop(generation_id, None)
            return []
        if not generation.whole:
            self._held.setdefault(generation_id, offset)
            return []
        return self._close(offset, generation)

    def _close(self, offset: int, generation: Generation) -> list[Output]:
        generation_id = generation.first.generation_id
        self._held.pop(generation_id, None)
        self._open.pop(generation_id, None)
        self._closed[generation_id] = None
        if len(self._closed) > self._limits.closed_ids_max:
            del self._closed[next(iter(self._closed))]
        if offset < self.emit_from:
            return []
        record = generation_record(generation)
        self.counters.generations += 1
        self.counters.gaps += record.status == "gap"
        return [record]

    def _fragment(self, group: Group) -> list[Output]:
        """What becomes of strays whose start did not come."""
        if group.terminal_offset is None:
            self.counters.strays_dropped += len(group.records)
            return []
        generation = self._new(group.records[0][1], group.first_offset)
        for _, stray in group.records:
            self._take(generation, stray)
        return self._close(group.terminal_offset, generation)
