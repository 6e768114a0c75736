"""The row of one generation from what was kept of its records.

Every value is a pure function of the distinct records that were folded in, never of when or how often they were read:
the same ``revision`` has the same bytes. Before: ``generation``. After: the record goes to ``generations.v1``;
``timings`` has the numbers in it.
"""

import hashlib
from typing import Any

from msgspec import structs

from pipeline import stalls
from pipeline.diagnoses import diagnose
from pipeline.generation import Generation
from pipeline.lineage import edges_of
from pipeline.sums import Sums
from pipeline.timings import several_choices, timings
from schemas.events import AttemptEnd, ErrorEnd, LogEvent, MessageEnd, Usage, UsageSource
from schemas.records import AttemptSummary, GenerationRecord, StallRow

CLOCK_SKEW_US = 1_000_000
"""Above it, the edge's wall clock was set while the generation ran (flag ``clock_skew``)."""
SAMPLING_CHARS_MAX = 4_096
"""Above it a hash stands for the sampling fields: enough to say whether two generations had the same."""

_OF_OPENING = (
    "request_id",
    "previous_generation_id",
    "lineage_kind",
    "client_id",
    "model",
    "model_route",
    "priority",
    "risk_tier",
    "prompt_version",
    "prompt_hash",
    "client_streamed",
)
_OF_END = ("finish_reason", "raw_finish_reason", "choices")
_OF_EITHER = (
    "tokens_generated",
    "tokens_delivered",
    "upstream_id",
    "latency",
    "postprocess_result",
    "released",
)


def generation_record(generation: Generation) -> GenerationRecord:
    """Its row. What still waits behind a hole is folded first: what is missing now is lost.

    A ValueError for a generation without a terminal.
    """
    generation.flush()
    sums, terminal, first = generation.sums, generation.terminal, generation.first
    if terminal is None:
        raise ValueError(f"generation {first.generation_id} has no terminal: there is nothing to finalize")
    opening = sums.start.message_start if sums.start is not None else None
    committed = _committed(sums)
    attempt_end = sums.ends.get(committed) if committed is not None else None
    usage = _usage(sums, terminal.message_end or terminal.error, attempt_end)
    owner = sums.start or first
    record = GenerationRecord(
        tenant=owner.tenant,
        generation_id=owner.generation_id,
        key_id=owner.key_id,
        revision=generation.revision if sums.start is not None else 0,
        status="gap" if generation.holes else "complete",
        dialect=owner.dialect,
        edge_id=owner.edge_id,
        terminal=terminal.kind.value,
        terminal_seq=generation.terminal_seq,
        start_wall_us=sums.start.wall_us if sums.start is not None else None,
        end_wall_us=terminal.wall_us,
        missing=list(generation.holes),
        flags=_flags(generation),
        trace_complete=_trace_complete(generation, usage),
        events=sums.events,
        content_events=sums.content_events,
        text_bytes=sums.digest.text_bytes,
        output_hash=sums.digest.output_hash(),
        timings=timings(sums, terminal, usage, attempt_end),
        clock_skew_us=sums.skew_us,
        usage=usage,
        cache_hit=None if usage is None or usage.cache_read is None else usage.cache_read > 0,
        sampling=_bounded(sums.sampling),
        committed_attempt=committed,
        attempts=_attempts(sums),
        stalls=_stall_rows(sums, committed, terminal.message_end),
        lineage=edges_of(owner.generation_id, opening, sums.starts, _superseded_by(terminal)),
        cancel=sums.cancel or (terminal.message_end.cancel if terminal.message_end is not None else None),
        delivered_seq=sums.delivered_seq,
        acked_seq=sums.acked_seq,
        last_detach_reason=sums.last_detach_reason,
        pauses_us=sums.pauses_us,
    )
    said = _of_attempt(attempt_end) | _same_named(opening, _OF_OPENING)
    said |= _of_terminal(terminal.message_end, terminal.error, attempt_end)
    record = structs.replace(record, **said)
    return structs.replace(record, diagnoses=diagnose(record, sums.starts, sums.ends))


def _bounded(sampling: str | None) -> str | None:
    """The sampling fields, or a hash in their place: a row is one record, and a client's ``logit_bias`` has no bound."""
    if sampling is None or len(sampling) <= SAMPLING_CHARS_MAX:
        return sampling
    return f"sha256:{hashlib.sha256(sampling.encode()).hexdigest()}"


def _same_named(source: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names} if source is not None else {}


