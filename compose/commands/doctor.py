"""``tokentrail doctor``: checks of a running stack, one a line; exit code 1 if one is red.

Before this file: ``cli``. After it: ``compose.doctor``.
"""

import dataclasses
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from compose.checks import Check, Verdict
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
from compose.doctor import examine

VERDICT_CELLS, NAME_CELLS = len("skipped"), len("buffering, cache, compression off")
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
    shown = _Rows()
    tell = (lambda _: None) if as_json else shown.add
    checks = run(examine(target_of(folder, edge, key), model, tell))
    red = [check for check in checks if check.verdict is Verdict.RED]
    if as_json:
        print_json({"ok": not red, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        said = f"{len(red)} of {len(checks)} checks are red." if red else "No check is red."
        out.print(f"[{'bold red' if red else 'green'}]{said}[/]")
    if red:
        raise typer.Exit(1)


class _Rows:
    """One check a line as it is made, and below a red one what to do: once, where several have the same reason."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def add(self, check: Check) -> None:
        """Print this one."""
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        for cells in (VERDICT_CELLS, NAME_CELLS, None):
            table.add_column(min_width=cells)
        table.add_row(_SHOWN[check.verdict], check.name, escape(check.found))
        if check.remedy and check.remedy not in self._told:
            self._told.add(check.remedy)
            table.add_row("", "", f"[bold]→[/] {escape(check.remedy)}")
        out.print(table)
