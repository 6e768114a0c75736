"""``tokentrail doctor``: checks of a running stack, as a table; exit code 1 if one is red.

Before this file: ``cli``. After it: ``compose.doctor``.
"""

import dataclasses
from typing import Annotated

import typer
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
from compose.doctor import Verdict, examine

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
        table = Table("check", "", "found", "what to do", header_style="bold")
        for check in checks:
            table.add_row(check.name, _SHOWN[check.verdict], check.found, check.remedy)
        out.print(table)
    if red:
        raise typer.Exit(1)
