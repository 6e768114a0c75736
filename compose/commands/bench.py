"""``tokentrail bench [NAME]``: measure the figures of this machine, each beside its reference in the same run.

The measuring itself is in ``tests/bench``, which a checkout has and an installed package has not; it runs as a child, so
that nothing of this process is measured with it. Before this file: ``cli``. After it: ``compose.checkout``.
"""

from typing import Annotated

import typer

from compose.checkout import ROOT, run_in_checkout
from compose.commands.common import JsonOption


def bench(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="edge, ttft, fold, sink, freshness, resume, crowded, cancel, week or peers; default: all but peers",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="how often each side is measured")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a short run that only shows that it works")] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="beside all rows also peers, which installs other servers")
    ] = False,
    write_docs: Annotated[
        bool, typer.Option("--write-docs", help="put the results into docs/benchmarks.md")
    ] = False,
) -> None:
    """Measure on this machine what the gateway costs, each figure next to a reference in the same run."""
    words = [name] if name else []
    words += ["--json"] * as_json + ["--quick"] * quick
    words += ["--peers"] * peers + ["--write-docs"] * write_docs
    words += ["--rounds", str(rounds)] if rounds is not None else []
    if code := run_in_checkout(ROOT, "bench", words):
        raise typer.Exit(code)
