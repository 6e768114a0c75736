"""The bill: deterministic, exact, in the tenant's own month."""

from __future__ import annotations

import csv
import hashlib
import json
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

from schemas.money import month_of, total
from schemas.records import Side
from sinks import derived
from sinks.exports.bill import ExportError, bounds, export_bill
from tests.support.records import generation_id, ledger
from tests.support.warehouse import empty_database

MARCH_US = int(datetime(2026, 3, 15, tzinfo=UTC).timestamp()) * 1_000_000
LATER = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def store(clickhouse):
    with empty_database(clickhouse) as real:
        yield real


def put(store, *lines, first_offset=0):
    store.insert(
        derived.LEDGER,
        [derived.ledger_row(line, 0, n) for n, line in enumerate(lines, first_offset)],
        hashlib.sha256(repr(lines).encode()).hexdigest(),
    )


def line(number, amount="0.1", at_us=MARCH_US, bucket="output", **changes):
    return ledger(
        generation_id(number, at_us),
        bucket,
        amount=amount,
        started_us=at_us,
        **{"content_hash": str(amount)} | changes,
    )


def lines_of(bill):
    with bill.path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_same_month_twice_is_the_same_bytes(store, tmp_path):
    """A repeat, also after a merge and after every line was inserted again, gives the same three files."""
    lines = [line(n, amount) for n, amount in enumerate(["0.1"] * 10 + ["0.000000000000000001", None])]
    put(store, *lines)
    first = export_bill(store, "acme", "2026-03", "UTC", tmp_path / "a.csv", now=LATER)
    before = [path.read_bytes() for path in (first.path, first.cover_path, first.manifest_path)]
    for offset, one in enumerate(lines):
        put(store, one, first_offset=offset)
    store.merge(derived.LEDGER)
    again = export_bill(store, "acme", "2026-03", "UTC", tmp_path / "a.csv", now=LATER)
    assert [path.read_bytes() for path in (again.path, again.cover_path, again.manifest_path)] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.csv",
        "a.csv.cover.txt",
        "a.csv.manifest.json",
    ]


def test_the_sum_is_the_ledgers_exactly(store, tmp_path):
    """The CSV's amounts, the manifest's sum and SQL's own sum are one Decimal, to the last of 18 digits."""
    amounts = ["0.1"] * 10 + ["0.000000000000000001", "12345678901234567.123456789012345678", "-3.5"]
    put(store, *[line(n, amount) for n, amount in enumerate(amounts)])
    bill = export_bill(store, "acme", "2026-03", "UTC", tmp_path / "b.csv", now=LATER)
    (asked,) = store.query("SELECT sum(amount) AS amount FROM ledger_current")
    wanted = total(Decimal(amount) for amount in amounts)
    assert bill.sums == {"USD": wanted}
    assert asked["amount"] == wanted
    assert total(Decimal(row["amount"]) for row in lines_of(bill)) == wanted
    manifest = json.loads(bill.manifest_path.read_text())
    assert Decimal(manifest["sums"]["USD"]) == wanted
    assert manifest["sha256"] == hashlib.sha256(bill.path.read_bytes()).hexdigest()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Budapest", "Asia/Kolkata", "America/Los_Angeles"])
def test_each_attempt_is_in_one_month_of_its_tenant(store, tmp_path, zone):
    """By the attempt's start instant in the tenant's zone, half-open: two months together hold every line once."""
    instants = [
        int(datetime.fromisoformat(at).timestamp() * 1_000_000)
        for at in (
            "2026-03-31T18:29:59Z",
            "2026-03-31T18:30:00Z",
            "2026-03-31T21:59:59Z",
            "2026-03-31T22:00:00Z",
            "2026-03-31T23:59:59Z",
            "2026-04-01T00:00:00Z",
            "2026-04-01T06:59:59Z",
            "2026-04-01T07:00:00Z",
        )
    ]
    put(store, *[line(n, "1", at_us) for n, at_us in enumerate(instants)])
    for month in ("2026-03", "2026-04"):
        bill = export_bill(store, "acme", month, zone, tmp_path / f"{month}.csv", now=LATER)
        assert bill.rows == sum(month_of(at_us, zone) == month for at_us in instants)


