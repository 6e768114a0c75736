"""What is derived from the log, and the three small topics beside it.

AttemptRecord, GenerationRecord and LedgerLine are pure functions of the log: the same ``revision`` has the same bytes
whenever it is emitted. ControlRecord and ClaimRecord are what edges say to one another, ConfigRecord what an operator
says to all of them. Durations stay in integer microseconds here; the tables show milliseconds. Money is a plain decimal
string.

Before: ``events``. After: ``topics`` says where each travels.
"""

from schemas.events import (
    AttemptEnd,
    CancelRequested,
    ChoiceFinish,
    EndedBy,
    LatencyBreakdown,
    Resources,
    SeqRange,
    Stage,
    Struct,
    ToolStatus,
    Usage,
)
from schemas.kinds import Word


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One ``attempt_end``, as billing and the ``attempts`` table take it.

    ``revision`` is 0 for the finder's ``lost``, 1 for the edge's own word; the higher one stands.
    """

    tenant: str
    key_id: str
    generation_id: str
    attempt: int
    revision: int
    dialect: str
    edge_id: str
    wall_us: int
    end: AttemptEnd


class StallRow(Struct, frozen=True, kw_only=True):
    """A gap longer than the threshold, with where it stood. ``counted`` is false for a last gap that nothing closed."""

    attempt: int
    seq: int | None
    content_index: int
    start_us: int
    length_us: int
    tokens_estimate: int | None = None
    stage: Stage = Stage.DECODE
    ended_by: EndedBy = EndedBy.CONTENT
    counted: bool = True


class LineageEdge(Struct, frozen=True, kw_only=True):
    """How one attempt or generation came from another."""

    kind: str  # retry, fallback, hedge, repair, shrink, continue, regenerate, superseded
    from_id: str
    to_id: str
    changed_inputs: list[str] = []


class Diagnosis(Struct, frozen=True, kw_only=True):
    """A rule that holds of this generation, with its evidence as canonical JSON."""

    name: str
    evidence: str


class AttemptSummary(Struct, frozen=True, kw_only=True):
    """One attempt as its generation's row shows it."""

    attempt: int
    provider: str | None = None
    model: str | None = None
    reason: str | None = None
    outcome: str | None = None
    error_code: str | None = None
    committed: bool = False
    backoff_ms: int | None = None
    usage: Usage | None = None


class Timings(Struct, frozen=True, kw_only=True):
    """Microseconds, from ``elapsed_us`` alone; None where the definition gives nothing (pipeline definitions)."""

    ttft_us: int | None = None
    attempt_ttft_us: int | None = None
    attempt_ttft_text_us: int | None = None  # first text, where reasoning or a tool call came before it
    ttft_emitted_us: int | None = None
    generation_us: int | None = None
    active_generation_us: int | None = None
    e2e_us: int | None = None
    stall_us: int | None = None
    stall_count: int | None = None
    stall_runs: int | None = None
    longest_stall_us: int | None = None
    icl_p50_us: int | None = None
    icl_p95_us: int | None = None
    icl_p99_us: int | None = None
    icl_max_us: int | None = None
    tpot_us: int | None = None
    tokens_per_second_active_milli: int | None = None
    tokens_per_second_wall_milli: int | None = None
    tps_basis: str | None = None
    tps_null_reason: str | None = None


class GenerationRecord(Struct, frozen=True, kw_only=True):
    """One generation, finalized.

    ``revision`` is the number of the generation's distinct records folded in, 0 if its start was not among them, so
    that a fragment never replaces the whole. ``status``: complete, or gap (``missing`` says which seqs).
    """

    tenant: str
    generation_id: str
    key_id: str
    revision: int
    status: str
    dialect: str
    edge_id: str
    terminal: str  # message_end, error
    terminal_seq: int
    start_wall_us: int | None = None
    end_wall_us: int | None = None
    request_id: str | None = None
    previous_generation_id: str | None = None
    lineage_kind: str | None = None
    client_id: str | None = None
    model: str | None = None
    served_model: str | None = None
    model_route: str | None = None
    priority: str | None = None
    risk_tier: str | None = None
    prompt_version: str | None = None
    prompt_hash: str | None = None
    upstream_id: str | None = None
    client_streamed: bool | None = None
    finish_reason: str | None = None
    raw_finish_reason: str | None = None
    choices: list[ChoiceFinish] = []
    error_code: str | None = None
    error_message: str | None = None
    retryable: bool | None = None
    missing: list[SeqRange] = []
    flags: list[str] = []  # gap, conflict, late, clock_skew, hash_mismatch
    trace_complete: bool = False
    events: int = 0
    content_events: int = 0
    text_bytes: int = 0
    output_hash: str | None = None
    timings: Timings = Timings()
    latency: LatencyBreakdown | None = None
    clock_skew_us: int | None = None
    usage: Usage | None = None
    cache_hit: bool | None = None  # None: the provider did not say
    committed_attempt: int | None = None
    attempts: list[AttemptSummary] = []
    stalls: list[StallRow] = []
    lineage: list[LineageEdge] = []
    diagnoses: list[Diagnosis] = []
    cancel: CancelRequested | None = None
    tokens_generated: int | None = None
    tokens_delivered: int | None = None
    delivered_seq: int | None = None
    acked_seq: int | None = None
    last_detach_reason: str | None = None
    pauses_us: int = 0
    sampling: str | None = None  # the sampling fields of the request, canonical JSON
    postprocess_result: str | None = None
    released: Resources | None = None


