"""Log events for tests: everything that a test does not name has a plain value."""

from schemas.events import Canonical, ErrorEnd, Kind, LogEvent, MessageEnd, PartType

GENERATION_ID = "01931a2b-3c4d-7e5f-8a6b-0123456789ab"


def log_event(kind, seq=None, **fields):
    """Give a LogEvent with plain identity fields."""
    plain = {
        "generation_id": GENERATION_ID,
        "tenant": "acme",
        "key_id": "key-1",
        "dialect": "openai.chat",
        "wall_us": 1_700_000_000_000_000,
        "edge_id": "edge-1",
    }
    return LogEvent(kind=kind, seq=seq, **(plain | fields))


def text(seq, fragment="x", **fields):
    """Give a delta with one text part."""
    part = Canonical(type=PartType.TEXT, text=fragment)
    return log_event(Kind.DELTA, seq, canonical=[part], raw=fragment, **fields)


def proper_end(seq, **fields):
    """Give a message_end."""
    return log_event(Kind.MESSAGE_END, seq, message_end=MessageEnd(finish_reason="stop"), **fields)


def error_end(seq, code="edge_lost", **fields):
    """Give an error terminal."""
    return log_event(Kind.ERROR, seq, error=ErrorEnd(code=code, message="x"), **fields)
