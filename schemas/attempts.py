"""What an attempt's two records say: how it began, and everything about how it ended.

Before: ``payloads``. After: ``events``, which gives these names on.
"""

from schemas.kinds import Dispatch, EndedBy, Outcome, Stage
from schemas.payloads import ProviderError, Struct, Usage


class AttemptStart(Struct, frozen=True, kw_only=True):
    """One call to one provider begins; acknowledged before the call.

    Behind ``prompt_hash`` stand the fields of the strategy that led to it: retry, context shrink, fallback, repair,
    continuation; None where they are not of this one.
    """

    provider: str
    model: str
    reason: str = "first"
    pool_id: str | None = None
    priority: str | None = None
    deadline_ms: int | None = None
    backoff_ms: int | None = None
    changed_inputs: list[str] = []
    prompt_hash: str | None = None
    from_model: str | None = None
    retry_count: int | None = None
    retry_reason: str | None = None
    same_prompt_hash: bool | None = None
    to_model: str | None = None
    fallback_reason: str | None = None
    dropped_segments: int | None = None
    new_token_budget: int | None = None
    parse_error: str | None = None
    repair_prompt_version: str | None = None
    previous_output_hash: str | None = None
    continuation_point: int | None = None  # the seq behind which a continuation goes on
    previous_request_id: str | None = None
    idempotency_key_hash: str | None = None


class Gap(Struct, frozen=True, kw_only=True):
    """A gap between consecutive content events of one attempt, longer than the threshold."""

    content_index: int  # of the content event before the gap, from 0
    start_us: int  # elapsed_us of that event
    length_us: int
    seq: int | None = None  # of that event; None while it has none
    tokens_estimate: int | None = None
    stage: Stage = Stage.DECODE
    ended_by: EndedBy = EndedBy.CONTENT


class Released(Struct, frozen=True, kw_only=True):
    """A resource that was given back, and when (elapsed_us)."""

    resource: str
    at_us: int


class AttemptEnd(Struct, frozen=True, kw_only=True):
    """One call to one provider ended. Self-contained: billing needs this record and nothing else."""

    provider: str
    model: str
    request_id: str
    started_us: int  # UTC, Unix microseconds: the instant that prices are looked up at
    outcome: Outcome
    committed: bool = False
    dispatch: Dispatch = Dispatch.UNKNOWN
    served_model: str | None = None
    service_tier: str | None = None
    region: str | None = None
    pool_id: str | None = None
    model_route: str | None = None
    error_code: str | None = None
    upstream_error: ProviderError | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    possibly_billed: bool = False
    dispatched_us: int | None = None  # elapsed_us of the dispatch
    first_content_us: int | None = None  # elapsed_us
    last_content_us: int | None = None  # elapsed_us
    content_events: int = 0
    text_events: int = 0
    bytes_seen: int = 0
    tokens_seen_estimate: int | None = None
    tokens_delivered_estimate: int | None = None
    gaps: list[Gap] = []
    released: list[Released] = []
    elapsed_us: int = 0  # length of the attempt, from its own dispatch
    stall_threshold_us: int | None = None
