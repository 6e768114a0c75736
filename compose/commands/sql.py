"""``tokentrail sql``: ask ClickHouse, by a statement or by the name of a ready question.

Before this file: ``cli``. After it: ``compose.warehouse``, ``compose.questions``.
"""

import csv
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from compose.commands.common import DEFAULT_DIR, FolderOption, err, out, print_json, target_of
from compose.questions import QUESTIONS
from compose.warehouse import Row, change, query
from schemas.errors import TokentrailError
from schemas.money import plain

_BORDER_CELLS = 3  # a column's line, and a blank on each side
_GAP_CELLS = 2  # between two columns without lines

_NAME = re.compile(r"[\w-]+")  # no statement is one word


class UnknownQuestion(TokentrailError):
    """No ready question has this name."""


class Format(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def sql(
    statement: Annotated[str | None, typer.Argument(help="SQL, or the name of a ready question")] = None,
    folder: FolderOption = DEFAULT_DIR,
    form: Annotated[Format, typer.Option("--format", help="table, csv or json")] = Format.TABLE,
    *,
    listed: Annotated[bool, typer.Option("--list", help="show the ready questions")] = False,
    writes: Annotated[
        bool, typer.Option("--write", help="the statement may change something; without this it is refused")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the same as --format json")] = False,
) -> None:
    """Ask ClickHouse. `--list` shows ready questions; `tokentrail sql stalls` asks one by its name."""
    form = Format.JSON if as_json else form
    if listed or not (statement or "").strip():
        _print_questions(form)
        return
    assert statement is not None  # noqa: S101 - it is not empty
    question = QUESTIONS.get(statement)
    if question is None and _NAME.fullmatch(statement):
        near = "".join(f" Did you mean {name!r}?" for name in get_close_matches(statement, QUESTIONS, n=1))
        raise UnknownQuestion(
            f"There is no ready question {statement!r}.{near} `tokentrail sql --list` shows all."
        )
    if writes and question is None:
        change(target_of(folder).warehouse, statement)
        err.print("Done.")
        return
    print_rows(query(target_of(folder).warehouse, question.sql if question else statement), form)


def print_rows(rows: Sequence[Row], form: Format) -> None:
    """Print rows as a table, as CSV with a header, or as a JSON array."""
    if form is Format.JSON:
        print_json(rows)
        return
    names = list(rows[0]) if rows else []
    if form is Format.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_plain(row[name]) for name in names] for row in rows)
        return
    if not rows:
        err.print("No rows.")
        return
    show_rows(out, rows)


def show_rows(console: Console, rows: Sequence[Row], title: str | None = None) -> None:
    """Rows for people: a table with lines, one without where that is too wide, else one row after the other.

    Nothing is folded into its column: a word that is broken cannot be read, and an id that is cannot be copied.
    """
    widths = [max(cell_len(name), *(cell_len(_cell(row[name])) for row in rows)) for name in rows[0]]
    has_lines = sum(widths) + _BORDER_CELLS * len(widths) + 1 <= console.width
    if not has_lines and sum(widths) + _GAP_CELLS * (len(widths) - 1) > console.width:
        if title:
            console.print(f"[italic]{escape(title)}[/]")
        _print_records(console, rows)
        return
    table = (
        Table(title=title, title_justify="left", header_style="bold")
        if has_lines
        else Table(
            title=title,
            title_justify="left",
            header_style="bold",
            box=None,
            padding=(0, _GAP_CELLS, 0, 0),
            pad_edge=False,
        )
    )
    for name, value in rows[0].items():
        table.add_column(
            name, justify="right" if isinstance(value, int | float | Decimal) else "left", no_wrap=True
        )
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    console.print(table)


def _cell(value: Any) -> str:
    """A value as people read it; scripts ask for CSV or JSON."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(each) for each in value)
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return "" if value is None else str(_plain(value))


def _print_records(console: Console, rows: Sequence[Row]) -> None:
    width = max(cell_len(name) for name in rows[0])
    for number, row in enumerate(rows, 1):
        console.print(f"[bold]{number}[/]")
        for name, value in row.items():
            console.print(f"  {name:<{width}}  {escape(_cell(value))}", soft_wrap=True)


def _plain(value: Any) -> Any:
    """Money without trailing zeros, measured figures to a thousandth."""
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, float):
        return round(value, 3)
    return value


def _print_questions(form: Format) -> None:
    if form is Format.JSON:
        print_json({name: {"title": q.title, "sql": q.sql} for name, q in QUESTIONS.items()})
        return
    table = Table("name", "question", box=None, header_style="bold")
    for name, question in QUESTIONS.items():
        table.add_row(name, question.title)
    out.print(table)
    out.print('[dim]Ask one with[/] tokentrail sql NAME[dim], or anything with[/] tokentrail sql "SELECT …"')
