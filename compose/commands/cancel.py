"""``tokentrail cancel ID``: end a running generation, on whichever edge it runs.

Before this file: ``cli``. After it: the edge's ``POST /v1/cancel/{id}``.
"""

from typing import Annotated

import typer

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
        out.print(f"[green]Ended.[/] {answer.body}")
