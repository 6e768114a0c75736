"""A generation's state as ``GET /v1/generations/{id}`` shows it: pure, from the records that the log holds.

Before: ``history``. After: ``routes``.
"""

from typing import Any

import msgspec

from edge.history import History
from schemas.events import Kind, LogEvent


def state_of(history: History, state: str | None) -> dict[str, Any]:
    """State, links, attempts, timings and usage; times in microseconds since the request was accepted.

    Args:
        history: what the log holds.
        state: where the generation stands on this edge, None where it does not run here.

    """
    records, terminal, start = history.records, history.terminal, history.start
    said = start.message_start if start is not None else None
    contents = [event for event in history.delivered if event.has_content]
    end = None if terminal is None else terminal.message_end or terminal.error
    return {
        "generation_id": records[0].generation_id,
        "state": "finalized" if terminal is not None else state or "running",
        "dialect": records[0].dialect,
        "edge_id": records[0].edge_id,
        "started_us": records[0].wall_us,
        "start": None if said is None else msgspec.to_builtins(said),
        "attempts": _attempts(records),
        "events": len(history.delivered),
        "last_seq": history.delivered[-1].seq if history.delivered else None,
        "first_content_us": contents[0].elapsed_us if contents else None,
        "last_content_us": contents[-1].elapsed_us if contents else None,
        "cancel": next((msgspec.to_builtins(r.cancel) for r in records if r.cancel is not None), None),
        "terminal": None if terminal is None else {"kind": terminal.kind.value, "seq": terminal.seq},
        "end": None if end is None else msgspec.to_builtins(end),
        "trace_complete": history.complete and terminal is not None and start is not None,
    }


def _attempts(records: list[LogEvent]) -> list[dict[str, Any]]:
    attempts: dict[int, dict[str, Any]] = {}
    for record in records:
        if record.kind is Kind.ATTEMPT_START and record.attempt_start is not None:
            started = msgspec.to_builtins(record.attempt_start)
            attempts.setdefault(record.attempt, {"attempt": record.attempt}).update(started)
        elif record.kind is Kind.ATTEMPT_END and record.attempt_end is not None:
            ended = msgspec.to_builtins(record.attempt_end)
            attempts.setdefault(record.attempt, {"attempt": record.attempt}).update(ended)
    return [attempts[number] for number in sorted(attempts)]
