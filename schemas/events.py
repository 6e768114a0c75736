"""LogEvent: the record of ``tokentrail.events.v1``.

One provider event = one record = one seq = one frame. ``raw`` holds the exact ``data`` that the client is sent and is
never rendered again; ``canonical`` holds what was understood of it. What a kind has of its own is a nullable
sub-record of the envelope (a union of payload records would make an unknown branch unreadable for an old reader).
Times are ``int`` microseconds. New fields need a default; new symbols of an enum are read as ``unknown`` by old readers.

Before: ``kinds`` and ``payloads``, whose names are given on from here. After: ``records``; ``avro`` makes the schema.
"""

from schemas.attempts import AttemptEnd, AttemptStart, Gap, Released
from schemas.kinds import (
    CONTENT_KINDS,
    NUMBERED,
    TERMINALS,
    Dispatch,
    EndedBy,
    Kind,
    Outcome,
    PartType,
    Stage,
    UsageSource,
)
from schemas.payloads import (
    BillingSummary,
    CancelRequested,
    Canonical,
    ChoiceFinish,
    ClientReader,
    ErrorEnd,
    Heartbeat,
    LatencyBreakdown,
    MessageEnd,
    MessageStart,
    ProviderError,
    Resources,
    RuntimeSnapshot,
    SeqRange,
    Struct,
    ToolStatus,
    Usage,
)

__all__ = [
    "CONTENT_KINDS",
    "NUMBERED",
    "TERMINALS",
    "AttemptEnd",
    "AttemptStart",
    "BillingSummary",
    "CancelRequested",
    "Canonical",
    "ChoiceFinish",
    "ClientReader",
    "Dispatch",
    "EndedBy",
    "ErrorEnd",
    "Gap",
    "Heartbeat",
    "Kind",
    "LatencyBreakdown",
    "LogEvent",
    "MessageEnd",
    "MessageStart",
    "Outcome",
    "PartType",
    "ProviderError",
    "Released",
    "Resources",
    "RuntimeSnapshot",
    "SeqRange",
    "Stage",
    "Struct",
    "ToolStatus",
    "Usage",
    "UsageSource",
]


class LogEvent(Struct, frozen=True, kw_only=True):
    """The envelope. ``seq`` for numbered kinds, ``after_seq`` for trace kinds, never both."""

    generation_id: str
    tenant: str
    key_id: str
    dialect: str
    kind: Kind
    wall_us: int
    edge_id: str
    seq: int | None = None
    after_seq: int | None = None
    attempt: int = 0
    elapsed_us: int | None = None  # None where the owner edge did not write the record
    paused_us: int = 0
    raw_event: str | None = None
    raw: str | None = None
    canonical: list[Canonical] = []
    part: int | None = None
    parts: int | None = None
    slice: bytes | None = None
    message_start: MessageStart | None = None
    message_end: MessageEnd | None = None
    error: ErrorEnd | None = None
    usage: Usage | None = None
    heartbeat: Heartbeat | None = None
    attempt_start: AttemptStart | None = None
    attempt_end: AttemptEnd | None = None
    cancel: CancelRequested | None = None
    tool_status: ToolStatus | None = None
    client: ClientReader | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether this record ends its generation."""
        return self.kind in TERMINALS

    @property
    def has_content(self) -> bool:
        """Whether any canonical part is content that is not empty."""
        if self.kind in CONTENT_KINDS:
            for part in self.canonical:
                if part.is_content:
                    return True
        return False
