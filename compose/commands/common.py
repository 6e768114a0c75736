"""What every command shares: the options that find a stack, the console, output as one JSON object, expected errors.

Invariants: stdout carries the answer alone, so that it can be piped; everything said beside it goes to stderr; an
expected error is one sentence and exit code 1, never a traceback. Before this file: ``cli``. After it: ``target``.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from decimal import Decimal
from pathlib import Path
from shutil import which
from typing import Annotated, Any, TypeVar

import orjson
import typer

from compose.logs import Terminal
from compose.state import DEFAULT_FOLDER
from compose.target import Target, find_target
from schemas.ids import is_uuid7
from schemas.money import plain

T = TypeVar("T")
out = Terminal(highlight=False)
err = Terminal(stderr=True, highlight=False)


def whole_id(text: str) -> str:
    """The text, where it is a generation's id; refused before anything is asked where it is none."""
    if not is_uuid7(text):
        raise typer.BadParameter(
            f"{text!r} is no generation id: a whole UUIDv7, as X-Generation-Id and `tokentrail sql latest` give it"
        )
    return text


IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="the generation: X-Generation-Id, or from `tokentrail sql latest`",
        callback=whole_id,
    ),
]
FolderOption = Annotated[Path, typer.Option("--dir", help="folder of the stack's state")]
EdgeOption = Annotated[
    str | None, typer.Option("--edge", help="an edge's address, such as http://127.0.0.1:8080")
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", help="API key; default: TOKENTRAIL_API_KEY, else the development keys of the folder"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
DEFAULT_DIR = Path(DEFAULT_FOLDER)


def program() -> str:
    """What to type for ``tokentrail`` in another terminal: the name where the shell finds it, else the whole path."""
    return "tokentrail" if which("tokentrail") else str(Path(sys.argv[0]).absolute())


def target_of(folder: Path, edge: str | None = None, key: str | None = None) -> Target:
    """The stack that the options, the environment and the folder mean."""
    return find_target(folder, Path.cwd(), os.environ, edge=edge, key=key)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; Ctrl-C ends it quietly with the shell's own code for it."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


class Interrupts:
    """The signals of a command that runs a stack, for the task that makes this.

    The first one ends whatever is awaited, also in the middle of a start; then all is stopped in order. Who presses
    Ctrl-C twice does not want to wait: ``hurry``.
    """

    def __init__(self) -> None:
        self.asked = False
        self.hurry = asyncio.Event()
        self._work = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._heard, number)

    def _heard(self, number: int) -> None:
        if not self.asked and self._work is not None:
            self.asked = True
            self._work.cancel()
        elif number == signal.SIGINT:
            self.hurry.set()


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    sys.stdout.write(orjson.dumps(value, default=_as_text, option=orjson.OPT_SORT_KEYS).decode() + "\n")
    sys.stdout.flush()


def _as_text(value: Any) -> str:
    return plain(value) if isinstance(value, Decimal) else str(value)