def test_a_cover_sheet_tells_what_is_not_known(store, tmp_path):
    """Measured, estimated, unmeasured, unpriced and contradicted lines are told apart, in lines and in percent."""
    put(
        store,
        line(1, "1"),
        line(2, "2", usage_source="estimated"),
        line(3, None, status="unpriced"),
        line(4, None, quantity=None, usage_source="none"),
        line(5, "5", content_hash="first"),
        line(5, "7", content_hash="second"),
    )
    bill = export_bill(store, "acme", "2026-03", "UTC", tmp_path / "c.csv", now=LATER)
    cover = {
        row.split()[0]: row.split()[1:] for row in bill.cover_path.read_text().splitlines() if "%  " in row
    }
    assert cover["measured"] == ["1", "20.0%", "1", "USD"]
    assert cover["estimated"] == ["1", "20.0%", "2", "USD"]
    assert cover["unpriced"] == ["1", "20.0%", "0", "USD"]
    assert cover["unmeasured"] == ["1", "20.0%", "0", "USD"]
    assert cover["quarantined"] == ["1", "20.0%", "5", "USD"]
    assert bill.sums == {"USD": Decimal(8)}


def test_an_unknown_amount_is_an_empty_cell(store, tmp_path):
    """Null is never written as 0."""
    put(store, line(1, None, unit_price=None, quantity=None, status="unpriced"), line(2, "0"))
    rows = lines_of(export_bill(store, "acme", "2026-03", "UTC", tmp_path / "n.csv", now=LATER))
    assert sorted((row["amount"], row["quantity"]) for row in rows) == [("", ""), ("0", "5")]


def test_a_bill_is_one_tenants_and_one_side(store, tmp_path):
    """Nothing of another tenant, and nothing of what the provider cost, stands on a customer's bill."""
    foreign = msgspec.structs.replace(line(2, "2"), tenant="b")
    put(store, line(1, "1"), foreign)
    put(store, line(3, "3", side=Side.PROVIDER_COST))
    bill = export_bill(store, "acme", "2026-03", "UTC", tmp_path / "d.csv", now=LATER)
    assert [row["amount"] for row in lines_of(bill)] == ["1"]


def test_an_open_month_says_draft(store, tmp_path):
    """Before the month's end in the tenant's zone a bill says that it is a draft."""
    put(store, line(1))
    for now, state in (
        (datetime(2026, 3, 31, 22, tzinfo=UTC), "final"),
        (datetime(2026, 3, 31, 21, 59, tzinfo=UTC), "draft"),
    ):
        bill = export_bill(store, "acme", "2026-03", "Europe/Budapest", tmp_path / "e.csv", now=now)
        assert bill.draft == (state == "draft")
        assert json.loads(bill.manifest_path.read_text())["state"] == state


def test_a_cell_cannot_be_a_formula(store, tmp_path):
    """A client's own words are text in a spreadsheet, and a quote or a line break in them does not break the file."""
    put(store, line(1, "-1", request_id='=HYPERLINK("x")\n,'))
    (row,) = lines_of(export_bill(store, "acme", "2026-03", "UTC", tmp_path / "f.csv", now=LATER))
    assert (row["request_id"], row["amount"]) == ('\'=HYPERLINK("x")\n,', "-1")


def test_an_export_that_breaks_off_leaves_nothing(store, tmp_path):
    """Killed in the middle, an export leaves the files of the last one as they were and no other."""
    put(store, line(1), line(2))
    bill = export_bill(store, "acme", "2026-03", "UTC", tmp_path / "g.csv", now=LATER)
    before = bill.path.read_bytes()
    put(store, line(3))

    class Breaking:
        query = store.query

        def stream(self, sql, params):
            yield next(store.stream(sql, params))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_bill(Breaking(), "acme", "2026-03", "UTC", tmp_path / "g.csv", now=LATER)
    assert bill.path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3


def test_an_empty_month_is_a_bill_too(store, tmp_path):
    """A tenant without a line gets a file with a head, no rows, and no sums."""
    bill = export_bill(store, "nobody", "2026-03", "UTC", tmp_path / "h.csv", now=LATER)
    assert (lines_of(bill), bill.rows, bill.sums) == ([], 0, {})


@pytest.mark.parametrize(
    ("period", "zone"), [("2026-13", "UTC"), ("2026-3", "UTC"), ("2026-03", "Mars/Base"), ("2026-03", "../x")]
)
def test_a_wrong_month_or_zone_says_what_is_right(period, zone):
    """A typing error is told before anything is asked or written."""
    with pytest.raises(ExportError, match=r"2026-11|Budapest"):
        bounds(period, zone)
