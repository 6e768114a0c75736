"""Form ``stall``: chunks at monotonic times through the fold, and the stall numbers of the row that comes out of it.

Chunks become records (content kinds, frames, heartbeats); what ended the stream before its time becomes the end of the
attempt and an ``error``. The attempt is dispatched at the vector's ``dispatch_us``.
"""

from decimal import Decimal

from pipeline.fold import FoldPartition, Limits
from schemas.codec import Codec
from schemas.events import (
    AttemptEnd,
    AttemptStart,
    CancelRequested,
    Canonical,
    ErrorEnd,
    Heartbeat,
    Kind,
    LogEvent,
    MessageEnd,
    MessageStart,
    Outcome,
    PartType,
    Stage,
)
from schemas.records import GenerationRecord

CONTENT = {
    "content": (Kind.DELTA, PartType.TEXT),
    "reasoning": (Kind.DELTA, PartType.REASONING),
    "tool": (Kind.TOOL_CALL_DELTA, PartType.TOOL_CALL),
}
CODES = {
    "watchdog": "stall_timeout",
    "ttft_timeout": "ttft_timeout",
    "cancel": "cancelled",
    "disconnect": "cancelled",
}
REASONS = {"cancel": "user_abort", "disconnect": "client_disconnect"}
NOISE = frozenset({"empty", "role", "keepalive", "heartbeat", "usage"})


def unsupported(vector):
    """An end that no error code of ours stands for."""
    ended_by = vector.get("end", {}).get("by", "watchdog")
    return None if ended_by in CODES else f"end: {ended_by}"


def run(vector, tmp_path):
    """The row of one generation with these chunks has the stall numbers that the vector names."""
    codec = Codec()
    fold = FoldPartition(codec, Limits(stall_threshold_us=int(vector["threshold_ms"] * 1000)))
    outputs = []
    for offset, event in enumerate(events_of(vector)):
        outputs += fold.step(offset, codec.decode(codec.encode(event), LogEvent))
    (row,) = [output for output in outputs if isinstance(output, GenerationRecord)]
    timings = row.timings
    found = {
        "ttft_ms": in_ms(timings.attempt_ttft_us),
        "ttft_text_ms": in_ms(timings.attempt_ttft_text_us),
        "generation_ms": in_ms(timings.generation_us),
        "active_generation_ms": in_ms(timings.active_generation_us),
        "stall_count": timings.stall_count,
        "stall_ms": in_ms(timings.stall_us),
        "longest_stall_ms": in_ms(timings.longest_stall_us),
        "stalls": [
            {
                "after_content": stall.content_index,
                "start_us": stall.start_us + origin_us(vector),
                "gap_ms": in_ms(stall.length_us),
                "ended_by": stall.ended_by.value,
            }
            for stall in row.stalls
        ],
    }
    for name, wanted in vector["expect"].items():
        assert found[name] == wanted, name


def events_of(vector):
    """The log of one generation whose only attempt gets these chunks."""
    origin = origin_us(vector)
    dispatched_us = vector["dispatch_us"] - origin
    start = MessageStart(request_id="r", model="m", model_route="p", prompt_hash="h")
    yield record(Kind.MESSAGE_START, 0, seq=0, message_start=start)
    yield record(
        Kind.ATTEMPT_START, dispatched_us, after_seq=0, attempt_start=AttemptStart(provider="p", model="m")
    )
    seq, at_us = 0, dispatched_us
    for chunk_us, name in vector["chunks_us"]:
        at_us = chunk_us - origin
        if name == "heartbeat":
            beat = Heartbeat(stage=Stage.DECODE, elapsed_ms=at_us // 1000)
            yield record(Kind.HEARTBEAT, at_us, after_seq=seq, heartbeat=beat)
            continue
        seq += 1
        yield chunk(name, at_us, seq)
    end = vector.get("end")
    if end:
        at_us = end["t_us"] - origin
        if end["by"] in REASONS:
            cancel = CancelRequested(reason=REASONS[end["by"]])
            yield record(Kind.CANCEL_REQUESTED, at_us, after_seq=seq, cancel=cancel)
    code = CODES[end["by"]] if end else None
    yield record(
        Kind.ATTEMPT_END,
        at_us,
        after_seq=seq,
        attempt_end=AttemptEnd(
            provider="p",
            model="m",
            request_id="r",
            started_us=0,
            outcome=Outcome.FAILED if end else Outcome.OK,
            error_code=code,
            dispatched_us=dispatched_us,
            elapsed_us=at_us - dispatched_us,
        ),
    )
    if code:
        yield record(Kind.ERROR, at_us, seq=seq + 1, error=ErrorEnd(code=code, message="x"))
    else:
        yield record(Kind.MESSAGE_END, at_us, seq=seq + 1, message_end=MessageEnd(finish_reason="stop"))


def chunk(name, at_us, seq):
    """A content record, or one that looks like content and is none."""
    if name in CONTENT:
        kind, part = CONTENT[name]
        return record(kind, at_us, seq=seq, canonical=[Canonical(type=part, text="x")])
    assert name in NOISE
    if name == "empty":
        return record(Kind.DELTA, at_us, seq=seq, canonical=[Canonical(type=PartType.TEXT, text="")])
    return record(Kind.FRAME, at_us, seq=seq)


def record(kind, elapsed_us, **fields):
    """A record of the generation."""
    return LogEvent(
        generation_id="0199c0de-0000-7000-8000-000000000001",
        tenant="acme",
        key_id="key-1",
        dialect="openai.chat",
        kind=kind,
        wall_us=1_700_000_000_000_000 + elapsed_us,
        edge_id="edge-1",
        elapsed_us=elapsed_us,
        **fields,
    )


def origin_us(vector):
    """The request is accepted a little before its dispatch; the clock's own origin means nothing."""
    return vector["dispatch_us"] - 1_000


def in_ms(us):
    """Milliseconds, exactly."""
    return None if us is None else Decimal(us) / 1000
