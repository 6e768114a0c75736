"""``tokentrail show ID``: one generation's timeline, attempts, usage and cost, from its edge and from ClickHouse.

Either source alone is enough for an answer: a running generation is on its edge only, an old one in ClickHouse only.
Before this file: ``cli``. After it: ``compose.asking``, ``compose.warehouse``.
"""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from compose.asking import EdgeRefused, ask_edge
from compose.client import Unreachable
from compose.commands.common import (
    DEFAULT_DIR,
    EdgeOption,
    FolderOption,
    JsonOption,
    KeyOption,
    err,
    out,
    print_json,
    run,
    target_of,
)
from compose.commands.sql import rows_table
from compose.diagnosing import finding
from compose.target import NoStack, Target
from compose.timeline import LEGEND, MARKS_LEGEND, Mark, draw
from compose.warehouse import Row, WarehouseError, query
from schemas.errors import TokentrailError
from schemas.ids import is_uuid7

_ID = "generation_id = {id:UUID}"
_TIMELINE = f"""
    SELECT kind, seq, attempt, elapsed_ms, substring(text, 1, 60) AS said,
           JSONExtractString(payload, 'attempt_start', 'reason') AS reason
    FROM events FINAL
    WHERE {_ID} AND (kind NOT IN ('delta', 'tool_call_delta', 'citation_delta', 'frame', 'heartbeat')
       OR seq = (SELECT min(seq) FROM events FINAL
                 WHERE {_ID} AND kind IN ('delta', 'tool_call_delta', 'citation_delta') AND text != ''))
    ORDER BY partition, offset
"""  # noqa: S608 - the id is bound as a parameter
_QUESTIONS = {
    "generation": f"SELECT * FROM generations_final WHERE {_ID}",  # noqa: S608
    "timeline": _TIMELINE,
    "attempts": f"SELECT * FROM attempts_final WHERE {_ID} ORDER BY attempt",  # noqa: S608
    "stalls": f"SELECT attempt, seq, start_ms, length_ms, stage, ended_by, counted FROM stalls "  # noqa: S608
    f"WHERE {_ID} ORDER BY start_ms",
    "diagnoses": f"SELECT name, evidence FROM diagnoses WHERE {_ID}",  # noqa: S608
    "ledger": f"SELECT attempt, side, bucket, quantity, unit_price, amount, currency, status FROM ledger_current "  # noqa: S608
    f"WHERE {_ID} ORDER BY attempt, side, bucket",
}
_FACTS = (
    ("tenant", "tenant"),
    ("model", "model"),
    ("terminal", "terminal"),
    ("finish", "finish_reason"),
    ("error", "error_code"),
    ("first token", "ttft_ms"),
    ("end to end", "e2e_ms"),
    ("silent", "stall_ms"),
    ("stalls", "stall_count"),
    ("content events", "content_events"),
    ("output tokens", "usage_output"),
    ("usage by", "usage_source"),
    ("edge", "edge_id"),
)
_MARKS = {
    "delta": "F",
    "tool_call_delta": "F",
    "citation_delta": "F",
    "cancel_requested": "C",
    "message_end": "T",
    "error": "T",
}
_ATTEMPT_COLUMNS = (
    "attempt",
    "provider",
    "model",
    "outcome",
    "error_code",
    "committed",
    "dispatch",
    "elapsed_ms",
)


