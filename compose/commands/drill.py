"""``tokentrail drill resume``: fault drills with a verdict.

Before this file: ``cli``. After it: ``compose.checkout``.
"""

from typing import Annotated

import typer

from compose.checkout import ROOT, run_in_checkout
from compose.commands.common import JsonOption

app = typer.Typer(no_args_is_help=True, help="Fault drills, each with a verdict.")


@app.callback()
def drills() -> None:
    """Fault drills, each with a verdict."""


@app.command()
def resume(
    cuts: Annotated[int, typer.Option(min=1, help="how many connections are cut, at random places")] = 300,
    seed: Annotated[int, typer.Option(help="of lengths, places and faults")] = 1,
    *,
    as_json: JsonOption = False,
) -> None:
    """Cut every kind of client, over two edges that die and freeze; compare what each has with what the log replays."""
    words = ["resume", "--cuts", str(cuts), "--seed", str(seed), *(["--json"] if as_json else [])]
    if code := run_in_checkout(ROOT, "drill", words):
        raise typer.Exit(code)