class Side(Word):
    """Which of the two sums a ledger line belongs to."""

    UNKNOWN = "unknown"
    PROVIDER_COST = "provider_cost"
    CUSTOMER_CHARGE = "customer_charge"


class LedgerLine(Struct, frozen=True, kw_only=True):
    """One bucket of one attempt on one side. ``amount`` None: unpriced or unmeasured, never zero.

    Key: (generation_id, attempt, side, bucket); the highest ``revision`` stands, nothing is summed over revisions.
    ``content_hash`` is SHA-256 over all other fields: the same revision with another hash is a conflict. ``record_hash``
    is of all lines of its attempt, side and revision together: lines with different ones come from two records.
    """

    tenant: str
    key_id: str
    generation_id: str
    attempt: int
    side: Side
    bucket: str  # input, cache_read, cache_write, output, request, tool_call, none
    revision: int
    started_us: int
    request_id: str
    provider: str
    model: str
    quantity: int | None = None
    unit_price: str | None = None
    amount: str | None = None
    currency: str = "USD"
    price_hash: str | None = None
    policy_hash: str | None = None
    usage_source: str = "none"
    status: str = "completed"  # completed, cancelled, incomplete, unpriced, quarantined
    flags: list[str] = []
    content_hash: str = ""
    record_hash: str = ""


class ControlKind(Word):
    """What edges tell one another about a generation."""

    UNKNOWN = "unknown"
    CANCEL = "cancel"
    ATTACHED = "attached"
    ALIAS = "alias"
    TOOL = "tool"


class ControlRecord(Struct, frozen=True, kw_only=True):
    """A record of ``tokentrail.control.v1``: a cancel call, a reader on another edge, a provider's id, a tool's report.

    ``noted``: the report is in the log already.
    """

    generation_id: str
    kind: ControlKind
    edge_id: str
    wall_us: int
    tenant: str | None = None
    cancel: CancelRequested | None = None
    alias: str | None = None
    tool_status: ToolStatus | None = None
    noted: bool = False


class ClaimRecord(Struct, frozen=True, kw_only=True):
    """A record of ``tokentrail.claims.v1``: this generation claims this idempotency key."""

    claim_key: str
    tenant: str
    generation_id: str
    body_hash: str
    edge_id: str
    wall_us: int


class ConfigKind(Word):
    """What an operator says to running processes."""

    UNKNOWN = "unknown"
    API_KEY = "api_key"
    FORGOTTEN = "forgotten"


class KeyHash(Struct, frozen=True, kw_only=True):
    """One text of an API key, as its SHA-256 in hex; good until an instant, None: until it is taken away."""

    sha256: str
    until_us: int | None = None


class KeyEntry(Struct, frozen=True, kw_only=True):
    """An API key: its texts change in a rotation, its id and with it its streams do not. No hash: revoked."""

    tenant: str
    label: str = ""
    roles: list[str] = []
    hashes: list[KeyHash] = []


class ForgottenEntry(Struct, frozen=True, kw_only=True):
    """A generation that was erased on request, and whose it was."""

    tenant: str
    key_id: str


class ConfigRecord(Struct, frozen=True, kw_only=True):
    """A record of ``tokentrail.config.v1``: all that holds of one thing by name; the last of its key stands."""

    kind: ConfigKind
    name: str  # the API key's id, the generation's id
    wall_us: int
    api_key: KeyEntry | None = None
    forgotten: ForgottenEntry | None = None

    @property
    def key(self) -> bytes:
        """The record's key in the topic."""
        return f"{self.kind.value}/{self.name}".encode()
