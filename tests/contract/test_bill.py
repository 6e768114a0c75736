"""The bill's files: deterministic, exact, in the tenant's own month, whole or not there."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

from schemas.money import month_of, total
from schemas.records import Side
from sinks import derived
from sinks.exports.period import ExportError, bounds
from sinks.exports.render import Form
from tests.support.bills import export, files_of, line, lines_of, put, us
from tests.support.warehouse import empty_database


@pytest.fixture
def store(clickhouse):
    with empty_database(clickhouse) as real:
        yield real


@pytest.mark.parametrize("draft", [False, True])
def test_the_same_month_twice_is_the_same_bytes(store, tmp_path, draft):
    """A repeat, also after a merge and after every line was inserted again, gives the same three files."""
    lines = [line(n, amount) for n, amount in enumerate(["0.1"] * 10 + ["0.000000000000000001", None])]
    put(store, *lines, first_offset=0)
    before = files_of(export(store, tmp_path / "a.csv", draft=draft))
    for offset, one in enumerate(lines):
        put(store, one, first_offset=offset)
    store.merge(derived.LEDGER)
    assert files_of(export(store, tmp_path / "a.csv", draft=draft)) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.csv",
        "a.csv.cover.txt",
        "a.csv.manifest.json",
    ]


def test_the_sum_is_the_ledgers_exactly(store, tmp_path):
    """The CSV's amounts, the manifest's sum and SQL's own sum are one Decimal, to the last of 18 digits."""
    amounts = ["0.1"] * 10 + ["0.000000000000000001", "12345678901234567.123456789012345678", "-3.5"]
    put(store, *[line(n, amount) for n, amount in enumerate(amounts)])
    bill = export(store, tmp_path / "b.csv")
    (asked,) = store.query("SELECT sum(amount) AS amount FROM ledger_current")
    wanted = total(Decimal(amount) for amount in amounts)
    assert bill.tally.sums == {"USD": wanted}
    assert asked["amount"] == wanted
    assert total(Decimal(row["amount"]) for row in lines_of(bill)) == wanted
    manifest = json.loads(bill.manifest_path.read_text())
    assert Decimal(manifest["sums"]["USD"]) == wanted
    assert manifest["sha256"] == hashlib.sha256(bill.path.read_bytes()).hexdigest()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Budapest", "Asia/Kolkata", "America/Los_Angeles"])
def test_each_attempt_is_in_one_month_of_its_tenant(store, tmp_path, zone):
    """By the attempt's start instant in the tenant's zone, half-open: two months together hold every line once."""
    instants = [
        "2026-03-31T18:29:59Z",
        "2026-03-31T18:30:00Z",
        "2026-03-31T21:59:59.999999Z",
        "2026-03-31T22:00:00Z",
        "2026-03-31T23:59:59Z",
        "2026-04-01T00:00:00Z",
        "2026-04-01T06:59:59Z",
        "2026-04-01T07:00:00Z",
    ]
    put(store, *[line(n, "1", at) for n, at in enumerate(instants)])
    for month in ("2026-03", "2026-04"):
        rows = lines_of(export(store, tmp_path / f"{month}.csv", month, zone=zone))
        assert len(rows) == sum(month_of(us(at), zone) == month for at in instants)
        assert {(row["kind"], row["period"]) for row in rows} <= {("line", month)}


def test_a_cover_sheet_tells_what_is_not_known(store, tmp_path):
    """Measured, estimated, unmeasured, unpriced and contradicted lines are told apart, in lines and in percent."""
    put(
        store,
        line(1, "1"),
        line(2, "2", usage_source="estimated"),
        line(3, None, status="unpriced"),
        line(4, None, quantity=None, usage_source="none"),
        line(5, "5"),
        line(5, "7"),
    )
    bill = export(store, tmp_path / "c.csv")
    cover = {
        row.split()[0]: row.split()[1:] for row in bill.cover_path.read_text().splitlines() if "%  " in row
    }
    assert cover["measured"] == ["1", "20.0%", "1", "USD"]
    assert cover["estimated"] == ["1", "20.0%", "2", "USD"]
    assert cover["unpriced"] == ["1", "20.0%", "0", "USD"]
    assert cover["unmeasured"] == ["1", "20.0%", "0", "USD"]
    assert cover["quarantined"] == ["1", "20.0%", "5", "USD"]
    assert bill.tally.sums == {"USD": Decimal(8)}


def test_an_unknown_amount_is_an_empty_cell(store, tmp_path):
    """Null is never written as 0."""
    put(store, line(1, None, unit_price=None, quantity=None, status="unpriced"), line(2, "0"))
    rows = lines_of(export(store, tmp_path / "n.csv"))
    assert sorted((row["amount"], row["quantity"]) for row in rows) == [("", ""), ("0", "5")]


