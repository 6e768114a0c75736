"""``tokentrail bench [NAME]``: measure the figures of this machine, each beside its reference in the same run.

The measuring itself is in ``tests/bench``, which a checkout has and an installed package has not; it runs as a child, so
that nothing of this process is measured with it. Before this file: ``cli``. After it: ``tests/bench``.
"""

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from compose.commands.common import JsonOption
from schemas.errors import TokentrailError

ROOT = Path(__file__).parents[2]


class NoCheckout(TokentrailError):
    """There is nothing here that could measure."""


def bench(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="edge, ttft, fold, sink, freshness or resume; default: all"),
    ] = None,
    *,
    as_json: JsonOption = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="how often each side is measured")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a short run that only shows that it works")] = False,
    write_docs: Annotated[
        bool, typer.Option("--write-docs", help="put the results into docs/benchmarks.md")
    ] = False,
) -> None:
    """Measure on this machine what the gateway costs, each figure next to a reference in the same run."""
    words = [name] if name else []
    words += ["--json"] * as_json + ["--quick"] * quick + ["--write-docs"] * write_docs
    words += ["--rounds", str(rounds)] if rounds is not None else []
    if code := run_in_checkout(ROOT, words):
        raise typer.Exit(code)


def run_in_checkout(root: Path, words: list[str]) -> int:
    """Run ``python -m tests.bench`` to its end; its exit code. Raises NoCheckout where there is none."""
    if not (root / "tests" / "bench" / "__main__.py").is_file():
        raise NoCheckout(
            f"The benchmarks are part of a checkout of tokentrail, and {root} is none: clone the repository, and run "
            "`make bench` there."
        )
    with subprocess.Popen([sys.executable, "-m", "tests.bench", *words], cwd=root) as child:

        def pass_on(number: int, _: FrameType | None) -> None:
            if number == signal.SIGTERM:  # Ctrl-C reaches the child by itself: it is the same terminal's
                child.terminate()

        old = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return child.wait()
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
