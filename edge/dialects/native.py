"""The native dialect: the canonical fields of a record, as one pure function of the record alone.

``event: <kind>``, ``data: {canonical fields}``; on the wire ``error`` is ``generation_error``, since a browser's
EventSource has an ``error`` of its own. Pinned by the golden examples. Before: ``edge.dialects``. After: ``follow``.
"""

from typing import Any

import msgspec
import orjson

from schemas.events import Kind, LogEvent

_NAMES = {Kind.ERROR: "generation_error"}


def native_frame(event: LogEvent) -> tuple[str, str]:
    """Event name and data of a numbered record."""
    data: dict[str, Any] = {"seq": event.seq, "attempt": event.attempt, "elapsed_us": event.elapsed_us}
    if event.kind is Kind.MESSAGE_START and event.message_start:
        data |= {"generation_id": event.generation_id, "dialect": event.dialect}
        data |= msgspec.to_builtins(event.message_start)
    elif event.kind is Kind.MESSAGE_END and event.message_end:
        data |= msgspec.to_builtins(event.message_end)
    elif event.kind is Kind.ERROR and event.error:
        data |= msgspec.to_builtins(event.error)
    else:
        data["parts"] = msgspec.to_builtins(event.canonical)
        if event.usage is not None:
            data["usage"] = msgspec.to_builtins(event.usage)
    return _NAMES.get(event.kind, event.kind.value), orjson.dumps(data).decode()


def heartbeat_data(stage: str, elapsed_ms: int) -> str:
    """The data of a native heartbeat."""
    return orjson.dumps({"stage": stage, "elapsed_ms": elapsed_ms}).decode()
