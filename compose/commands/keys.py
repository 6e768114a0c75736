"""``tokentrail keys``: create, rotate, revoke and list API keys; running edges follow within seconds.

Before this file: ``cli``. After it: ``compose.keys``.
"""

import time
from typing import Annotated

import typer
from rich.table import Table

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
from compose.keys import KeyBook
from edge.auth import ROLES

app = typer.Typer(no_args_is_help=True, help="API keys: an id keeps its streams whatever its text is.")
_IdArgument = Annotated[str, typer.Argument(metavar="ID", help="the key's id, as `keys list` shows it")]
_HOUR_S = 3_600


@app.command("create")
def create(
    key_id: _IdArgument,
    tenant: Annotated[str, typer.Option(help="whose key it is: all that is made with it belongs there")],
    folder: FolderOption = DEFAULT_DIR,
    label: Annotated[str, typer.Option(help="for people")] = "",
    role: Annotated[list[str] | None, typer.Option(help=f"again for several: {', '.join(ROLES)}")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Make a key; its text is shown once, and kept nowhere."""
    roles = role or ["caller"]
    if strange := sorted(set(roles) - set(ROLES)):
        raise typer.BadParameter(f"no such role: {', '.join(strange)}", param_hint="--role")
    _show(key_id, run(_book(folder).create(key_id, tenant, label, roles)), as_json=as_json)


@app.command("rotate")
def rotate(
    key_id: _IdArgument,
    folder: FolderOption = DEFAULT_DIR,
    overlap_h: Annotated[
        float, typer.Option(min=0, help="hours for which the old text stays good; 0: it ends at once")
    ] = 24,
    *,
    as_json: JsonOption = False,
) -> None:
    """Give a key a new text; its streams and their ids stay good."""
    _show(key_id, run(_book(folder).rotate(key_id, round(overlap_h * _HOUR_S))), as_json=as_json)


@app.command("revoke")
def revoke(key_id: _IdArgument, folder: FolderOption = DEFAULT_DIR, *, as_json: JsonOption = False) -> None:
    """Close a key: from its next connect on it is refused."""
    run(_book(folder).revoke(key_id))
    if as_json:
        print_json({"id": key_id, "revoked": True})
    else:
        out.print(f"[green]Revoked.[/] {key_id}")


@app.command("list")
def show(folder: FolderOption = DEFAULT_DIR, *, as_json: JsonOption = False) -> None:
    """Show every key: of the configuration, and of the config topic, which stands before it."""
    now_us = time.time_ns() // 1000
    held = sorted(run(_book(folder).held()).values())
    if as_json:
        print_json(
            [
                {
                    "id": key.id,
                    "tenant": key.entry.tenant,
                    "label": key.entry.label,
                    "roles": key.entry.roles,
                    "texts": len(key.texts(now_us)),
                    "where": key.where,
                }
                for key in held
            ]
        )
        return
    table = Table(header_style="bold")
    table.add_column("id", no_wrap=True, overflow="fold")  # whole: it is what rotate and revoke want
    for name in ("tenant", "roles", "texts", "from", "label"):
        table.add_column(name, overflow="fold")
    for key in held:
        texts = len(key.texts(now_us))
        state = str(texts) if texts else "[red]none[/]"
        table.add_row(key.id, key.entry.tenant, ", ".join(key.entry.roles), state, key.where, key.entry.label)
    out.print(table)


def _book(folder: FolderOption) -> KeyBook:
    target = target_of(folder)
    return KeyBook(target.kafka, target.settings.keys)


def _show(key_id: str, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": key_id, "key": text})
        return
    out.print(text, soft_wrap=True)
    err.print(
        f"[bold]This is the only time that the text of {key_id} is shown.[/] Edges know it within seconds."
    )
