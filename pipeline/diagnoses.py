"""Six diagnoses of one generation: rules over what is known of it, each with its evidence.

======================  ==============================================================================================
slow_first_token        the first content came late: which segment took the time
jittery_stream          the content came unevenly: who let it stall (provider, edge pause, network, reader)
cost_after_cancel       tokens or time after a cancel, or a provider's socket that nobody is known to have closed
answer_changed_…        ``answer_changed_after_retry``: another attempt than the first gave the answer, and what differed
json_broken_at_end      tool arguments or JSON-mode content malformed or cut off
retry_storm             so many tries of one generation that providers and users both feel it
======================  ==============================================================================================

Across generations (the answer of a user's "try again", a storm at a provider) the views of ``sinks/sql`` look: a late
parent changes them. Evidence is canonical JSON of integers and words, so that the same records give the same bytes. The
limits are constants: a diagnosis means the same in every row. Pure. Before: ``finalize`` (the record without
diagnoses). After: the record.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pipeline.lineage import changed_inputs
from schemas.events import AttemptEnd, AttemptStart, EndedBy, LogEvent, Outcome
from schemas.records import Diagnosis, GenerationRecord

SLOW_FIRST_TOKEN_US = 2_000_000
"""The last bucket of the first-token metric, and about where people stop waiting without a doubt."""
JITTER_EVENTS_MIN = 20
"""Fewer gaps have no 99th percentile to speak of."""
JITTER_RATIO, JITTER_P99_US_MIN = 10, 200_000
"""Uneven: the 99th percentile of the gaps is ten times their median, and long enough to be seen."""
PAUSE_US_MIN = 1_000_000
"""So long the edge itself did not read before its readers must have noticed."""
AFTER_CANCEL_US_MAX = 500_000
"""A soft cancel lets the read in progress finish (200 ms); after this the socket should be closed."""
SOFT_TOKENS_MAX = 20
"""So much the read in progress may bring; after a hard cancel nothing is waited for."""
RETRY_STORM_ATTEMPTS = 3
"""Tries of one generation, hedges not counted: the default chain spent to its end."""

_encode = msgspec.json.Encoder(order="deterministic").encode
Evidence = dict[str, Any]


class Known(NamedTuple):
    """What the rules look at."""

    record: GenerationRecord
    starts: Mapping[int, AttemptStart]
    ends: Mapping[int, AttemptEnd]

    @property
    def committed(self) -> AttemptEnd | None:
        """The end of the attempt that gave the answer."""
        return None if self.record.committed_attempt is None else self.ends.get(self.record.committed_attempt)


def diagnose(
    record: GenerationRecord, starts: Mapping[int, LogEvent], ends: Mapping[int, AttemptEnd]
) -> list[Diagnosis]:
    """The diagnoses that hold, in the order of the table above."""
    begun = {
        number: event.attempt_start for number, event in starts.items() if event.attempt_start is not None
    }
    known = Known(record, begun, ends)
    found = ((name, rule(known)) for name, rule in _RULES.items())
    return [
        Diagnosis(name=name, evidence=_encode({k: v for k, v in evidence.items() if v is not None}).decode())
        for name, evidence in found
        if evidence is not None
    ]


def _slow_first_token(known: Known) -> Evidence | None:
    record, latency = known.record, known.record.latency
    total_us = latency.total_us if latency is not None else None
    ttft_us = record.timings.ttft_us
    waited_us = total_us if ttft_us is None else ttft_us
    emit_us = latency.first_event_us if latency is not None and record.client_streamed else None
    if waited_us is None or waited_us + (emit_us or 0) <= SLOW_FIRST_TOKEN_US:
        return None
    segments = _segments(known, waited_us) | {"emit": emit_us or 0}
    return {
        "ttft_us": ttft_us,
        "waited_us": waited_us + (emit_us or 0),
        "limit_us": SLOW_FIRST_TOKEN_US,
        "segment": max(segments, key=lambda name: segments[name]),
        "segments_us": {name: length_us for name, length_us in segments.items() if length_us},
    }


def _segments(known: Known, until_us: int) -> dict[str, int]:
    """The wait for the first content, cut where something is known of it; ``provider`` is what nobody explains."""
    latency = known.record.latency
    last = known.committed or known.ends.get(max(known.ends, default=-1))
    first = known.ends.get(min(known.ends, default=-1))
    own_us = last.dispatched_us if last is not None and last.dispatched_us is not None else None
    first_us = first.dispatched_us if first is not None and first.dispatched_us is not None else own_us
    gateway_us = latency.gateway_us if latency is not None and latency.gateway_us is not None else first_us
    queue_us = (latency.queue_us if latency is not None else None) or 0
    prefill_us = (latency.prefill_us if latency is not None else None) or 0
    before_us = max(0, own_us - first_us) if own_us is not None and first_us is not None else 0
    known_us = (gateway_us or 0) + queue_us + prefill_us + before_us
    return {
        "gateway": gateway_us or 0,
        "queue": queue_us,
        "earlier_attempts": before_us,
        "prefill": prefill_us,
        "provider": max(0, until_us - known_us),
    }


def _jittery_stream(known: Known) -> Evidence | None:
    record, timings = known.record, known.record.timings
    own = [row for row in record.stalls if row.attempt == record.committed_attempt]
    p50_us, p99_us = timings.icl_p50_us, timings.icl_p99_us
    uneven = (
        p50_us is not None
        and p99_us is not None
        and record.content_events > JITTER_EVENTS_MIN
        and p99_us >= max(JITTER_P99_US_MIN, JITTER_RATIO * p50_us)
    )
    if not own and not uneven and record.pauses_us < PAUSE_US_MIN:
        return None
    return {
        "cause": _cause(known),
        "stall_count": timings.stall_count,
        "stall_us": timings.stall_us,
        "longest_stall_us": timings.longest_stall_us,
        "unclosed_us": sum(row.length_us for row in own if not row.counted) or None,
        "ended_by": sorted({row.ended_by.value for row in own}) or None,
        "icl_p50_us": p50_us,
        "icl_p99_us": p99_us,
        "pauses_us": record.pauses_us or None,
        "last_detach_reason": record.last_detach_reason,
    }


def _cause(known: Known) -> str:
    """Whose silence weighs most: each length goes to who let it pass, the largest sum names the cause."""
    record = known.record
    weights = {"provider": 0, "network": 0, "reader": 0, "edge_pause": record.pauses_us}
    for row in record.stalls:
        if row.attempt == record.committed_attempt:
            weights[_BLAMED.get(row.ended_by, "provider")] += row.length_us
    return max(weights, key=lambda name: weights[name])


_BLAMED = {EndedBy.CUT: "network", EndedBy.DISCONNECT: "reader"}
"""A silence that a broken connection ended was the connection's; one after which nobody was left, the reader's."""


def _cost_after_cancel(known: Known) -> Evidence | None:
    record, cancel = known.record, known.record.cancel
    if cancel is None:
        return None
    tokens = None
    if record.tokens_generated is not None and cancel.tokens_generated is not None:
        tokens = max(0, record.tokens_generated - cancel.tokens_generated)
    open_sockets = sorted(
        n for n in known.starts.keys() | known.ends.keys() if not _released(known.ends.get(n))
    )
    last_us = max((released.at_us for end in known.ends.values() for released in end.released), default=None)
    after_us = None if last_us is None or cancel.at_us is None else max(0, last_us - cancel.at_us)
    allowed = SOFT_TOKENS_MAX if cancel.mode == "soft" else 0
    if (tokens or 0) <= allowed and not open_sockets and (after_us or 0) <= AFTER_CANCEL_US_MAX:
        return None
    return {
        "tokens_after": tokens,
        "after_us": after_us,
        "socket_released": not open_sockets,
        "attempts_not_released": open_sockets or None,
        "mode": cancel.mode,
        "reason": cancel.reason,
        "output_tokens": record.usage.output if record.usage is not None else None,
        "tokens_delivered": record.tokens_delivered,
    }


def _released(end: AttemptEnd | None) -> bool:
    """Whether the edge said that it closed the provider's socket, or that there never was one."""
    if end is None or end.outcome is Outcome.LOST:
        return False
    return end.dispatched_us is None or any(item.resource == "upstream_socket" for item in end.released)


