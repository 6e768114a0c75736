"""`python -m tests.bench [NAME] [--json] [--rounds N] [--quick] [--peers] [--write-docs]`.

Results go to stdout, one JSON object a row with `--json`, else a table; what is under way goes to stderr.
Before: `tokentrail bench`. After: the rows, `results`, `report`.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import uvloop
from rich.console import Console
from rich.table import Table

from schemas.errors import TokentrailError
from tests.bench import (
    report,
    row_cancel,
    row_crowded,
    row_edge,
    row_fold,
    row_freshness,
    row_peers,
    row_resume,
    row_sink,
    row_ttft,
    row_week,
)
from tests.bench.results import Row, machine
from tests.bench.stack import ROOT, BenchFailed

JSON_FILE = ROOT / "docs" / "benchmarks.json"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BUSY_SHARE = 0.3
"""A load average above this share of the CPUs: figures are worth little."""


ROW_LIMIT_S = 600.0
"""More than twice what the longest row takes on two quiet cores."""


class Measure(Protocol):
    """A row's module, as a function."""

    def __call__(
        self, rounds: int | None, tell: Callable[[str], None], *, quick: bool
    ) -> Awaitable[list[Row]]:
        """The rows; `rounds` None: as many as usual."""


ROWS: dict[str, Measure] = {
    "edge": row_edge.measure,
    "ttft": row_ttft.measure,
    "fold": row_fold.measure,
    "sink": row_sink.measure,
    "freshness": row_freshness.measure,
    "resume": row_resume.measure,
    "crowded": row_crowded.measure,
    "cancel": row_cancel.measure,
    "week": row_week.measure,
    "peers": row_peers.measure,
}
BY_NAME = frozenset({"peers"})
"""Installs what others made, so it is measured where it is asked for."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure; the exit code."""
    parser = argparse.ArgumentParser(prog="tokentrail bench", description="The figures of this machine.")
    parser.add_argument("name", nargs="?", choices=ROWS, help="default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--rounds", type=int, help="how often each side is measured")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument(
        "--peers", action="store_true", help="beside all rows also those that install other servers"
    )
    parser.add_argument("--write-docs", action="store_true", help=f"also write {DOCUMENT.name} and its JSON")
    asked = parser.parse_args(words)
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds is at least 1")
    if asked.write_docs and (asked.name or asked.quick):
        parser.error("--write-docs takes all rows of one whole run")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    names = [asked.name] if asked.name else [name for name in ROWS if asked.peers or name not in BY_NAME]
    here = machine()
    if here["load_before"] > BUSY_SHARE * here["cpus"]:
        tell(f"the machine is busy (load average {here['load_before']} on {here['cpus']} CPUs): worth little")
    try:
        rows = uvloop.run(
            _stoppable(_measure(names, asked.rounds, quick=asked.quick, as_json=asked.json, here=here))
        )
    except asyncio.CancelledError:
        tell("stopped")
        return 130
    except TokentrailError as error:
        tell(f"error: {error}")
        return 1
    if not asked.json:
        _print_table(rows)
    if asked.write_docs:
        write_docs({"machine": here, "rows": rows}, JSON_FILE, DOCUMENT)
    return 0


def tell(line: str) -> None:
    """One line of what is under way."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def write_docs(results: report.Results, json_file: Path, document: Path) -> None:
    """The results, and the document that is made from them."""
    json_file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    document.write_text(report.document(results), encoding="utf-8")


async def _measure(
    names: Sequence[str], rounds: int | None, *, quick: bool, as_json: bool, here: Row
) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        try:
            async with asyncio.timeout(ROW_LIMIT_S * (rounds or 1)):
                measured = await ROWS[name](rounds, tell, quick=quick)
        except TimeoutError:
            raise BenchFailed(f"{name} was not done in time: something hangs") from None
        for row in measured:
            rows.append(row)
            if as_json:
                sys.stdout.write(json.dumps({**row, "machine": here}, ensure_ascii=False) + "\n")
                sys.stdout.flush()
    return rows


async def _stoppable(work: Awaitable[list[Row]]) -> list[Row]:
    """SIGINT and SIGTERM end the work in order: everything that was started is stopped."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    return await task


def _print_table(rows: Sequence[Row]) -> None:
    table = Table(*report.HEADER, header_style="bold")
    for cells in report.cells_of(rows):
        table.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
