"""What only a checkout has: benchmarks and drills live in ``tests``, and run as a child of the command.

Before this file: ``commands.bench``, ``commands.drill``. After it: ``tests/bench``, ``tests/drill``.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from schemas.errors import TokentrailError

ROOT = Path(__file__).parents[1]
CLIENT = Path("edge/clients/python")


class NoCheckout(TokentrailError):
    """There is nothing here that could measure."""


def run_in_checkout(root: Path, what: str, words: list[str]) -> int:
    """Run ``python -m tests.<what>`` to its end; its exit code. Raises NoCheckout where there is none."""
    if not (root / "tests" / what / "__main__.py").is_file():
        raise NoCheckout(
            f"This is part of a checkout of tokentrail, and {root} is none: clone the repository, and run "
            "`make demo` there once, then this command."
        )
    path = os.pathsep.join(
        str(part) for part in (root, root / CLIENT, os.environ.get("PYTHONPATH", "")) if part
    )
    environ = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen([sys.executable, "-m", f"tests.{what}", *words], cwd=root, env=environ) as child:

        def pass_on(number: int, _: FrameType | None) -> None:
            if number == signal.SIGTERM:  # Ctrl-C reaches the child by itself: it is the same terminal's
                child.terminate()

        old = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return child.wait()
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
