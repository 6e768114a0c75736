"""What a kind of record has of its own: the nullable sub-records of the envelope in ``events``.

Every new field needs a default, so that old records stay readable. Times are ``int`` microseconds. Before: ``kinds``.
After: ``events``.
"""

import msgspec

from schemas.kinds import PartType, Stage, UsageSource


class Struct(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of every record: frozen, written without its defaults (keyword-only is not inherited, so each says it).

    Not watched by the cycle collector: a record holds values only, and windows hold very many records.
    """


_CONTENT = frozenset(
    {PartType.TEXT, PartType.REASONING, PartType.REFUSAL, PartType.TOOL_CALL, PartType.CITATION}
)


class Canonical(Struct, frozen=True, kw_only=True):
    """One part of what a provider event said.

    ``text`` is the fragment itself: text, reasoning, refusal, tool arguments, or a citation as the provider's JSON.
    """

    type: PartType = PartType.UNKNOWN
    text: str = ""
    choice_index: int = 0
    block_index: int | None = None
    tool_index: int | None = None
    tool_call_id: str | None = None
    name: str | None = None
    finish_reason: str | None = None
    raw_finish_reason: str | None = None
    tokens_estimate: int | None = None
    decode_step: int | None = None
    url: str | None = None
    evidence_id: str | None = None
    page: str | None = None
    doc_version: str | None = None
    schema_version: str | None = None

    @property
    def is_content(self) -> bool:
        """Content: text, reasoning, refusal, tool arguments or a citation, not empty."""
        return bool(self.text) and self.type in _CONTENT


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts in disjoint buckets; None is unmeasured, 0 is measured zero. ``reasoning`` is part of ``output``."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None  # of cache_write
    output: int | None = None
    reasoning: int | None = None  # of output
    input_audio: int | None = None  # of input
    output_audio: int | None = None  # of output
    server_tool_requests: int | None = None
    source: UsageSource = UsageSource.NONE
    flags: list[str] = []
    raw: str | None = None  # the provider's reports as received, a JSON array


class RuntimeSnapshot(Struct, frozen=True, kw_only=True):
    """What the request asked for, beside its text: enough to explain a difference between two answers."""

    pool_id: str | None = None
    engine_version: str | None = None
    route: str | None = None
    sampling: str | None = None  # the sampling fields of the request, canonical JSON
    response_schema_hash: str | None = None
    stop_rules: list[str] = []


class MessageStart(Struct, frozen=True, kw_only=True):
    """Opens a generation. Acknowledged before any provider is called."""

    request_id: str
    model: str
    model_route: str
    prompt_hash: str
    client_streamed: bool = True
    previous_generation_id: str | None = None
    lineage_kind: str | None = None
    client_id: str | None = None
    trace_id: str | None = None
    priority: str | None = None
    risk_tier: str | None = None
    prompt_version: str | None = None
    request_deadline_ms: int | None = None
    context_ms: int | None = None
    idempotency_key_hash: str | None = None
    runtime_snapshot: RuntimeSnapshot | None = None


class LatencyBreakdown(Struct, frozen=True, kw_only=True):
    """Where the time went, microseconds; None: could not be observed.

    ``LATENCY_PARTS`` and ``unattributed_us`` add up to ``total_us`` (accepted → terminal). The others stand beside the sum: the
    client built its context before the request came, the writing to a socket runs beside decoding, and what a provider
    says of its whole processing overlaps with everything that it did.
    """

    gateway_us: int | None = None
    context_us: int | None = None
    queue_us: int | None = None
    prefill_us: int | None = None
    first_event_us: int | None = None
    decode_us: int | None = None
    postprocess_us: int | None = None
    ttft_us: int | None = None
    ttft_emitted_us: int | None = None
    unattributed_us: int | None = None
    total_us: int | None = None
    provider_us: int | None = None  # the provider's own processing time, as a header of its answer says it


LATENCY_PARTS = ("gateway_us", "queue_us", "prefill_us", "decode_us", "postprocess_us")
"""The parts of ``LatencyBreakdown`` that follow one another."""


class ChoiceFinish(Struct, frozen=True, kw_only=True):
    """How one choice ended."""

    choice_index: int = 0
    finish_reason: str
    raw_finish_reason: str | None = None


class BillingSummary(Struct, frozen=True, kw_only=True):
    """What the end says of the bill: where the token counts come from, and how many tokens (None: unmeasured)."""

    usage_source: UsageSource = UsageSource.NONE
    billable_units: int | None = None


class Resources(Struct, frozen=True, kw_only=True):
    """What a generation held, each with the time at which it gave it back (elapsed_us); None: it held none.

    Attempts are one here: the last socket's time stands. The provider's KV cache counts as free when its socket is closed.
    What outlives the terminal on purpose says when it goes at the latest: the memory window with the grace time, a claim
    that still stands with its day.
    """

    admission_slot_us: int | None = None
    upstream_socket_us: int | None = None
    kv_cache_us: int | None = None
    memory_window_us: int | None = None
    budget_reservation_us: int | None = None
    claim_us: int | None = None


class MessageEnd(Struct, frozen=True, kw_only=True):
    """The proper end; carries the protocol's own end mark in ``raw`` of its envelope."""

    finish_reason: str
    raw_finish_reason: str | None = None
    choices: list[ChoiceFinish] = []
    stop_rule_id: str | None = None
    usage: Usage | None = None
    latency: LatencyBreakdown | None = None
    output_hash: str | None = None
    attempts: int = 1
    tokens_generated: int | None = None
    tokens_delivered: int | None = None
    postprocess_result: str | None = None  # ok, malformed, truncated, not_applicable; None: not checked
    upstream_id: str | None = None
    served_model: str | None = None
    cancel: "CancelRequested | None" = None
    billing: BillingSummary | None = None
    released: Resources | None = None  # None: an edge that did not say


class ProviderError(Struct, frozen=True, kw_only=True):
    """What is kept of a provider's own error; ``raw`` is its payload as received, cut at a limit."""

    status: int | None = None
    code: str | None = None
    type: str | None = None
    message: str | None = None
    raw: str | None = None


class ErrorEnd(Struct, frozen=True, kw_only=True):
    """The other end. ``message`` is for people."""

    code: str
    message: str
    retryable: bool = False
    retry_after_ms: int | None = None
    finish_reason: str = "error"
    partial_output_hash: str | None = None
    partial_output_excerpt: str | None = None
    tokens_generated: int | None = None
    tokens_delivered: int | None = None
    attempts: int = 1
    upstream_error: ProviderError | None = None
    usage: Usage | None = None
    latency: LatencyBreakdown | None = None
    upstream_id: str | None = None
    served_model: str | None = None
    postprocess_result: str | None = None
    successor: str | None = None  # the generation that stands in its place, or goes on from it
    released: Resources | None = (
        None  # None: an edge that did not say, or the orphan finder, which cannot know
    )


class Heartbeat(Struct, frozen=True, kw_only=True):
    """The liveness that the orphan finder watches."""

    stage: Stage = Stage.UNKNOWN
    elapsed_ms: int = 0


class CancelRequested(Struct, frozen=True, kw_only=True):
    """Somebody asked for the end."""

    mode: str = "soft"
    reason: str = "user_abort"
    source: str = "api"
    requested_by: str | None = None
    stage: Stage = Stage.UNKNOWN
    at_us: int | None = None  # elapsed_us at which the generation's edge took it
    tokens_generated: int | None = None  # until then, estimated
    policy: str | None = None  # what the generation does without a reader: grace, continue, cancel
    last_seq: int | None = None  # the last that was sent to a reader of its edge by then: the last event id's
    disconnect_reason: str | None = None  # why the last reader that left had gone, if one had
    tool: "ToolStatus | None" = None  # the latest report of a tool by then


class ToolStatus(Struct, frozen=True, kw_only=True):
    """What became of a tool call, as its caller reports it."""

    tool_call_id: str
    status: str
    side_effect_committed: bool | None = None
    compensation_id: str | None = None
    idempotent: bool | None = None
    approved_by: str | None = None


class SeqRange(Struct, frozen=True, kw_only=True):
    """An inclusive range of seqs; ``crc32`` over the joined data bytes where a client acknowledged it."""

    first: int
    last: int
    crc32: int | None = None


class ClientReader(Struct, frozen=True, kw_only=True):
    """A local reader of the owner edge came, left, or acknowledged."""

    reader_id: str
    resumed_from: int | None = None
    last_seq: int | None = None
    reason: str | None = None
    ranges: list[SeqRange] = []
