"""The closed vocabularies of the log: kinds, part types, stages, outcomes.

Each enum's first symbol is the default that a reader with an older schema gets for a symbol it does not know.
Before: ``ids``. After: ``payloads``.
"""

from enum import StrEnum


class Word(StrEnum):
    """A word of a closed vocabulary; it is equal to its text, and hashes like it (and as fast)."""

    __hash__ = str.__hash__


class Kind(Word):
    """What a record is. The first is the default that an old reader gets for a kind it does not know."""

    UNKNOWN = "unknown"
    MESSAGE_START = "message_start"
    DELTA = "delta"
    TOOL_CALL_DELTA = "tool_call_delta"
    CITATION_DELTA = "citation_delta"
    FRAME = "frame"
    MESSAGE_END = "message_end"
    ERROR = "error"
    HEARTBEAT = "heartbeat"
    ATTEMPT_START = "attempt_start"
    ATTEMPT_END = "attempt_end"
    USAGE = "usage"
    CANCEL_REQUESTED = "cancel_requested"
    TOOL_STATUS = "tool_status"
    CLIENT_ATTACHED = "client_attached"
    CLIENT_DETACHED = "client_detached"
    CLIENT_ACK = "client_ack"
    FORGOTTEN = "forgotten"


TERMINALS = frozenset({Kind.MESSAGE_END, Kind.ERROR})
CONTENT_KINDS = frozenset({Kind.DELTA, Kind.TOOL_CALL_DELTA, Kind.CITATION_DELTA})
NUMBERED = CONTENT_KINDS | TERMINALS | {Kind.MESSAGE_START, Kind.FRAME}


class PartType(Word):
    """What a canonical part is; the first five are content when they are not empty."""

    UNKNOWN = "unknown"
    TEXT = "text"
    REASONING = "reasoning"
    REFUSAL = "refusal"
    TOOL_CALL = "tool_call"
    CITATION = "citation"
    FINISH = "finish"


class Stage(Word):
    """Where a generation stood, in heartbeats and stalls."""

    UNKNOWN = "unknown"
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    TOOL = "tool"
    POSTPROCESS = "postprocess"


class Outcome(Word):
    """How an attempt ended; ``lost`` is written by the orphan finder alone."""

    UNKNOWN = "unknown"
    OK = "ok"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class Dispatch(Word):
    """How far the call to the provider came: decides whether it can have cost anything."""

    UNKNOWN = "unknown"
    NOT_CONNECTED = "not_connected"
    REFUSED = "refused"  # answered with an error status
    SENT = "sent"  # the request left, no response head came
    ACCEPTED = "accepted"  # a response head with success came


class EndedBy(Word):
    """What closed a gap between content events."""

    UNKNOWN = "unknown"
    CONTENT = "content"
    HEDGE = "hedge"
    WATCHDOG = "watchdog"
    CANCEL = "cancel"
    DISCONNECT = "disconnect"
    CUT = "cut"


class UsageSource(Word):
    """How much of a usage report was the provider's own."""

    NONE = "none"
    REPORTED = "reported"
    PARTIAL_REPORTED = "partial_reported"
    ESTIMATED = "estimated"