def show(
    generation_id: Annotated[str, typer.Argument(metavar="ID")],
    folder: FolderOption = DEFAULT_DIR,
    edge: EdgeOption = None,
    key: KeyOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """One generation: timeline, attempts, stalls, usage, cost."""
    if not is_uuid7(generation_id):
        raise typer.BadParameter("not a generation id: a UUIDv7, as X-Generation-Id gives it")
    target = target_of(folder, edge, key)
    live, stored, faults = run(_gather(target, generation_id))
    if live is None and not stored.get("generation") and not stored.get("timeline"):
        raise NotFound(f"Nothing is known of {generation_id}. " + " ".join(faults))
    if as_json:
        print_json({"edge": live, **stored})
        return
    _print(generation_id, live, stored)
    for fault in faults:
        err.print(f"[yellow]note:[/] {fault}", soft_wrap=True)


class NotFound(TokentrailError):
    """Neither an edge nor ClickHouse knows it."""


async def _gather(target: Target, generation_id: str) -> tuple[Any, dict[str, list[Row]], list[str]]:
    faults: list[str] = []
    live, stored = None, {}
    try:
        live = (await ask_edge(target, "GET", f"/v1/generations/{generation_id}")).body
    except (EdgeRefused, Unreachable, NoStack) as error:
        faults.append(str(error))
    try:
        stored = {
            name: await asyncio.to_thread(query, target.warehouse, sql, {"id": generation_id})
            for name, sql in _QUESTIONS.items()
        }
    except (WarehouseError, NoStack) as error:
        faults.append(str(error))
    return live, stored, faults


def _print(generation_id: str, live: Any, stored: dict[str, list[Row]]) -> None:
    out.print(f"[bold]{generation_id}[/]")
    row = next(iter(stored.get("generation", [])), None)
    facts = Table(box=None, show_header=False, padding=(0, 2))
    for label, value in _facts(row) if row is not None else _running_facts(live):
        facts.add_row(f"[dim]{label}[/]", value)
    out.print(facts)
    if timeline := stored.get("timeline"):
        _draw(timeline, stored.get("attempts", []), stored.get("stalls", []))
        out.print(_timeline(timeline, stored.get("stalls", [])))
    for row in stored.get("diagnoses", []):
        one = finding(row["name"], row["evidence"])
        out.print(f"[bold yellow]{escape(one.name)}[/]  {escape(one.says)}")
    if attempts := stored.get("attempts"):
        out.print(rows_table([{c: a.get(c) for c in _ATTEMPT_COLUMNS} for a in attempts], "Attempts"))
    for name in ("stalls", "ledger"):
        if rows := stored.get(name):
            out.print(rows_table(rows, name.capitalize()))


def _draw(timeline: list[Row], attempts: list[Row], stalls: list[Row]) -> None:
    """The picture of it, as wide as the terminal is."""
    marks = [Mark(s["start_ms"], "S") for s in stalls if s["start_ms"] is not None]
    for row in timeline:
        letter = _MARKS.get(row["kind"])
        if row["kind"] == "attempt_start" and row["attempt"]:
            letter = "H" if row["reason"].startswith("hedge") else "R"
        if letter is not None and row["elapsed_ms"] is not None:
            marks.append(Mark(row["elapsed_ms"], letter))
    lines = draw(attempts, stalls, marks, out.width)
    for line in lines:
        out.print(line, no_wrap=True, overflow="crop")
    if lines:
        out.print(f"[dim]{LEGEND}\n{MARKS_LEGEND}[/]")


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    for label, column in _FACTS:
        value = row.get(column)
        if value not in (None, ""):
            yield label, f"{value:,.1f} ms" if column.endswith("_ms") else str(value)


def _running_facts(live: Any) -> Iterator[tuple[str, str]]:
    for name, value in live.items() if isinstance(live, dict) else ():
        if isinstance(value, str | int | float):
            yield name, str(value)


def _timeline(rows: list[Row], stalls: list[Row]) -> Table:
    table = Table(title="Timeline", title_justify="left", header_style="bold")
    table.add_column("ms", justify="right")
    table.add_column("seq", justify="right")
    table.add_column("what")
    table.add_column("")
    lines = [(row["elapsed_ms"], row["seq"], _what(row), row["said"] or "") for row in rows]
    lines += [
        (
            s["start_ms"],
            s["seq"],
            f"[yellow]silent for {s['length_ms']:,.0f} ms[/]",
            f"ended by {s['ended_by']}",
        )
        for s in stalls
    ]
    for elapsed_ms, seq, what, said in sorted(lines, key=lambda line: (line[0] is None, line[0])):
        table.add_row(
            "" if elapsed_ms is None else f"{elapsed_ms:,.1f}", "" if seq is None else str(seq), what, said
        )
    return table


def _what(row: Row) -> str:
    if row["kind"] in ("delta", "tool_call_delta", "citation_delta"):
        return "[green]first token[/]"
    return str(row["kind"])
