"""A generation's state as ``GET /v1/generations/{id}`` shows it: pure, from the records that the log holds.

Also one line of the list of those that an edge has in memory. Before: ``history``, ``registry``. After: ``routes``.
"""

from typing import Any

import msgspec

from edge.reading.archive import Sum
from edge.reading.history import History
from edge.registry import Entry
from schemas.events import Kind, LogEvent
from schemas.money import plain
from schemas.records import Side

TRACE_MAX = 1000
"""Heartbeats of the longest generation are 60, acknowledgements one in 2 s: more than this is a misbehaving client's."""
_TRACED = {
    Kind.HEARTBEAT,
    Kind.CLIENT_ATTACHED,
    Kind.CLIENT_DETACHED,
    Kind.CANCEL_REQUESTED,
    Kind.TOOL_STATUS,
}


def state_of(history: History, state: str | None, stall_threshold_us: int, bill: list[Sum]) -> dict[str, Any]:
    """State, links, attempts, stalls, timings, usage, cost; times in microseconds since the request was accepted.

    Args:
        history: what the log holds.
        state: where the generation stands on this edge, None where it does not run here.
        stall_threshold_us: what is a stall in an attempt that has not ended yet; one that has says so itself.
        bill: the ledger's sums; empty where they are not there yet, or not known.

    """
    records, terminal, start = history.records, history.terminal, history.start
    said = start.message_start if start is not None else None
    contents = [event for event in history.delivered if event.has_content]
    end = None if terminal is None else terminal.message_end or terminal.error
    usage = None if end is None else end.usage
    generation_id = records[0].generation_id
    return {
        "generation_id": generation_id,
        "state": "finalized" if terminal is not None else state or "running",
        "dialect": records[0].dialect,
        "edge_id": records[0].edge_id,
        "started_us": records[0].wall_us,
        "start": None if said is None else msgspec.to_builtins(said),
        "links": links_of(generation_id, None if said is None else said.previous_generation_id),
        "attempts": _attempts(records),
        "stalls": _stalls(records, contents, stall_threshold_us),
        "stall_threshold_us": stall_threshold_us,
        "events": len(history.delivered),
        "last_seq": history.delivered[-1].seq if history.delivered else None,
        "first_content_us": contents[0].elapsed_us if contents else None,
        "last_content_us": contents[-1].elapsed_us if contents else None,
        "trace": [_traced(r) for r in records if r.kind in _TRACED][:TRACE_MAX],
        "cancel": next((msgspec.to_builtins(r.cancel) for r in records if r.cancel is not None), None),
        "terminal": _terminal(terminal),
        "end": None if end is None else msgspec.to_builtins(end),
        "usage": None if usage is None else msgspec.to_builtins(usage),
        "provider_cost": _sums(bill, Side.PROVIDER_COST),
        "customer_charge": _sums(bill, Side.CUSTOMER_CHARGE),
        "trace_complete": history.complete and terminal is not None and start is not None,
    }


def listed(entry: Entry, now_us: int) -> dict[str, Any]:
    """One generation of this edge's memory, in a line; ``last_seq`` is the last that the log acknowledged."""
    generation = entry.generation
    start = generation.identity.start
    terminal = generation.terminal
    last_us = terminal.event.elapsed_us if terminal is not None else None
    return {
        "generation_id": generation.id,
        "state": generation.state.value,
        "stage": generation.stage,
        "model": start.model,
        "dialect": generation.identity.dialect,
        "request_id": start.request_id,
        "started_us": generation.accepted_wall_us,
        "elapsed_ms": (now_us - generation.accepted_us if last_us is None else last_us) // 1000,
        "last_seq": generation.window_first_seq + len(generation.window) - 1,
        "attempts": entry.driver.attempts_made,
        "readers": generation.readers,
        "on_disconnect": generation.on_disconnect,
        "terminal": _terminal(None if terminal is None else terminal.event),
        "links": links_of(generation.id, start.previous_generation_id),
    }


def links_of(generation_id: str, previous: str | None) -> dict[str, str | None]:
    """Where the rest of a generation is, as paths, and which one it follows."""
    path = f"/v1/generations/{generation_id}"
    return {
        "events": f"{path}/events",
        "result": f"{path}/result",
        "cancel": f"{path}/cancel",
        "previous_generation_id": previous,
    }


def _sums(bill: list[Sum], side: Side) -> list[dict[str, Any]] | None:
    """One sum a currency, as decimal strings; None where the ledger has nothing of this side."""
    sums = [
        {
            "amount": None if line.amount is None else plain(line.amount),
            "currency": line.currency,
            "lines_without_amount": line.without_amount,
        }
        for line in bill
        if line.side == side.value
    ]
    return sums or None


def _terminal(event: LogEvent | None) -> dict[str, Any] | None:
    if event is None:
        return None
    return {"kind": event.kind.value, "seq": event.seq, "at_us": event.elapsed_us}


def _attempts(records: list[LogEvent]) -> list[dict[str, Any]]:
    attempts: dict[int, dict[str, Any]] = {}
    for record in records:
        if record.kind is Kind.ATTEMPT_START and record.attempt_start is not None:
            started = msgspec.to_builtins(record.attempt_start) | {"opened_us": record.elapsed_us}
            attempts.setdefault(record.attempt, {"attempt": record.attempt}).update(started)
        elif record.kind is Kind.ATTEMPT_END and record.attempt_end is not None:
            ended = msgspec.to_builtins(record.attempt_end) | {"closed_us": record.elapsed_us}
            attempts.setdefault(record.attempt, {"attempt": record.attempt}).update(ended)
    return [attempts[number] for number in sorted(attempts)]


def _stalls(records: list[LogEvent], contents: list[LogEvent], threshold_us: int) -> list[dict[str, Any]]:
    """The gaps of attempts that ended, by their own word; of one that runs, by its events so far."""
    ended = {r.attempt: r.attempt_end for r in records if r.attempt_end is not None}
    stalls = [
        {"attempt": attempt, **msgspec.to_builtins(gap)} for attempt, end in ended.items() for gap in end.gaps
    ]
    last: LogEvent | None = None
    for index, event in enumerate(e for e in contents if e.attempt not in ended):
        if last is not None and event.attempt == last.attempt:
            length_us = (event.elapsed_us or 0) - (last.elapsed_us or 0) - event.paused_us
            if length_us > threshold_us:
                stalls.append(
                    {
                        "attempt": event.attempt,
                        "content_index": index - 1,
                        "start_us": last.elapsed_us,
                        "length_us": length_us,
                        "seq": last.seq,
                    }
                )
        last = event
    return sorted(stalls, key=lambda stall: (stall["attempt"], stall["start_us"]))


def _traced(record: LogEvent) -> dict[str, Any]:
    said = record.heartbeat or record.client or record.cancel or record.tool_status
    return {
        "kind": record.kind.value,
        "at_us": record.elapsed_us,
        "attempt": record.attempt,
        "after_seq": record.after_seq,
        **(msgspec.to_builtins(said) if said is not None else {}),
    }
