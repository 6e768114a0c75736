"""Generations whose edge went silent: when they are lost, and the records that say so.

A generation is lost when everything below the answer of an end-offset request, begun ``orphan_after_us`` after its last
record was read, is folded, and not within that time of the log's own return. What others have written behind that answer
says nothing for it: a busy partition's position is rarely the very answer. One that is still open so
long after its own limit is ended the same way. What is appended is the decision: the fold reads it as any other record
and never decides again.

The verdict is a function of the folded log alone (no clock, no worker's name in it), so that two workers that both
append write equal records: the first counts, an equal later one is nothing. Pure; ``*_us`` are the finder's own
monotonic clock unless a name says ``wall`` or ``elapsed``. Before: ``fold``. After: ``fold_service`` appends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from msgspec import structs

from pipeline.generation import Generation
from pipeline.sums import Sums
from schemas.events import AttemptEnd, Dispatch, ErrorEnd, Gap, Kind, LogEvent, Outcome
from schemas.failures import error_frame
from schemas.outcomes import ERRORS
from schemas.records import StallRow

FINDER = "finder"
"""``edge_id`` of what the finder appends."""
CODE = "edge_lost"
GAPS_MAX = 100
"""Gaps in a lost attempt's end: the log has them all, and the record stays small."""
PROBES_PER_PATIENCE = 8
"""End-offset requests per orphan time: an outage that falls between two of them is too short to matter."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long silence is borne, and how long a generation may take at all."""

    orphan_after_us: int
    generation_us: int

    @property
    def probe_every_us(self) -> int:
        """The time between two end-offset requests."""
        return self.orphan_after_us // PROBES_PER_PATIENCE


class LogWatch:
    """Since when the log of one partition answers: silence during an outage says nothing about an edge.

    Args:
        now_us: the partition was taken over; what was before is not known.
    """

    __slots__ = ("_answered_us", "_failing", "returned_us")

    def __init__(self, now_us: int) -> None:
        self.returned_us = now_us
        self._answered_us = now_us
        self._failing = False

    def failed(self) -> None:
        """A request was not answered in time."""
        self._failing = True

    def answered(self, now_us: int, patience: Patience) -> bool:
        """A request was answered. After a failure, or a time in which nobody asked, that is the log's return (True)."""
        unwatched_us = now_us - self._answered_us
        returns = self._failing or unwatched_us > patience.orphan_after_us // 2
        if returns:
            self.returned_us = now_us
        self._failing = False
        self._answered_us = now_us
        return returns


@dataclass(frozen=True, slots=True)
class Probe:
    """One end-offset request: when it was begun, what it was answered, and what is folded by now."""

    begun_us: int
    end_offset: int
    position: int


class Probes:
    """The end-offset requests of one partition: which of them can be judged."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: Probe | None = None

    def folded(self, probe: Probe) -> Probe | None:
        """Take an answer; the newest one up to which everything is folded, None where there is none yet.

        Where the fold is always a little behind the end, an answer waits until the fold has come so far.
        """
        waited, self._waiting = self._waiting, None
        if probe.position >= probe.end_offset:
            return probe
        if waited is None or probe.position < waited.end_offset:
            self._waiting = waited or probe
            return None
        self._waiting = probe
        return replace(waited, position=probe.position)


def lost(
    generations: Iterable[Generation], probe: Probe, returned_us: int, patience: Patience
) -> list[Generation]:
    """The generations that this probe proves lost or overdue."""
    if probe.position < probe.end_offset or probe.begun_us - returned_us < patience.orphan_after_us:
        return []
    return [generation for generation in generations if _is_due(generation, probe.begun_us, patience)]


def _is_due(generation: Generation, now_us: int, patience: Patience) -> bool:
    if generation.settled:
        return False
    decided_us = generation.decided_us
    if decided_us is not None and now_us - decided_us < patience.orphan_after_us:
        return False
    silent = now_us - generation.read_us >= patience.orphan_after_us
    overdue = now_us - generation.opened_us >= patience.generation_us + patience.orphan_after_us
    return silent or overdue


def verdict(generation: Generation) -> list[LogEvent]:
    """What is appended: an ``attempt_end`` per open attempt and, where there is no terminal, ``error edge_lost``."""
    records = [_lost_attempt(generation, attempt) for attempt in sorted(generation.sums.open_attempts)]
    if generation.terminal is None:
        records.append(_terminal(generation))
    return records


def _lost_attempt(generation: Generation, attempt: int) -> LogEvent:
    sums, owner = generation.sums, generation.first
    record = sums.starts[attempt]
    start, opening = record.attempt_start, sums.start.message_start if sums.start is not None else None
    end = AttemptEnd(
        provider=start.provider if start is not None else "",
        model=start.model if start is not None else "",
        request_id=opening.request_id if opening is not None else "",
        started_us=record.wall_us,
        outcome=Outcome.LOST,
        dispatch=Dispatch.UNKNOWN,
        pool_id=start.pool_id if start is not None else None,
        model_route=opening.model_route if opening is not None else None,
        error_code=CODE,
        possibly_billed=True,
        elapsed_us=max(0, sums.last_elapsed_us - (record.elapsed_us or 0)),
        stall_threshold_us=sums.clock.threshold_us,
    )
    return LogEvent(
        generation_id=owner.generation_id,
        tenant=owner.tenant,
        key_id=owner.key_id,
        dialect=owner.dialect,
        kind=Kind.ATTEMPT_END,
        wall_us=sums.last_wall_us,
        edge_id=FINDER,
        after_seq=generation.unused_seq - 1,
        attempt=attempt,
        attempt_end=_with_content(end, sums) if attempt == sums.committed_attempt else end,
    )


def _with_content(end: AttemptEnd, sums: Sums) -> AttemptEnd:
    """What the log holds of the attempt's content."""
    clock = sums.clock
    return structs.replace(
        end,
        committed=True,
        usage=sums.usage,
        first_content_us=clock.first_us,
        last_content_us=clock.last_us,
        content_events=sums.content_events,
        text_events=sums.text_events,
        bytes_seen=sums.raw_bytes,
        tokens_seen_estimate=clock.tokens_estimate or None,
        gaps=[_gap(row) for row, _ in clock.rows[:GAPS_MAX]],
    )


def _gap(row: StallRow) -> Gap:
    return Gap(
        content_index=row.content_index,
        start_us=row.start_us,
        length_us=row.length_us,
        seq=row.seq,
        tokens_estimate=row.tokens_estimate,
    )


def _terminal(generation: Generation) -> LogEvent:
    sums, owner = generation.sums, generation.first
    seq, outcome = generation.unused_seq, ERRORS[CODE]
    raw_event, raw = error_frame(owner.dialect, CODE, outcome.meaning, seq)
    return LogEvent(
        generation_id=owner.generation_id,
        tenant=owner.tenant,
        key_id=owner.key_id,
        dialect=owner.dialect,
        kind=Kind.ERROR,
        wall_us=sums.last_wall_us,
        edge_id=FINDER,
        seq=seq,
        attempt=sums.committed_attempt or 0,
        raw_event=raw_event,
        raw=raw,
        error=ErrorEnd(
            code=CODE,
            message=outcome.meaning,
            retryable=outcome.retryable,
            finish_reason=outcome.finish_reason,
            partial_output_hash=sums.digest.output_hash(),
            tokens_generated=sums.clock.tokens_estimate or None,
            attempts=len(sums.starts),
        ),
    )
