"""Rows of what the pipeline derives: attempts, generations, ledger lines. Pure; the maps are the tables' columns.

Before: ``rows`` has the helpers. After: ``intake`` takes ``TABLES`` and the row functions from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from schemas.events import LatencyBreakdown, Resources, Usage
from schemas.topics import ATTEMPTS as ATTEMPTS_TOPIC
from schemas.topics import GENERATIONS as GENERATIONS_TOPIC
from schemas.topics import LEDGER as LEDGER_TOPIC
from sinks.rows import Column, Columns, in_ms, money, ms, same, start_us
from sinks.store import Row, Table

if TYPE_CHECKING:
    from schemas.records import AttemptRecord, AttemptSummary, GenerationRecord, LedgerLine, StallRow

_NO_USAGE = Usage()
_NO_LATENCY = LatencyBreakdown()
_NOTHING = Resources()
_FIRST = 1 << 62
"""Minus the offset: the version of a ledger row, so that of equal lines the first in log order stands."""
_json = msgspec.json.Encoder()


def _usage(of: str) -> Columns:
    counts = (
        "input",
        "cache_read",
        "cache_write",
        "cache_write_1h",
        "output",
        "reasoning",
        "input_audio",
        "output_audio",
        "server_tool_requests",
    )
    path = of.split(".")

    def usage(record: Any) -> Usage:
        for name in path:
            record = getattr(record, name)
        return record or _NO_USAGE

    def count(name: str) -> Column:
        return lambda record: getattr(usage(record), name)

    return {f"usage_{name}": count(name) for name in counts} | {
        "usage_source": lambda r: usage(r).source.value,
        "usage_flags": lambda r: usage(r).flags,
        "usage_raw": lambda r: usage(r).raw,
    }


def _latency() -> Columns:
    def part(name: str) -> Column:
        return lambda r: ms(getattr(r.latency or _NO_LATENCY, name))

    names = [field.name for field in msgspec.structs.fields(LatencyBreakdown)]
    return {f"latency_{name.removesuffix('_us')}_ms": part(name) for name in names}


def _tool(*names: str) -> Columns:
    """The latest report of a tool before a cancel."""

    def part(name: str) -> Column:
        return lambda r: getattr(r.cancel.tool, name) if r.cancel and r.cancel.tool else None

    return {f"cancel_tool_{name.removeprefix('tool_')}": part(name) for name in names}


def _released() -> Columns:
    def part(name: str) -> Column:
        return lambda r: ms(getattr(r.released or _NOTHING, name))

    names = [field.name for field in msgspec.structs.fields(Resources)]
    return {f"released_{name.removesuffix('_us')}_ms": part(name) for name in names}


_ATTEMPTS: Columns = {
    **same("tenant", "generation_id", "attempt", "revision"),
    "start": lambda r: start_us(r.generation_id),
    **same("key_id", "dialect", "edge_id"),
    "wall": lambda r: r.wall_us,
    **same("request_id", "provider", "model", "served_model", of="end."),
    "started": lambda r: r.end.started_us,
    "outcome": lambda r: r.end.outcome.value,
    **same("committed", of="end."),
    "dispatch": lambda r: r.end.dispatch.value,
    **same("service_tier", "region", "pool_id", "model_route", "error_code", of="end."),
    "upstream_status": lambda r: r.end.upstream_error.status if r.end.upstream_error else None,
    "upstream_error": lambda r: _json.encode(r.end.upstream_error).decode() if r.end.upstream_error else "",
    **same("finish_reason", of="end."),
    **_usage("end.usage"),
    **same("possibly_billed", of="end."),
    **in_ms("dispatched", "first_content", "last_content", of="end."),
    **same("content_events", "text_events", "bytes_seen", of="end."),
    **same("tokens_seen_estimate", "tokens_delivered_estimate", of="end."),
    "gaps": lambda r: [
        (
            g.content_index,
            ms(g.start_us),
            ms(g.length_us),
            g.seq,
            g.tokens_estimate,
            g.stage.value,
            g.ended_by.value,
        )
        for g in r.end.gaps
    ],
    "released": lambda r: [(item.resource, ms(item.at_us)) for item in r.end.released],
    **in_ms("elapsed", "stall_threshold", of="end."),
}

_GENERATIONS: Columns = {
    **same("tenant", "generation_id", "revision"),
    "start": lambda r: start_us(r.generation_id),
    **same("key_id", "status", "dialect", "edge_id", "terminal", "terminal_seq"),
    "start_wall": lambda r: r.start_wall_us,
    "end_wall": lambda r: r.end_wall_us,
    **same("request_id", "previous_generation_id", "lineage_kind", "client_id"),
    **same("model", "served_model", "model_route", "priority", "risk_tier", "prompt_version", "prompt_hash"),
    **same("upstream_id", "client_streamed", "finish_reason", "raw_finish_reason"),
    "choices": lambda r: [(c.choice_index, c.finish_reason, c.raw_finish_reason) for c in r.choices],
    **same("error_code", "error_message", "retryable"),
    "missing": lambda r: [(m.first, m.last) for m in r.missing],
    **same("flags", "trace_complete", "events", "content_events", "text_bytes", "output_hash"),
    **in_ms("ttft", "attempt_ttft", "ttft_emitted", "generation", "active_generation", "e2e", of="timings."),
    **in_ms("stall", of="timings."),
    **same("stall_count", "stall_runs", of="timings."),
    **in_ms("longest_stall", "icl_p50", "icl_p95", "icl_p99", "icl_max", "tpot", of="timings."),
    "tokens_per_second_active": lambda r: ms(r.timings.tokens_per_second_active_milli),
    "tokens_per_second_wall": lambda r: ms(r.timings.tokens_per_second_wall_milli),
    **same("tps_basis", "tps_null_reason", of="timings."),
    **_latency(),
    **in_ms("clock_skew"),
    **_usage("usage"),
    **same("committed_attempt"),
    "attempts": lambda r: [_summary(a) for a in r.attempts],
    "stalls": lambda r: [_stall(s) for s in r.stalls],
    "lineage": lambda r: [(e.kind, e.from_id, e.to_id, e.changed_inputs) for e in r.lineage],
    "diagnoses": lambda r: [(d.name, d.evidence) for d in r.diagnoses],
    "cancel_mode": lambda r: r.cancel.mode if r.cancel else None,
    "cancel_reason": lambda r: r.cancel.reason if r.cancel else None,
    "cancel_source": lambda r: r.cancel.source if r.cancel else None,
    "cancel_requested_by": lambda r: r.cancel.requested_by if r.cancel else None,
    "cancel_stage": lambda r: r.cancel.stage.value if r.cancel else None,
    **same("tokens_generated", "tokens_delivered", "delivered_seq", "acked_seq", "last_detach_reason"),
    **in_ms("pauses"),
    **in_ms("attempt_ttft_text", of="timings."),
    **same("cache_hit", "sampling", "postprocess_result"),
    "cancel_at_ms": lambda r: ms(r.cancel.at_us) if r.cancel else None,
    "cancel_tokens_generated": lambda r: r.cancel.tokens_generated if r.cancel else None,
    "cancel_policy": lambda r: r.cancel.policy if r.cancel else None,
    "cancel_last_seq": lambda r: r.cancel.last_seq if r.cancel else None,
    "cancel_disconnect_reason": lambda r: r.cancel.disconnect_reason if r.cancel else None,
    **_tool("tool_call_id", "status", "side_effect_committed", "compensation_id"),
    **_released(),
}

_LEDGER: Columns = {
    **same("tenant", "generation_id", "attempt"),
    "side": lambda r: r.side.value,
    **same("bucket", "revision", "content_hash"),
    "start": lambda r: start_us(r.generation_id),
    "started": lambda r: r.started_us,
    **same("key_id", "request_id", "provider", "model", "quantity"),
    "unit_price": lambda r: money(r.unit_price, "unit_price"),
    "amount": lambda r: money(r.amount, "amount"),
    **same("currency", "price_hash", "policy_hash", "usage_source", "status", "flags", "record_hash"),
}

ATTEMPTS = Table(
    name="attempts",
    topic=ATTEMPTS_TOPIC,
    columns=("partition", "offset", *_ATTEMPTS),
    key=("tenant", "generation_id", "attempt"),
    version="revision",
)
GENERATIONS = Table(
    name="generations",
    topic=GENERATIONS_TOPIC,
    columns=("partition", "offset", *_GENERATIONS),
    key=("tenant", "generation_id"),
    version="revision",
)
LEDGER = Table(
    name="ledger",
    topic=LEDGER_TOPIC,
    columns=("partition", "offset", "precedence", *_LEDGER),
    key=("tenant", "generation_id", "attempt", "side", "bucket", "revision", "content_hash"),
    version="precedence",
)


def attempt_row(record: AttemptRecord, partition: int, offset: int) -> Row:
    """The row of an attempt. Raises Poison."""
    return (partition, offset, *[column(record) for column in _ATTEMPTS.values()])


def generation_row(record: GenerationRecord, partition: int, offset: int) -> Row:
    """The row of a generation. Raises Poison."""
    return (partition, offset, *[column(record) for column in _GENERATIONS.values()])


def ledger_row(record: LedgerLine, partition: int, offset: int) -> Row:
    """The row of a ledger line. Raises Poison."""
    return (partition, offset, _FIRST - offset, *[column(record) for column in _LEDGER.values()])


def _summary(a: AttemptSummary) -> Row:
    usage = a.usage or _NO_USAGE
    return (
        a.attempt,
        a.provider,
        a.model,
        a.reason,
        a.outcome,
        a.error_code,
        a.committed,
        a.backoff_ms,
        usage.input,
        usage.output,
    )


def _stall(s: StallRow) -> Row:
    return (
        s.attempt,
        s.seq,
        s.content_index,
        ms(s.start_us),
        ms(s.length_us),
        s.tokens_estimate,
        s.stage.value,
        s.ended_by.value,
        s.counted,
    )
