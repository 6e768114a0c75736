"""Whole generations for tests of the fold, and the fold over a list of records."""

from pipeline.fold import FoldPartition, Limits
from schemas.codec import Codec
from schemas.events import (
    AttemptEnd,
    AttemptStart,
    ErrorEnd,
    Kind,
    MessageEnd,
    MessageStart,
    Outcome,
    Usage,
    UsageSource,
)
from schemas.records import AttemptRecord, GenerationRecord
from tests.support.events import GENERATION_ID, log_event, text

WALL_US = 1_700_000_000_000_000
CODEC = Codec()
OTHER_ID = "01931a2b-3c4d-7e5f-8a6b-0000000000ff"
USAGE = Usage(input=10, output=30, source=UsageSource.REPORTED)


def at(ms, **fields):
    """Give the times of a record so many milliseconds after its request was accepted."""
    return {"elapsed_us": ms * 1000, "wall_us": WALL_US + ms * 1000} | fields


def start(**fields):
    """Give a message_start."""
    opening = MessageStart(request_id="req-1", model="m", model_route="r", prompt_hash="h")
    return log_event(Kind.MESSAGE_START, 0, message_start=opening, **at(0, **fields))


def attempt_start(attempt=0, ms=1, reason="first", **fields):
    """Give an attempt_start."""
    begun = AttemptStart(provider="p", model="m", reason=reason)
    return log_event(
        Kind.ATTEMPT_START, after_seq=0, attempt=attempt, attempt_start=begun, **at(ms, **fields)
    )


def attempt_end(attempt=0, ms=500, outcome=Outcome.OK, **fields):
    """Give an attempt_end; unknown fields go to its own part."""
    envelope = {k: fields.pop(k) for k in list(fields) if k in ("generation_id", "edge_id")}
    own = {
        "provider": "p",
        "model": "m",
        "request_id": "req-1",
        "started_us": WALL_US,
        "outcome": outcome,
        "committed": outcome is Outcome.OK,
        "dispatched_us": 1_000,
        "elapsed_us": ms * 1000 - 1_000,
        "usage": USAGE,
    }
    return log_event(
        Kind.ATTEMPT_END,
        after_seq=0,
        attempt=attempt,
        attempt_end=AttemptEnd(**own | fields),
        **at(ms, **envelope),
    )


def content(seq, ms, fragment="x", **fields):
    """Give a delta at a time."""
    return text(seq, fragment, **at(ms, **fields))


def end(seq, ms=501, **fields):
    """Give a message_end; unknown fields go to its own part."""
    envelope = {k: fields.pop(k) for k in list(fields) if k in ("generation_id", "attempt")}
    said = MessageEnd(**{"finish_reason": "stop", "usage": USAGE} | fields)
    return log_event(Kind.MESSAGE_END, seq, message_end=said, raw="[DONE]", **at(ms, **envelope))


def failure(seq, ms=501, code="upstream_error", **fields):
    """Give an error terminal."""
    return log_event(Kind.ERROR, seq, error=ErrorEnd(code=code, message="x"), raw="e", **at(ms, **fields))


def whole(times_ms=(100, 120, 140), **fields):
    """Give a complete generation with a delta at each of these times."""
    seq = len(times_ms) + 1
    last_ms = times_ms[-1] if times_ms else 0
    return [
        start(**fields),
        attempt_start(**fields),
        *(content(i + 1, ms, f"t{i} ", **fields) for i, ms in enumerate(times_ms)),
        attempt_end(ms=last_ms + 5, **fields),
        end(seq, ms=last_ms + 6, **fields),
    ]


def new_fold(**options):
    """Give an empty fold; limits may be named among the options."""
    limits = {k: options.pop(k) for k in list(options) if k in Limits._fields}
    return FoldPartition(CODEC, Limits(**limits), **options)


def feed(fold, events, first_offset=None):
    """Fold the records at consecutive offsets; what came out."""
    offset = fold.position if first_offset is None else first_offset
    return [output for i, event in enumerate(events) for output in fold.step(offset + i, event)]


def row_of(events, **limits):
    """Give the one generation row that these records make, the partition's end included."""
    fold = new_fold(**limits)
    outputs = [*feed(fold, events), *fold.at_end()]
    (row,) = [output for output in outputs if isinstance(output, GenerationRecord)]
    return row


def generations(outputs):
    """Give the generation rows among the outputs."""
    return [output for output in outputs if isinstance(output, GenerationRecord)]


def attempts(outputs):
    """Give the attempt rows among the outputs."""
    return [output for output in outputs if isinstance(output, AttemptRecord)]


__all__ = [
    "CODEC",
    "GENERATION_ID",
    "OTHER_ID",
    "USAGE",
    "WALL_US",
    "at",
    "attempt_end",
    "attempt_start",
    "attempts",
    "content",
    "end",
    "failure",
    "feed",
    "generations",
    "new_fold",
    "row_of",
    "start",
    "whole",
]
