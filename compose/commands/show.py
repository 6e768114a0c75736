"""``tokentrail show ID``: one generation's timeline, attempts, usage and cost, from its edge and from ClickHouse.

Either source alone is enough for an answer: a running generation is on its edge only, an old one in ClickHouse only.
Before this file: ``cli``. After it: ``compose.asking``, ``compose.warehouse``, ``compose.showing``.
"""

import asyncio
import time
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from compose.asking import EdgeRefused, ask_edge
from compose.client import Unreachable
from compose.commands.common import (
    DEFAULT_DIR,
    EdgeOption,
    FolderOption,
    IdArgument,
    JsonOption,
    KeyOption,
    err,
    out,
    print_json,
    run,
    target_of,
)
from compose.diagnosing import finding
from compose.showing import (
    FORGOTTEN,
    attempts_of_running,
    attempts_table,
    facts_of,
    facts_of_running,
    ledger_table,
    marks_of,
    marks_of_forgotten,
    stalls_of_running,
    timeline_table,
)
from compose.target import NoStack, Target
from compose.timeline import draw, legend
from compose.warehouse import Row, WarehouseError, query
from schemas.errors import TokentrailError

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


def show(
    generation_id: IdArgument,
    folder: FolderOption = DEFAULT_DIR,
    edge: EdgeOption = None,
    key: KeyOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """One generation: timeline, attempts, stalls, usage, cost."""
    target = target_of(folder, edge, key)
    live, stored, faults = run(_gather(target, generation_id))
    if live is None and not stored.get("generation") and not stored.get("timeline"):
        raise NotFound(f"Nothing is known of {generation_id}. " + " ".join(faults))
    if as_json:
        print_json({"edge": live, **stored})
        return
    _print(generation_id, live, stored)
    for fault in faults if not _is_forgotten(stored) else ():  # its edge only says the same again
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
    row, timeline, ledger = (stored.get(name, []) for name in ("generation", "timeline", "ledger"))
    attempts, stalls, now_us = stored.get("attempts", []), stored.get("stalls", []), time.time_ns() // 1000
    if row:
        facts = facts_of(row[0], ledger)
    else:
        facts = facts_of_running(live, now_us) if live else []
        attempts = attempts or (attempts_of_running(live, now_us) if live else [])
        stalls = stalls or (stalls_of_running(live) if live else [])
    marks = marks_of(timeline, stalls)
    if forgotten := _is_forgotten(stored):
        timeline, marks = [], marks_of_forgotten(row[0], attempts) if row else []
    table = Table(box=None, show_header=False, padding=(0, 2))
    for label, value in [("forgotten", FORGOTTEN)] * forgotten + facts:
        table.add_row(f"[dim]{label}[/]", escape(value))
    out.print(f"[bold]{generation_id}[/]", table)
    picture = draw(attempts, stalls, marks, out.width)
    for line in [*([Text()] if picture else []), *picture]:
        out.print(line, no_wrap=True, overflow="crop")
    if picture:
        out.print(f"[dim]{legend(picture)}[/]")
    for one in (finding(row["name"], row["evidence"]) for row in stored.get("diagnoses", [])):
        out.print(f"\n[bold yellow]{escape(one.name)}[/]  {escape(one.says)}")
    for rows, made in (
        (timeline, timeline_table(timeline, stalls)),
        (attempts, attempts_table(attempts)),
        (ledger, ledger_table(ledger)),
    ):
        if rows:
            out.print("", made)


def _is_forgotten(stored: dict[str, list[Row]]) -> bool:
    return any(row["kind"] == "forgotten" for row in stored.get("timeline", []))
