"""A generation's timeline as lines of text: one bar per attempt on one scale, and below them what happened when.

::

    attempt 0  one/gpt-x  ░░░░░✗                                       failed, overloaded
    attempt 1  two/gpt-x         ░░░░░░████╌╌╌╌╌╌╌╌████■               ok, committed
                                       F   S                  C   T
                          0                                 4,200 ms

Invariants: every bar has the same width and scale; a stretch that is shorter than a column still shows one; order of time
is never turned around by rounding. Pure: rows in, lines out. Before this file: ``commands/show``. After it: nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text

WAITING, CONTENT, STALLED, AFTER = "░", "█", "╌", "─"
OK, FAILED, RUNS = "■", "✗", "▸"
_SIGNS = {
    WAITING: "waiting",
    CONTENT: "content",
    STALLED: "silent",
    AFTER: "after the last content",
    OK: "end",
    FAILED: "failed or cancelled",
    RUNS: "runs",
}
_LETTERS = {"F": "first token", "S": "stall", "C": "cancel", "R": "retry", "H": "hedge", "T": "terminal"}
BAR_WIDTH_MIN, BAR_WIDTH_MAX = 20, 120
LABEL_WIDTH_MAX = 30
COMMITTED = ", committed"
_STYLES = {
    WAITING: "dim",
    CONTENT: "green",
    STALLED: "yellow",
    AFTER: "dim",
    OK: "bold green",
    FAILED: "bold red",
    RUNS: "bold green",
}
_MARK_STYLES = {"F": "green", "S": "yellow", "C": "bold red", "R": "magenta", "H": "magenta", "T": "bold"}
Row = Mapping[str, Any]


class Mark(NamedTuple):
    """Something that happened at an instant."""

    at_ms: float
    letter: str


class Scale(NamedTuple):
    """Milliseconds to columns."""

    total_ms: float
    width: int

    def column(self, at_ms: float) -> int:
        """The column of an instant, within the bar."""
        if self.total_ms <= 0:
            return 0
        return min(self.width - 1, max(0, int(at_ms / self.total_ms * self.width)))


def draw(attempts: Sequence[Row], stalls: Sequence[Row], marks: Iterable[Mark], columns: int) -> list[Text]:
    """The lines, for a terminal of so many columns; none where no attempt has a time.

    Args:
        attempts: rows of ``attempts_final``, in order.
        stalls: rows of the view ``stalls``.
        marks: what happened beside.
        columns: the terminal's width.
    """
    timed = [row for row in attempts if row.get("dispatched_ms") is not None]
    marks = sorted(marks)
    if not timed:
        return []
    ends = [row["dispatched_ms"] + row["elapsed_ms"] for row in timed]
    labels, outcomes, room = _beside(timed, columns)
    label_width = max(len(label) for label in labels)
    scale = Scale(max([*ends, *(mark.at_ms for mark in marks)]), max(BAR_WIDTH_MIN, min(BAR_WIDTH_MAX, room)))
    lines = []
    for row, label, outcome in zip(timed, labels, outcomes, strict=True):
        own = [stall for stall in stalls if stall["attempt"] == row["attempt"]]
        line = Text(f"{label:<{label_width}}  ", style="bold" if row.get("committed") else "")
        line.append_text(_styled(bar(row, own, scale), _STYLES))
        line.append(f"  {outcome}", style="dim")
        lines.append(line)
    lines.append(Text(" " * (label_width + 2)).append_text(_styled(marked(marks, scale), _MARK_STYLES)))
    total = f"{scale.total_ms:,.0f} ms"
    lines.append(Text(" " * (label_width + 2) + "0" + total.rjust(scale.width - 1), style="dim"))
    return lines


def legend(picture: Sequence[Text]) -> str:
    """What the signs of a picture mean: those that stand in it."""
    *bars, marks, _ = [line.plain for line in picture]
    signs = [f"{sign} {word}" for sign, word in _SIGNS.items() if any(sign in bar for bar in bars)]
    letters = [f"{letter} {word}" for letter, word in _LETTERS.items() if letter in marks]
    return "\n".join("  ".join(words) for words in (signs, letters) if words)


def bar(row: Row, stalls: Sequence[Row], scale: Scale) -> str:
    """One attempt's bar: as wide as the scale, blank before its dispatch and after its end."""
    start_ms = row["dispatched_ms"]
    end_ms = start_ms + row["elapsed_ms"]
    cells = [" "] * scale.width
    first_ms, last_ms = row.get("first_content_ms"), row.get("last_content_ms")
    _fill(cells, scale, start_ms, end_ms if first_ms is None else first_ms, WAITING)
    if first_ms is not None and last_ms is not None:
        _fill(cells, scale, last_ms, end_ms, AFTER)
        _fill(cells, scale, first_ms, last_ms, CONTENT)
    for stall in stalls:
        _fill_inside(cells, scale, stall["start_ms"], stall["start_ms"] + stall["length_ms"])
    cells[scale.column(end_ms)] = {"ok": OK, "runs": RUNS}.get(str(row.get("outcome")), FAILED)
    return "".join(cells)


def marked(marks: Sequence[Mark], scale: Scale) -> str:
    """A line with a letter under each instant; those that fall into one column stand side by side, the last at its end.

    Where there are more than columns, the first of them are left out.
    """
    shown = marks[-scale.width :]
    columns: list[int] = []
    for mark in shown:
        columns.append(max(scale.column(mark.at_ms), columns[-1] + 1 if columns else 0))
    last = scale.width
    for place in reversed(range(len(columns))):
        last = columns[place] = min(columns[place], last - 1)
    cells = [" "] * scale.width
    for column, mark in zip(columns, shown, strict=True):
        cells[column] = mark.letter
    return "".join(cells).rstrip()


def _fill(cells: list[str], scale: Scale, from_ms: float, to_ms: float, cell: str) -> None:
    for at in range(scale.column(from_ms), scale.column(to_ms) + 1):
        cells[at] = cell


def _fill_inside(cells: list[str], scale: Scale, from_ms: float, to_ms: float) -> None:
    """A silence lies between two contents, whose columns it leaves as they are where there is room."""
    first, last = scale.column(from_ms), scale.column(to_ms)
    for at in range(first + 1, last) if last - first > 1 else range(first, first + 1):
        cells[at] = STALLED


def _beside(rows: Sequence[Row], columns: int) -> tuple[list[str], list[str], int]:
    """What stands left and right of the bars, and the columns between: the less is said, the narrower the terminal is."""
    labels, short = [_label(row) for row in rows], [f"attempt {row['attempt']}" for row in rows]
    whole, bare = [_outcome(row) for row in rows], [_outcome(row).removesuffix(COMMITTED) for row in rows]
    for left, right in ((labels, whole), (labels, bare), (short, bare)):
        room = columns - max(map(len, left)) - max(map(len, right)) - 4
        if room >= BAR_WIDTH_MIN:
            break
    return left, right, room


def _label(row: Row) -> str:
    label = f"attempt {row['attempt']}  {row.get('provider') or '?'}/{row.get('model') or '?'}"
    return label if len(label) <= LABEL_WIDTH_MAX else label[: LABEL_WIDTH_MAX - 1] + "…"


def _outcome(row: Row) -> str:
    return str(row.get("error_code") or row.get("outcome") or "?") + (
        COMMITTED if row.get("committed") else ""
    )


def _styled(text: str, styles: Mapping[str, str]) -> Text:
    line = Text()
    for character in text:
        line.append(character, style=styles.get(character, ""))
    return line
