"""``tokentrail export bill``: a tenant's month as a file for finance, with its cover sheet and manifest.

Before this file: ``cli``. After it: ``sinks.exports.bill``, which says what is deterministic and exact about it.
"""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from compose.commands.common import DEFAULT_DIR, FolderOption, JsonOption, err, out, print_json, target_of
from compose.warehouse import warehouse
from schemas.money import plain
from sinks.exports.bill import export_bill

app = typer.Typer(no_args_is_help=True, help="Files for finance.")


class BillFormat(StrEnum):
    """The file's form."""

    CSV = "csv"


@app.callback()
def exports() -> None:
    """Files for finance."""


@app.command("bill")
def bill(
    tenant: Annotated[str, typer.Option(help="whose bill")],
    period: Annotated[str, typer.Option(help="the month, such as 2026-11")],
    file: Annotated[
        Path, typer.Option("--out", help="where the file goes; cover sheet and manifest beside it")
    ],
    folder: FolderOption = DEFAULT_DIR,
    form: Annotated[BillFormat, typer.Option("--format", help="csv")] = BillFormat.CSV,
    zone: Annotated[str, typer.Option(help="the tenant's time zone: where its months begin")] = "UTC",
    side: Annotated[
        str, typer.Option(help="customer_charge, or provider_cost for the other side of the books")
    ] = "customer_charge",
    *,
    as_json: JsonOption = False,
) -> None:
    """Write a tenant's month: every ledger line, and the exact sum."""
    del form  # one form so far; the option fixes the command line for those to come
    if side not in ("customer_charge", "provider_cost"):
        raise typer.BadParameter("customer_charge or provider_cost", param_hint="--side")
    with warehouse(target_of(folder).warehouse) as store:
        made = export_bill(store, tenant, period, zone, file.absolute(), now=datetime.now(UTC), side=side)
    sums = {currency: plain(amount) for currency, amount in sorted(made.sums.items())}
    if as_json:
        print_json(
            {
                "file": made.path,
                "cover": made.cover_path,
                "manifest": made.manifest_path,
                "rows": made.rows,
                "sums": sums,
                "sha256": made.sha256,
                "draft": made.draft,
            }
        )
        return
    total = ", ".join(f"{amount} {currency}" for currency, amount in sums.items()) or "nothing"
    out.print(
        f"{made.rows} lines, {total}" + (" [yellow](draft: the month is not over)[/]" if made.draft else "")
    )
    out.print(f"  {made.path}\n  {made.cover_path}\n  {made.manifest_path}", soft_wrap=True)
    if not made.rows:
        # A right answer for a quiet month, and the only sign of a name that was mistyped
        err.print(
            f"[yellow]note:[/] the ledger has no line of {escape(repr(tenant))} in {period}.", soft_wrap=True
        )
