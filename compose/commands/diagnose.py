"""``tokentrail diagnose ID``: what was wrong with a generation, with the evidence, and what to do next.

Before this file: ``cli``. After it: ``compose.diagnosing`` (words), ``compose.warehouse``.
"""

from typing import Any

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from compose.commands.common import (
    DEFAULT_DIR,
    FolderOption,
    IdArgument,
    JsonOption,
    err,
    out,
    print_json,
    target_of,
)
from compose.diagnosing import Finding, evidence_lines, finding
from compose.warehouse import Row, WarehouseError, query
from schemas.errors import TokentrailError

_ID = "generation_id = {id:UUID}"
_GENERATION = f"""
    SELECT tenant, model, terminal, finish_reason, error_code, status, trace_complete, flags, request_id,
           previous_generation_id, lineage_kind, length(attempts) AS attempts, ttft_ms, e2e_ms
    FROM generations_final WHERE {_ID}
"""  # noqa: S608 - the id is bound as a parameter
_DIAGNOSES = f"SELECT name, evidence FROM diagnoses WHERE {_ID}"  # noqa: S608
_ACROSS = f"SELECT name, evidence FROM diagnoses_across WHERE {_ID}"  # noqa: S608
_FOLLOW_UP = f"SELECT why, follow_up FROM bad_cases WHERE {_ID}"  # noqa: S608


class NotFinalized(TokentrailError):
    """There is no row to judge yet."""


def diagnose(
    generation_id: IdArgument,
    folder: FolderOption = DEFAULT_DIR,
    *,
    as_json: JsonOption = False,
) -> None:
    """What was wrong with one generation: six rules, each with its evidence and the next step."""
    warehouse, params = target_of(folder).warehouse, {"id": generation_id}
    rows = query(warehouse, _GENERATION, params)
    if not rows:
        raise NotFinalized(
            f"ClickHouse has no finalized row of {generation_id}. While it runs `tokentrail tail {generation_id}` shows "
            f"it; `tokentrail show {generation_id}` what is known so far."
        )
    found = [("generation", row) for row in query(warehouse, _DIAGNOSES, params)]
    fault = None
    try:
        # It reads every generation: where that is too much, what this one says of itself is said all the same.
        found += [("across", row) for row in query(warehouse, _ACROSS, params)]
    except WarehouseError as error:
        fault = str(error)
    findings = [(scope, finding(row["name"], row["evidence"])) for scope, row in found]
    case = next(iter(query(warehouse, _FOLLOW_UP, params)), None)
    if as_json:
        print_json(as_object(generation_id, rows[0], findings, case) | {"note": fault})
        return
    out.print(f"[bold]{generation_id}[/]  {escape(_summary(rows[0]))}")
    if not findings:
        out.print("[green]None of the six diagnoses holds.[/]")
    for scope, one in findings:
        _print(scope, one)
    if fault is not None:
        err.print(
            f"[yellow]note:[/] nothing was compared with other generations: {escape(fault)}", soft_wrap=True
        )
    if case is not None:
        out.print(f"\nfollow-up ({escape(', '.join(case['why']))}): [bold]{escape(case['follow_up'])}[/]")


def as_object(
    generation_id: str, row: Row, found: list[tuple[str, Finding]], case: Row | None
) -> dict[str, Any]:
    """The answer for scripts."""
    return {
        "generation_id": generation_id,
        "generation": row,
        "bad_case": case,
        "diagnoses": [
            {
                "scope": scope,
                "name": one.name,
                "says": one.says,
                "next": one.next_step,
                "evidence": one.evidence,
            }
            for scope, one in found
        ],
    }


def _summary(row: Row) -> str:
    said = [row["model"], row["error_code"] or row["finish_reason"] or row["terminal"]]
    attempts = row["attempts"]
    said.append(f"{attempts} attempt" + ("" if attempts == 1 else "s"))
    if row["previous_generation_id"]:
        said.append(f"{row['lineage_kind'] or 'retry'} of {row['previous_generation_id']}")
    if not row["trace_complete"]:
        said.append("trace not complete")
    return " · ".join(str(word) for word in said if word is not None)


def _print(scope: str, one: Finding) -> None:
    across = " [dim](across generations)[/]" if scope == "across" else ""
    out.print(f"\n[bold yellow]{escape(one.name)}[/]{across}")
    out.print(Padding(escape(one.says), (0, 0, 0, 2)))
    out.print(Padding(f"[cyan]→[/] {escape(one.next_step)}", (0, 0, 0, 2)))
    evidence = Table(box=None, show_header=False, padding=(0, 2), style="dim")
    for label, value in evidence_lines(one.evidence):
        evidence.add_row(escape(label), escape(value))
    out.print(Padding(evidence, (0, 0, 0, 2)))
