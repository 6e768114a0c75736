"""``tokentrail cancel ID``: end a running generation, on whichever edge it runs.

Before this file: ``cli``. After it: the edge's ``POST /v1/cancel/{id}``.
"""

from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.markup import escape

from compose.asking import ask_edge
from compose.commands.common import (
    DEFAULT_DIR,
    EdgeOption,
    FolderOption,
    IdArgument,
    JsonOption,
    KeyOption,
    out,
    print_json,
    run,
    target_of,
)


class Mode(StrEnum):
    """How a provider's socket is closed."""

    SOFT = "soft"
    HARD = "hard"


class Reason(StrEnum):
    """Why somebody ends a generation, as the edge takes it."""

    USER_ABORT = "user_abort"
    CLIENT_DISCONNECT = "client_disconnect"
    POLICY_VIOLATION = "policy_violation"


def cancel(
    generation_id: IdArgument,
    folder: FolderOption = DEFAULT_DIR,
    mode: Annotated[
        Mode,
        typer.Option(help="soft lets the read in progress finish; hard does not wait, and is an operator's"),
    ] = Mode.SOFT,
    reason: Annotated[Reason, typer.Option(help="what the record says why")] = Reason.USER_ABORT,
    edge: EdgeOption = None,
    key: KeyOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Cancel a generation; any edge takes the call."""
    target = target_of(folder, edge, key)
    asked = {"mode": mode.value, "reason": reason.value, "source": "cli"}
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