def test_json_lines_say_what_the_csv_says(store, tmp_path):
    """Both forms have the same lines and values; in JSON an unknown one is null, and text is as it was."""
    put(store, line(1, None, unit_price=None, request_id="=1+1"), line(2, "0.25", flags=["b", "a"]))
    rows = lines_of(export(store, tmp_path / "a.csv"))
    bill = export(store, tmp_path / "a.jsonl", form=Form.JSONL)
    said = [json.loads(text) for text in bill.path.read_text().splitlines()]
    assert [one.keys() for one in said] == [row.keys() for row in rows]
    assert [(one["amount"], one["request_id"], one["flags"]) for one in said] == [
        (None, "=1+1", []),
        ("0.25", "req-1", ["a", "b"]),
    ]
    for one, row in zip(said, rows, strict=True):
        assert {str(one[name]) for name in ("quantity", "started", "content_hash")} <= set(row.values())


def test_each_form_comes_to_the_same(store, tmp_path):
    """A closed month in one form after the other: the same lines, sum and cover sheet, and FOCUS costs what they cost."""
    put(store, line(1, "0.1"), line(2, "0.2"), line(3, None, unit_price=None))
    made = [export(store, tmp_path / form.value, form=form) for form in Form]
    assert [bill.tally.rows for bill in made] == [3, 3, 3]
    assert len({bill.cover_path.read_bytes() for bill in made}) == 1
    rows = lines_of(made[list(Form).index(Form.FOCUS)])
    assert total(Decimal(row["BilledCost"]) for row in rows) == Decimal("0.3")
    assert made[0].tally.sums == {"USD": Decimal("0.3")}


def test_a_bill_is_one_tenants_and_one_side(store, tmp_path):
    """Nothing of another tenant, and nothing of what the provider cost, stands on a customer's bill."""
    foreign = msgspec.structs.replace(line(2, "2"), tenant="b")
    put(store, line(1, "1"), foreign)
    put(store, line(3, "3", side=Side.PROVIDER_COST))
    assert [row["amount"] for row in lines_of(export(store, tmp_path / "d.csv"))] == ["1"]
    assert [row["amount"] for row in lines_of(export(store, tmp_path / "e.csv", tenant="b"))] == ["2"]
    assert [row["amount"] for row in lines_of(export(store, tmp_path / "f.csv", side="provider_cost"))] == [
        "3"
    ]


def test_an_open_month_says_draft(store, tmp_path):
    """Before the month's end in the tenant's zone a bill says that it is a draft, and closes nothing."""
    put(store, line(1))
    for now, state in (
        (datetime(2026, 3, 31, 21, 59, tzinfo=UTC), "draft"),
        (datetime(2026, 3, 31, 22, tzinfo=UTC), "final"),
    ):
        bill = export(store, tmp_path / "e.csv", zone="Europe/Budapest", now=now)
        assert (bill.closed is None) == (state == "draft")
        assert json.loads(bill.manifest_path.read_text())["state"] == state


def test_a_cell_cannot_be_a_formula(store, tmp_path):
    """A client's own words are text in a spreadsheet, and a quote or a line break in them does not break the file."""
    put(store, line(1, "-1", request_id='=HYPERLINK("x")\n,'))
    (row,) = lines_of(export(store, tmp_path / "f.csv"))
    assert (row["request_id"], row["amount"]) == ('\'=HYPERLINK("x")\n,', "-1")


def test_an_export_that_breaks_off_leaves_nothing(store, tmp_path):
    """Killed in the middle, an export leaves the files of the last one as they were and no other."""
    put(store, line(1), line(2))
    before = files_of(export(store, tmp_path / "g.csv", draft=True))
    put(store, line(3))

    class Breaking:
        query = store.query

        def stream(self, sql, params):
            yield next(store.stream(sql, params))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(Breaking(), tmp_path / "g.csv", draft=True)
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == before


def test_an_empty_month_is_a_bill_too(store, tmp_path):
    """A tenant without a line gets a file with a head, no rows, and no sums."""
    bill = export(store, tmp_path / "h.csv", tenant="nobody")
    assert (lines_of(bill), bill.tally.rows, bill.tally.sums) == ([], 0, {})


@pytest.mark.parametrize(
    ("period", "zone"),
    [
        ("2026-13", "UTC"),
        ("2026-3", "UTC"),
        ("0000-01", "UTC"),
        ("9999-12", "UTC"),
        ("2026-03", "Mars/Base"),
        ("2026-03", "../x"),
    ],
)
def test_a_wrong_month_or_zone_says_what_is_right(period, zone):
    """A typing error is told before anything is asked or written."""
    with pytest.raises(ExportError, match=r"2026-11|Budapest"):
        bounds(period, zone)
