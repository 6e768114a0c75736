"""``tokentrail topics``: ``apply`` makes them right, ``check`` only says what it would do.

Before this file: ``cli``. After it: ``compose.topics``.
"""

import dataclasses
from typing import Any

import typer
from rich.table import Table

from compose import topics
from compose.commands.common import (
    DEFAULT_DIR,
    FolderOption,
    JsonOption,
    err,
    out,
    print_json,
    run,
    target_of,
)

app = typer.Typer(no_args_is_help=True, help="Kafka topics: make them right, or refuse what would lose data.")


@app.command("apply")
def apply(folder: FolderOption = DEFAULT_DIR, *, as_json: JsonOption = False) -> None:
    """Create what is missing, correct what differs, announce our schemas. Exit code 1 where data would be lost."""
    target = target_of(folder)
    try:
        applied = run(topics.apply(target.kafka, window_days=target.settings.resume.window_days))
    except topics.TopicsRefused as refused:
        if as_json:
            print_json({"refused": [dataclasses.asdict(r) for r in refused.refusals]})
            raise typer.Exit(1) from refused
        _print_refusals(refused.refusals)
        raise typer.Exit(1) from refused
    if as_json:
        print_json({**dataclasses.asdict(applied), "altered": [_changes(a) for a in applied.altered]})
        return
    table = Table("topic", "", "what", box=None)
    for name in applied.created:
        table.add_row(name, "[green]created[/]", "")
    for altered in applied.altered:
        what = ", ".join(f"{c.setting}: {c.live} → {c.wanted}" for c in altered.changes)
        table.add_row(altered.name, "[yellow]altered[/]", what)
    for name in applied.unchanged:
        table.add_row(name, "[dim]right[/]", "")
    out.print(table)
    out.print(f"{applied.brokers} broker(s); {len(applied.schemas_announced)} schema(s) announced")


@app.command("check")
def check(folder: FolderOption = DEFAULT_DIR, *, as_json: JsonOption = False) -> None:
    """Say what `apply` would do. Exit code 0 only if there is nothing to do."""
    target = target_of(folder)
    todo = run(topics.inspect(target.kafka, window_days=target.settings.resume.window_days))
    if as_json:
        print_json(
            {
                "create": [c.name for c in todo.create],
                "alter": [_changes(a) for a in todo.alter],
                "refuse": [dataclasses.asdict(r) for r in todo.refuse],
            }
        )
    else:
        for spec in todo.create:
            out.print(f"[yellow]missing[/]  {spec.name}")
        for altered in todo.alter:
            for change in altered.changes:
                out.print(
                    f"[yellow]differs[/]  {altered.name}  {change.setting}: {change.live} → {change.wanted}"
                )
        _print_refusals(todo.refuse)
        if todo.is_clean:
            out.print("[green]All topics are right.[/]")
    if not todo.is_clean:
        raise typer.Exit(1)


def _changes(altered: topics.Alter) -> dict[str, Any]:
    return {"name": altered.name, "changes": [dataclasses.asdict(change) for change in altered.changes]}


def _print_refusals(refusals: tuple[topics.Refusal, ...]) -> None:
    for refusal in refusals:
        err.print(
            f"[bold red]refused[/]  {refusal.name}: {refusal.reason}.\n         {refusal.remedy}",
            soft_wrap=True,
        )
    if refusals:
        err.print("Nothing was changed.")