def _answer_changed_after_retry(known: Known) -> Evidence | None:
    number = known.record.committed_attempt
    first = min(known.starts, default=None)
    if number is None or first is None or number <= first or number not in known.starts:
        return None
    begun = sorted(n for n, end in known.ends.items() if n < number and end.content_events)
    changed = set(changed_inputs(known.starts[first], known.starts[number]))
    changed |= set(known.starts[number].changed_inputs)  # what it says of itself is against the first, too
    served = [end.served_model for n, end in known.ends.items() if n in (first, number) and end.served_model]
    if len(set(served)) > 1:
        changed.add("served_model")
    hedged = known.starts[number].reason.startswith("hedge")
    if not begun and not changed - ({"provider"} if hedged else set()):
        return None  # that another provider was quicker is what a hedge is for
    return {
        "attempt": number,
        "changed": sorted(changed),
        "instead_of": begun or None,  # attempts whose answer had begun and was given up
        "reason": known.starts[number].reason,
        "first": f"{known.starts[first].provider}/{known.starts[first].model}",
        "answered": f"{known.starts[number].provider}/{known.starts[number].model}",
    }


def _json_broken_at_end(known: Known) -> Evidence | None:
    record = known.record
    if record.postprocess_result not in ("malformed", "truncated") or record.finish_reason == "cancelled":
        return None  # what somebody stopped is not whole, and nobody is surprised
    return {
        "result": record.postprocess_result,
        "finish_reason": record.finish_reason,
        "error_code": record.error_code,
        "output_tokens": record.usage.output if record.usage is not None else None,
    }


def _retry_storm(known: Known) -> Evidence | None:
    numbers = sorted(known.starts.keys() | known.ends.keys())
    hedges = {n for n, start in known.starts.items() if start.reason.startswith("hedge")}
    tries = [n for n in numbers if n not in hedges]
    if len(tries) < RETRY_STORM_ATTEMPTS:
        return None
    ends = [known.ends[n] for n in numbers if n in known.ends]
    return {
        "attempts": len(numbers),
        "tries": len(tries),
        "hedges": len(hedges) or None,
        "by_provider": _counts(end.provider for end in ends),
        "by_error": _counts(end.error_code for end in ends if end.error_code),
        "waited_ms": sum(start.backoff_ms or 0 for start in known.starts.values()),
        "possibly_billed": sum(end.possibly_billed for end in ends),
    }


def _counts(words: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


_RULES = {
    "slow_first_token": _slow_first_token,
    "jittery_stream": _jittery_stream,
    "cost_after_cancel": _cost_after_cancel,
    "answer_changed_after_retry": _answer_changed_after_retry,
    "json_broken_at_end": _json_broken_at_end,
    "retry_storm": _retry_storm,
}
NAMES = tuple(_RULES)
"""The six, in order."""
