"""Fields that cannot be: a record that was decoded and still can never be processed.

Pure. Before: ``fold`` asks for each record. After: the dead letters.
"""

from schemas.errors import Poison
from schemas.events import NUMBERED, Kind, LogEvent


def check(event: LogEvent) -> None:
    """Raise Poison (missing_field, bad_field) for a record whose fields contradict one another."""
    seq = event.seq
    if seq is None:
        if event.kind in NUMBERED:
            raise Poison("missing_field", f"a {event.kind} without seq")
    elif seq < 0:
        raise Poison("bad_field", f"seq {seq} is negative")
    elif event.kind not in NUMBERED and event.kind is not Kind.UNKNOWN:
        raise Poison("bad_field", f"a {event.kind} with a seq: it is no numbered kind")
    if event.attempt < 0:
        raise Poison("bad_field", f"attempt {event.attempt} is negative")
    if event.part is not None:
        _check_part(event)
    elif event.kind not in _PLAIN:
        _check_payload(event)


_PLAIN = frozenset({Kind.DELTA, Kind.FRAME, Kind.TOOL_CALL_DELTA, Kind.CITATION_DELTA, Kind.HEARTBEAT})
_PAYLOADS = {
    Kind.MESSAGE_START: "message_start",
    Kind.MESSAGE_END: "message_end",
    Kind.ERROR: "error",
    Kind.ATTEMPT_START: "attempt_start",
    Kind.ATTEMPT_END: "attempt_end",
}


def _check_part(event: LogEvent) -> None:
    if event.parts is None or event.part is None or not 0 <= event.part < event.parts:
        raise Poison("bad_field", f"part {event.part} of {event.parts}")


def _check_payload(event: LogEvent) -> None:
    if event.kind is Kind.MESSAGE_START and event.seq != 0:
        raise Poison("bad_field", f"message_start with seq {event.seq}: it is always 0")
    name = _PAYLOADS.get(event.kind)
    if name is not None and getattr(event, name) is None:
        raise Poison("missing_field", f"a {event.kind} without its own part")
