"""``tokentrail doctor``: checks of a running stack, one a line; exit code 1 if one is red.

Before this file: ``cli``. After it: ``compose.doctor``.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from compose.commands.common import (
    DEFAULT_DIR,
    EdgeOption,
    FolderOption,
    JsonOption,
    KeyOption,
    out,
    print_json,
    run,
    target_of,
)
from compose.doctor import Check, Verdict, examine

_SHOWN = {Verdict.OK: "[green]ok[/]", Verdict.RED: "[bold red]red[/]", Verdict.SKIPPED: "[yellow]skipped[/]"}


def doctor(
    folder: FolderOption = DEFAULT_DIR,
    edge: EdgeOption = None,
    key: KeyOption = None,
    model: Annotated[
        str | None, typer.Option(help="a cheap model to stream from; default: the simulator's")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Check a running stack; each red row says what to do."""
    checks = run(examine(target_of(folder, edge, key), model))
    red = [check for check in checks if check.verdict is Verdict.RED]
    if as_json:
        print_json({"ok": not red, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        _print(checks)
    if red:
        raise typer.Exit(1)


def _print(checks: Sequence[Check]) -> None:
    """One check a line, and below a red one what to do: once, where several have the same reason."""
    told: set[str] = set()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for check in checks:
        table.add_row(_SHOWN[check.verdict], check.name, escape(check.found))
        if check.remedy and check.remedy not in told:
            told.add(check.remedy)
            table.add_row("", "", f"[bold]→[/] {escape(check.remedy)}")
    out.print(table)
    red = sum(check.verdict is Verdict.RED for check in checks)
    out.print(f"[bold red]{red} of {len(checks)} checks are red.[/]" if red else "[green]No check is red.[/]")
