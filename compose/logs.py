"""One coloured log of many processes: follows the files that the children write, and says what the supervisor does.

The children write to files themselves, so that they outlive the reader of their output. Invariant: nothing here is
awaited by a child; the files keep each line as it was written, the terminal is for people. Before this file: ``supervisor``. After it: the terminal.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

INTERVAL_S = 0.15
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red", "bright_cyan", "bright_magenta")
NAME_WIDTH = 11
_READ_BYTES = 1 << 16
_STYLES = {"warning": "yellow", "error": "red", "critical": "bold red"}
_NOT_TO_A_TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and line end, and what turns the direction of writing round."""


class Terminal(Console):
    """rich's, with two differences: who leaves does not end the program, and no text commands the terminal.

    What is shown was written by callers and models. rich takes some control characters out of a text and leaves escape
    sequences in it, which could clear an operator's screen or rename his window.
    """

    def on_broken_pipe(self) -> NoReturn:
        """Let the caller of ``print`` have the error."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See Console; rich's own colours are no text."""
        for segment in super().render(renderable, options):
            if segment.control is None and _NOT_TO_A_TERMINAL.search(segment.text):
                yield segment._replace(text=_NOT_TO_A_TERMINAL.sub("\ufffd", segment.text))
            else:
                yield segment


class LogPrinter:
    """Prints the lines that are added to ``logs/*.log`` while it is open, each with its process's name."""

    def __init__(self, logs: Path, console: Console) -> None:
        self._logs, self._console = logs, console
        self._positions: dict[Path, int] = {}
        self._colours: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._is_read = True
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._positions = {path: path.stat().st_size for path in self._logs.glob("*.log")}
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._print_new()

    def say(self, name: str, line: str) -> None:
        """Print a line of the supervisor's own about a process."""
        self._print(name, line, style="bold")

    async def _follow(self) -> None:
        while True:
            self._print_new()
            await asyncio.sleep(INTERVAL_S)

    def _print_new(self) -> None:
        for path in sorted(self._logs.glob("*.log")):
            with contextlib.suppress(
                FileNotFoundError
            ):  # moved away since it was listed; its successor comes next
                self._print_new_of(path)

    def _print_new_of(self, path: Path) -> None:
        start, size = self._positions.get(path, 0), path.stat().st_size
        if size < start:  # it was begun anew
            start = 0
        if size == start:
            return
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(_READ_BYTES)
        end = data.rfind(b"\n") + 1
        if not end and len(data) < _READ_BYTES:
            return  # half a line: the rest comes
        self._positions[path] = start + (end or len(data))
        for line in data[: end or len(data)].decode(errors="replace").splitlines():
            text, style = for_people(line)
            if self._last.get(path.stem) != text:  # a figure of every ten seconds is news where it changed
                self._last[path.stem] = text
                self._print(path.stem, text, style)

    def _print(self, name: str, line: str, style: str = "") -> None:
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        text = Text(f"{time.strftime('%H:%M:%S')} ", style="dim")
        text.append(f"{name:<{NAME_WIDTH}}", style=colour)
        text.append("│ ", style="dim")
        text.append(Text.from_ansi(line, style=style))
        if self._is_read:
            try:
                self._console.print(text, soft_wrap=True)
            except OSError:  # the terminal is gone; the processes are not, and their files go on
                self._is_read = False


def for_people(line: str) -> tuple[str, str]:
    """A line of a log as a terminal shows it, and its style: the event, then the fields that say something.

    What is no JSON object stays as it is. The time stands before it already; zero and null are left out.
    """
    try:
        said = json.loads(line)
    except ValueError:
        return line, ""
    if not isinstance(said, dict) or "event" not in said:
        return line, ""
    fields = {name: value for name, value in said.items() if name not in ("event", "level", "timestamp")}
    words = [str(said["event"]), *(f"{name}={_brief(value)}" for name, value in fields.items() if value)]
    return "  ".join(words), _STYLES.get(str(said.get("level")), "")


def _brief(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict) and "exc_type" in value[0]:
        return " <- ".join(f"{one['exc_type']}: {one.get('exc_value', '')}" for one in value)
    if isinstance(value, dict):
        return " ".join(f"{name}:{_brief(each)}" for name, each in value.items() if each) or "{}"
    if isinstance(value, list):
        return ",".join(_brief(each) for each in value)
    return str(value)
