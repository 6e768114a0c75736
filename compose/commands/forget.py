"""``tokentrail forget ID``: erase what a generation said, for every reader and in every store.

Before this file: ``cli``. After it: ``compose.forgetting``.
"""

import dataclasses
from typing import Annotated

import typer

from compose.commands.common import (
    DEFAULT_DIR,
    FolderOption,
    IdArgument,
    JsonOption,
    out,
    print_json,
    run,
    target_of,
)
from compose.forgetting import forget as forget_it


def forget(
    generation_id: IdArgument,
    folder: FolderOption = DEFAULT_DIR,
    wait_s: Annotated[
        float, typer.Option(min=0, help="seconds to wait for its end, and for ClickHouse")
    ] = 30,
    *,
    as_json: JsonOption = False,
) -> None:
    """Erase a generation: readers get 410, a running one is ended; the receipt says when Kafka's copy is gone."""
    receipt = run(forget_it(target_of(folder), generation_id, wait_s))
    if as_json:
        print_json(dataclasses.asdict(receipt))
        return
    gone = receipt.log_copy_gone_by
    out.print(f"[green]Forgotten.[/] {receipt.generation_id} of {receipt.tenant}")
    if not receipt.ended:
        out.print(
            "[yellow]It has not ended yet:[/] what still comes of it may be stored. Run this again then."
        )
    out.print({"erased": "ClickHouse: erased", "none": "ClickHouse: none is known here"}.get(
        receipt.warehouse, "[yellow]ClickHouse: not yet;[/] its sink erases it when it comes to it"
    ))  # fmt: skip
    by = "kept for ever: its topic has no retention" if gone is None else f"gone by {gone:%Y-%m-%d}"
    out.print(f"Kafka's own copy: {by}")
