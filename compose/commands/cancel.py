"""``tokentrail cancel ID``: end a running generation, on whichever edge it runs.

Before this file: ``cli``. After it: the edge's ``POST /v1/cancel/{id}``.
"""

from typing import Annotated, Any

import typer
from rich.markup import escape

from compose.asking import ask_edge
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


def cancel(
    generation_id: Annotated[str, typer.Argument(metavar="ID")],
    folder: FolderOption = DEFAULT_DIR,
    mode: Annotated[
        str, typer.Option(help="soft lets the read in progress finish; hard does not wait")
    ] = "soft",
    reason: Annotated[
        str, typer.Option(help="user_abort, client_disconnect or policy_violation")
    ] = "user_abort",
    edge: EdgeOption = None,
    key: KeyOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Cancel a generation; any edge takes the call."""
    target = target_of(folder, edge, key)
    asked = {"mode": mode, "reason": reason, "source": "cli"}
    answer = run(ask_edge(target, "POST", f"/v1/cancel/{generation_id}", asked))
    if as_json:
        print_json(answer.body)
    elif answer.status == 202:  # noqa: PLR2004 - HTTP's own number
        out.print(
            "[yellow]Asked for;[/] the edge that runs it has not ended it yet. Look again with `tokentrail show`."
        )
    else:
        out.print(escape(ended_in_words(answer.body)), soft_wrap=True)
        out.print(f"[dim]What it cost:[/] tokentrail show {generation_id}", soft_wrap=True)


def ended_in_words(said: Any) -> str:
    """How a generation that was to be cancelled has ended, from the edge's answer."""
    terminal = said.get("terminal") if isinstance(said, dict) else None
    if not isinstance(terminal, dict):
        return "Ended."
    if terminal.get("finish_reason") != "cancelled":
        how = terminal.get("code") or terminal.get("finish_reason") or terminal.get("kind")
        return f"It had ended before it could be cancelled: {how}."
    cancel, total_us = terminal.get("cancel") or {}, (terminal.get("latency") or {}).get("total_us")
    after = f" after {total_us / 1000:,.0f} ms" if total_us is not None else ""
    parts = [f"Cancelled{after}" + (f", in {stage}" if (stage := cancel.get("stage")) else "")]
    if terminal.get("tokens_generated") is not None:
        generated, delivered = terminal["tokens_generated"], terminal.get("tokens_delivered")
        known = f", {delivered:,} of them delivered" if delivered is not None else ""
        parts.append(f"about {generated:,} tokens were generated{known}")
    return "; ".join(parts) + "."