def _of_attempt(end: AttemptEnd | None) -> dict[str, Any]:
    """What the committed attempt says where the opening record is lost."""
    if end is None:
        return {}
    return {"request_id": end.request_id, "model": end.model, "model_route": end.model_route}


def _of_terminal(
    end: MessageEnd | None, error: ErrorEnd | None, attempt_end: AttemptEnd | None
) -> dict[str, Any]:
    said = _same_named(end, _OF_END) | _same_named(end or error, _OF_EITHER)
    if error is not None:
        said |= {
            "finish_reason": error.finish_reason,
            "error_code": error.code,
            "error_message": error.message,
            "retryable": error.retryable,
        }
    terminal = end or error
    served = terminal.served_model if terminal is not None else None
    said["served_model"] = served or (attempt_end.served_model if attempt_end is not None else None)
    return said


def _superseded_by(terminal: LogEvent) -> str | None:
    """The generation that took this one's place; one that only goes on from it says so itself."""
    error = terminal.error
    return error.successor if error is not None and error.code == "superseded" else None


def _committed(sums: Sums) -> int | None:
    """The attempt whose content is the answer; without content, the one that its edge committed."""
    if sums.committed_attempt is not None:
        return sums.committed_attempt
    return min((attempt for attempt, end in sums.ends.items() if end.committed), default=None)


def _usage(
    sums: Sums, terminal: MessageEnd | ErrorEnd | None, attempt_end: AttemptEnd | None
) -> Usage | None:
    for said in (terminal, attempt_end):
        if said is not None and said.usage is not None:
            return said.usage
    return sums.usage


def _claimed_hash(generation: Generation) -> str | None:
    terminal = generation.terminal
    if terminal is None:
        return None
    if terminal.message_end is not None:
        return terminal.message_end.output_hash
    return terminal.error.partial_output_hash if terminal.error is not None else None


def _flags(generation: Generation) -> list[str]:
    sums = generation.sums
    claimed = _claimed_hash(generation)
    wrong_hash = claimed is not None and claimed != sums.digest.output_hash()
    told = (
        ("gap", bool(generation.holes)),
        ("conflict", generation.conflict),
        ("late", generation.late),
        ("clock_skew", (sums.skew_us or 0) > CLOCK_SKEW_US),
        ("hash_mismatch", wrong_hash and not generation.holes),
    )
    return [flag for flag, holds in told if holds]


def _trace_complete(generation: Generation, usage: Usage | None) -> bool:
    error = generation.terminal.error if generation.terminal is not None else None
    return (
        not generation.holes
        and not generation.conflict
        and generation.sums.start is not None
        and (error is None or error.code != "edge_lost")
        and usage is not None
        and usage.source is UsageSource.REPORTED
    )


def _attempts(sums: Sums) -> list[AttemptSummary]:
    return [_attempt(number, sums) for number in sorted(sums.starts.keys() | sums.ends.keys())]


def _attempt(number: int, sums: Sums) -> AttemptSummary:
    record = sums.starts.get(number)
    start = record.attempt_start if record is not None else None
    end = sums.ends.get(number)
    known = end or start
    return AttemptSummary(
        attempt=number,
        provider=known.provider if known is not None else None,
        model=known.model if known is not None else None,
        reason=start.reason if start is not None else None,
        outcome=end.outcome.value if end is not None else None,
        error_code=end.error_code if end is not None else None,
        committed=end.committed if end is not None else False,
        backoff_ms=start.backoff_ms if start is not None else None,
        usage=end.usage if end is not None else None,
    )


def _stall_rows(sums: Sums, committed: int | None, end: MessageEnd | None) -> list[StallRow]:
    """The committed attempt's from the log, its last gap included; the others' as their edge measured them."""
    rows: list[StallRow] = []
    if not several_choices(sums, end):
        rows = [_staged(row, closing_seq, sums) for row, closing_seq in sums.clock.rows]
        if committed is not None and committed in sums.ends:
            last = sums.clock.trailing(committed, sums.ends[committed])
            rows += [last] if last is not None else []
    for number in sorted(sums.ends.keys() - {committed}):
        rows += stalls.rows_of_loser(number, sums.ends[number])
    if sums.cancel is not None and sums.cancel.reason == stalls.CLIENT_GONE:
        rows = [stalls.ended_by_the_reader(row) for row in rows]
    return rows


def _staged(row: StallRow, closing_seq: int, sums: Sums) -> StallRow:
    stage = stalls.stage_of(row, closing_seq, sums.stages)
    return row if stage is row.stage else structs.replace(row, stage=stage)
