"""``tokentrail export bill``: a tenant's month as a file for finance, with its cover sheet and manifest.

The answer says what became of the month: closed now, closed before, or a draft. Whatever a reader of the file must not miss
(adjustments, what is quarantined, what is left for another bill) is said beside it, on stderr. Before this file: ``cli``.
After it: ``sinks.exports.bill``, which says what is deterministic and exact about it.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer
from rich.markup import escape

from compose.commands.common import DEFAULT_DIR, FolderOption, JsonOption, err, out, print_json, target_of
from compose.warehouse import warehouse
from schemas.money import plain
from sinks.exports.bill import Bill, Order, export_bill
from sinks.exports.render import Form
from sinks.exports.tally import Money

app = typer.Typer(no_args_is_help=True, help="Files for finance.")
ANSWER_S = 3600
"""Years of a busy tenant's ledger are compared before the first line of an answer comes."""
NAMED_MAX = 10
"""Quarantined lines and dead letters that the terminal names; cover sheet and manifest, and SQL, name more."""


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
    form: Annotated[
        Form, typer.Option("--format", help="csv; jsonl: one JSON object a line; focus: rows of FOCUS 1.2")
    ] = Form.CSV,
    zone: Annotated[
        str | None,
        typer.Option(
            help="the tenant's time zone: where its months begin; default: that of its last bill, else UTC"
        ),
    ] = None,
    side: Annotated[
        str, typer.Option(help="customer_charge, or provider_cost for the other side of the books")
    ] = "customer_charge",
    *,
    draft: Annotated[bool, typer.Option("--draft", help="only look: do not close the month")] = False,
    with_earlier: Annotated[
        bool,
        typer.Option(
            "--with-earlier", help="bill also what is left of earlier months that were never closed"
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a tenant's month: every ledger line, and the exact sum. A month that is over is closed by it.

    From then on its bill is the same, byte for byte; what comes late stands on the next one as an adjustment.
    """
    if side not in ("customer_charge", "provider_cost"):
        raise typer.BadParameter("customer_charge or provider_cost", param_hint="--side")
    order = Order(tenant, period, zone, side, form, draft=draft, with_earlier=with_earlier)
    with warehouse(target_of(folder).warehouse, ANSWER_S) as store, err.status("reading the ledger"):
        made = export_bill(store, order, file.absolute(), now=datetime.now(UTC), closing_id=str(uuid4()))
    if as_json:
        print_json(_as_json(made))
    else:
        out.print(f"{made.tally.rows} lines, {_sums(made.tally.sums)} [yellow]({_state(made)})[/]")
        out.print(f"  {made.path}\n  {made.cover_path}\n  {made.manifest_path}", soft_wrap=True)
    _say_beside(made, tenant, period)


def _state(made: Bill) -> str:
    """What became of the month."""
    if made.closed is None:
        return "draft: the month is not closed"
    at = f"{made.closed:%Y-%m-%d %H:%M} UTC"
    return f"closed now, {at}" if made.newly else f"closed {at}"


def _say_beside(made: Bill, tenant: str, period: str) -> None:
    """What a reader of the file must not miss."""
    tally = made.tally
    if not tally.rows:
        # A right answer for a quiet month, and the only sign of a name that was mistyped
        _note(f"the ledger has no line of {tenant!r} in {period}.")
    for month in tally.adjustments:
        _note(f"with adjustments of {month}: {_part(tally.adjustments, month)}.")
    for month in tally.left:
        _note(
            f"not on it, since {month} was never closed: {_part(tally.left, month)}. "
            f"Export {month}, or use --with-earlier."
        )
    for one in tally.quarantined[:NAMED_MAX]:
        _note(f"quarantined: {one['key']} {one['bucket']} ({one['why']}).")
    if (more := tally.quarantined_lines - NAMED_MAX) > 0:
        _note(f"quarantined: {more} more, see {made.cover_path.name}.")
    for place in made.unreadable[:NAMED_MAX]:
        _note(f"not on it: the dead letter {place}, which is {tenant!r}'s or nobody's.")
    if (more := len(made.unreadable) - NAMED_MAX) > 0:
        _note(f"not on it: {more} more dead letters: tokentrail sql dead-letters.")


def _note(said: str) -> None:
    err.print(f"[yellow]note:[/] {escape(said)}", soft_wrap=True)


def _part(money: Money, month: str) -> str:
    return f"{money.lines(month)} lines, {money.words(month)}"


def _sums(sums: dict[str, Any]) -> str:
    return ", ".join(f"{plain(amount)} {currency}" for currency, amount in sums.items()) or "nothing"


def _as_json(made: Bill) -> dict[str, Any]:
    tally = made.tally
    return {
        "file": made.path,
        "cover": made.cover_path,
        "manifest": made.manifest_path,
        "rows": tally.rows,
        "sums": {currency: plain(amount) for currency, amount in tally.sums.items()},
        "sha256": made.sha256,
        "draft": made.closed is None,
        "zone": made.zone,
        "closed": made.closed,
        "closed_now": made.newly,
        "adjustments": {month: tally.adjustments.lines(month) for month in tally.adjustments},
        "left": {month: tally.left.lines(month) for month in tally.left},
        "quarantined": sorted({one["key"] for one in tally.quarantined}),
        "quarantined_lines": tally.quarantined_lines,
        "unreadable": made.unreadable,
    }
