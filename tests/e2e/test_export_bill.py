"""`tokentrail export bill` as finance runs it, against a real ClickHouse: a month is closed, repeated, adjusted, and survives a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from hashlib import sha256

import pytest
from typer.testing import CliRunner

from compose.cli import app
from tests.support.bills import line, lines_of_file, put
from tests.support.warehouse import fresh_database

pytestmark = pytest.mark.timeout(240)
LINES = 10_000
APRIL = "2025-04-02T00:00:00Z"
MARCH = "2025-03-20T00:00:00Z"


@pytest.fixture
def books(clickhouse, monkeypatch):
    """Give a store whose database the environment names, as it would name a ClickHouse of one's own."""
    with fresh_database(clickhouse) as store:
        (name,) = store.query("SELECT currentDatabase() AS name")
        monkeypatch.setenv("TOKENTRAIL_CLICKHOUSE__URL", clickhouse)
        monkeypatch.setenv("TOKENTRAIL_CLICKHOUSE__DATABASE", name["name"])
        yield store


def arguments(path, period):
    place = ("--dir", str(path.parent / "none"), "--out", str(path))
    return ["export", "bill", "--tenant", "acme", "--period", period, *place, "--json"]


def exported(path, period, *more):
    result = CliRunner().invoke(app, [*arguments(path, period), *more])
    assert result.exit_code == 0, f"{result.output} {result.exception!r}"
    return json.loads(result.stdout)


def test_a_month_is_closed_repeated_and_adjusted(books, tmp_path):
    """Ledger rows, an export, a late line, the next month's export: the closed month is the same bytes, the late line named."""
    put(books, line(1, "0.1", MARCH), line(2, "0.2", MARCH))
    looked_at = exported(tmp_path / "draft.csv", "2025-03", "--draft")
    march = exported(tmp_path / "march.csv", "2025-03")
    put(books, line(3, "0.003", MARCH), line(4, "1", APRIL))
    again = exported(tmp_path / "again.csv", "2025-03")
    april = exported(tmp_path / "april.csv", "2025-04")
    assert (looked_at["draft"], march["draft"], march["closed_now"], again["closed_now"]) == (
        True,
        False,
        True,
        False,
    )
    assert march["sha256"] == again["sha256"] == looked_at["sha256"]
    assert (tmp_path / "march.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()
    assert [(row["kind"], row["period"], row["amount"]) for row in lines_of_file(tmp_path / "april.csv")] == [
        ("adjustment", "2025-03", "0.003"),
        ("line", "2025-04", "1"),
    ]
    assert (april["sums"], april["adjustments"]) == ({"USD": "1.003"}, {"2025-03": 1})


def test_an_export_that_is_killed_is_the_same_when_it_is_run_again(books, tmp_path):
    """Killed while it closes a month of 10,000 lines it leaves no half file; the next run's has every line, once."""
    put(books, *[line(number, "0.0001", MARCH) for number in range(LINES)])
    undisturbed = exported(tmp_path / "draft.csv", "2025-03", "--draft")
    bill = tmp_path / "bill.csv"
    for stage in ("it has begun", "lines are kept"):
        known = set(tmp_path.glob(".bill.csv.*.part"))
        process = subprocess.Popen(
            [sys.executable, "-m", "compose.cli", *arguments(bill, "2025-03")],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
        )
        while process.poll() is None and not _reached(stage, books, tmp_path, known):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not bill.exists() or sha256(bill.read_bytes()).hexdigest() == undisturbed["sha256"]
    made = exported(bill, "2025-03")
    assert (made["rows"], made["sha256"]) == (LINES, undisturbed["sha256"])
    assert len({row["generation_id"] for row in lines_of_file(bill)}) == LINES


def _reached(stage, books, folder, known):
    """Whether an export has come so far."""
    if stage == "it has begun":
        return bool(set(folder.glob(".bill.csv.*.part")) - known)
    return books.query("SELECT count() AS lines FROM billed_lines")[0]["lines"] > 0
