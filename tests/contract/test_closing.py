"""A month that was exported is closed: its bill stays, what comes late is on the next, and all bills are the ledger."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import msgspec
import pytest

from schemas.money import total
from sinks import derived, rows
from sinks.exports.books import BILLED_LINES, CLOSED_PERIODS, Books
from sinks.exports.period import ExportError
from tests.support.bills import export, files_of, line, lines_of, put, us
from tests.support.records import Raw, generation, generation_id
from tests.support.warehouse import empty_database

APRIL = "2026-04-02T00:00:00Z"
FEBRUARY = "2026-02-02T00:00:00Z"


@pytest.fixture
def store(clickhouse):
    with empty_database(clickhouse) as real:
        yield real


def shown(bill):
    """What a bill says of its lines, in short."""
    return [(row["kind"], row["period"], row["quantity"], row["amount"]) for row in lines_of(bill)]


def test_what_comes_late_is_on_the_next_bill(store, tmp_path):
    """After its export March stays as it was; a late line of it is an adjustment on April's, which names March, once."""
    put(store, line(1, "1"))
    march = files_of(export(store, tmp_path / "a.csv"))
    put(store, line(2, "2"), line(3, "3", APRIL))
    april = export(store, tmp_path / "b.csv", "2026-04")
    assert shown(april) == [("adjustment", "2026-03", "5", "2"), ("line", "2026-04", "5", "3")]
    assert json.loads(april.manifest_path.read_text())["adjustments"] == {
        "2026-03": {"lines": 1, "sums": {"USD": "2"}}
    }
    assert "2026-03            1  2 USD" in april.cover_path.read_text()
    assert files_of(export(store, tmp_path / "a.csv")) == march
    assert shown(export(store, tmp_path / "c.csv", "2026-05")) == []


def test_what_no_longer_holds_is_taken_back(store, tmp_path):
    """A later revision of a billed attempt: its billed lines with their sign turned, and the new ones, unknown ones too."""
    put(store, line(1, None, bucket="none", quantity=None, revision=0), line(2, "7", revision=0))
    export(store, tmp_path / "a.csv")
    put(store, line(1, "1", bucket="input"), line(1, "2"), line(2, "7.5"))
    assert shown(export(store, tmp_path / "b.csv", "2026-04")) == [
        ("adjustment", "2026-03", "5", "1"),
        ("adjustment", "2026-03", "", ""),
        ("adjustment", "2026-03", "5", "2"),
        ("adjustment", "2026-03", "-5", "-7"),
        ("adjustment", "2026-03", "5", "7.5"),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_all_bills_together_are_the_ledger(store, tmp_path, seed):
    """Whatever comes between exports, in whatever order months are closed: bills plus what is not billed are the ledger."""
    rng = random.Random(seed)
    billed = []
    for step in range(8):
        for _ in range(rng.randrange(5)):
            number, month = rng.randrange(6), rng.choice([2, 3, 4, 5])
            amount = rng.choice(["0.1", "0.000000000000000003", "12", None])
            at, revision = f"2026-0{month}-03T00:00:00Z", rng.randrange(3)
            put(
                store,
                line(number + 10 * month, amount, at, rng.choice(["input", "output"]), revision=revision),
            )
        month = f"2026-0{rng.choice([2, 3, 4, 5])}"
        bill = export(store, tmp_path / f"{step}.csv", month, with_earlier=rng.random() < 0.3)
        if bill.newly:
            billed += [Decimal(row["amount"]) for row in lines_of(bill) if row["amount"]]
    rest = export(store, tmp_path / "rest.csv", "2026-12", with_earlier=True)
    (asked,) = store.query("SELECT sum(amount) AS amount FROM ledger_current")
    assert rest.closed is None
    assert total([*billed, *rest.tally.sums.values()]) == asked["amount"]


def test_a_month_that_was_never_closed_waits_for_its_own_bill(store, tmp_path):
    """February is not on March's bill, and is said to be left; its own bill has it, or March's where that is asked for."""
    put(store, line(1, "1", FEBRUARY), line(2, "2"))
    looked_at = export(store, tmp_path / "a.csv", draft=True, with_earlier=True)
    assert shown(looked_at) == [("adjustment", "2026-02", "5", "1"), ("line", "2026-03", "5", "2")]
    march = export(store, tmp_path / "b.csv")
    assert shown(march) == [("line", "2026-03", "5", "2")]
    assert {month: march.tally.left.words(month) for month in march.tally.left} == {"2026-02": "1 USD"}
    assert shown(export(store, tmp_path / "c.csv", "2026-02")) == [("line", "2026-02", "5", "1")]


def test_a_contradiction_is_named_with_both_values(store, tmp_path):
    """What came second is on no bill and named with both amounts; after the closing, by the next bill and only by it."""
    put(store, line(1, "1"), line(1, "1.5"), line(2, "2"))
    march = export(store, tmp_path / "a.csv")
    assert [(row["amount"], row["flags"]) for row in lines_of(march)] == [("1", "conflict"), ("2", "")]
    put(store, line(2, "2.5"))
    april = export(store, tmp_path / "b.csv", "2026-04")
    assert shown(april) == []
    for bill, stands, aside in ((march, "1", "1.5"), (april, "2", "2.5")):
        (named,) = json.loads(bill.manifest_path.read_text())["quarantined"]
        assert (named["period"], named["why"]) == ("2026-03", "conflict")
        assert (named["stands"]["amount"], named["set_aside"]["amount"]) == (stands, aside)
        assert (
            f"{named['key']} output (conflict): 5 for {aside}; billed: 5 for {stands}"
            in bill.cover_path.read_text()
        )
    assert export(store, tmp_path / "c.csv", "2026-05").tally.quarantined_lines == 0


def test_of_two_records_no_bill_mixes_the_lines(store, tmp_path):
    """A bucket that only the second record has is not billed beside the first record's."""
    put(
        store,
        line(1, "1", record_hash="A"),
        line(1, "1", record_hash="B"),
        line(1, "9", bucket="tool_call", record_hash="B"),
    )
    bill = export(store, tmp_path / "a.csv")
    assert shown(bill) == [("line", "2026-03", "5", "1")]
    assert bill.tally.quarantined_lines == 2


def test_usage_that_cannot_be_true_is_named(store, tmp_path):
    """A line whose usage was unusable is on the bill without an amount, and named among what is quarantined."""
    put(store, line(1, None, quantity=None, status="quarantined", flags=["usage_malformed"]))
    bill = export(store, tmp_path / "a.csv")
    assert shown(bill) == [("line", "2026-03", "", "")]
    (named,) = bill.tally.quarantined
    assert (named["why"], named["stands"]) == ("usage", None)


def test_what_the_books_count_is_what_the_view_shows(store, tmp_path):
    """A draft has the lines of ledger_current, and sets aside those of ledger_set_aside."""
    rng = random.Random(7)
    for number in range(60):
        bucket, record = rng.choice(["input", "output", "cache_read"]), rng.choice("ABC")
        put(
            store,
            line(
                number % 6,
                str(rng.randrange(4)),
                bucket=bucket,
                revision=rng.randrange(3),
                record_hash=record,
            ),
        )
    bill = export(store, tmp_path / "a.csv", draft=True)
    shows = store.query("SELECT content_hash, bucket, toString(generation_id) AS id FROM ledger_current")
    named = {(row["content_hash"], row["bucket"], row["generation_id"]) for row in lines_of(bill)}
    assert named == {tuple(row.values()) for row in shows}
    aside = store.query("SELECT content_hash, bucket, toString(generation_id) AS id FROM ledger_set_aside")
    assert {(one["content_hash"], one["bucket"], one["key"][:-2]) for one in bill.tally.quarantined} == {
        tuple(row.values()) for row in aside
    }
    assert aside


def test_who_dies_while_closing_has_closed_nothing(store, tmp_path):
    """Lines that were kept without their last row are on no bill, and the next export is that of an undisturbed run."""
    put(store, *[line(n, "1") for n in range(5)])

    class Dying:
        query, stream = store.query, store.stream

        def insert(self, table, rows, token):
            if table is CLOSED_PERIODS:
                raise KeyboardInterrupt
            store.insert(table, rows, token)

    with pytest.raises(KeyboardInterrupt):
        export(Dying(), tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []
    assert store.query("SELECT count() AS lines FROM billed_lines") == [{"lines": 5}]
    bill = export(store, tmp_path / "a.csv")
    assert bill.newly
    assert bill.tally.sums == {"USD": Decimal(5)}


def test_two_that_close_at_once_bill_nothing_twice(store, tmp_path):
    """April is closed while May's lines are counted: May counts again, and the late line of March is on one of them."""
    put(store, line(1, "1"))
    export(store, tmp_path / "a.csv")
    put(store, line(2, "2"), line(3, "3", APRIL), line(4, "4", "2026-05-02T00:00:00Z"))
    other = []

    class Racing:
        query, stream = store.query, store.stream

        def insert(self, table, rows, token):
            if table is CLOSED_PERIODS and not other:
                other.append(export(store, tmp_path / "b.csv", "2026-04"))
            store.insert(table, rows, token)

    may = export(Racing(), tmp_path / "c.csv", "2026-05")
    assert shown(other[0]) == [("adjustment", "2026-03", "5", "2"), ("line", "2026-04", "5", "3")]
    assert shown(may) == [("line", "2026-05", "5", "4")]
    assert may.newly


def test_two_that_close_one_month_give_one_bill(store, tmp_path):
    """Who was the later of two gives the files of the earlier, though the ledger has grown in between."""
    put(store, line(1, "1"))
    first = []

    class Racing:
        query, stream = store.query, store.stream

        def insert(self, table, rows, token):
            if table is CLOSED_PERIODS and not first:
                first.append(files_of(export(store, tmp_path / "a.csv")))
                put(store, line(2, "2"))
            store.insert(table, rows, token)

    late = export(Racing(), tmp_path / "a.csv")
    assert files_of(late) == first[0]
    assert not late.newly


def test_a_closed_month_stays_in_its_zone(store, tmp_path):
    """The zone of the last bill holds for the next; a closed month in another zone is refused, with the one that holds."""
    put(store, line(1, "1", "2026-03-31T21:30:00Z"), line(2, "2", "2026-03-31T22:30:00Z"))
    assert shown(export(store, tmp_path / "a.csv", zone="Europe/Budapest")) == [("line", "2026-03", "5", "1")]
    with pytest.raises(ExportError, match="Europe/Budapest"):
        export(store, tmp_path / "a.csv", zone="UTC")
    april = export(store, tmp_path / "b.csv", "2026-04")
    assert (april.zone, shown(april)) == ("Europe/Budapest", [("line", "2026-04", "5", "2")])


def test_a_place_that_cannot_be_written_closes_nothing(store, tmp_path):
    """A folder that is not there, and one that stands where the file would go, are told before the month is closed."""
    put(store, line(1, "1"))
    for path in (tmp_path / "none" / "a.csv", tmp_path):
        with pytest.raises(ExportError, match="cannot be written"):
            export(store, path)
    assert Books(store, "acme", "customer_charge").closings() == ()


def test_a_bill_that_lost_a_line_is_refused(store, tmp_path):
    """A closed bill whose rows are not all there is an error that says so, and no shorter bill."""
    put(store, line(1, "0"), line(2, "2"))
    export(store, tmp_path / "a.csv")
    before = sorted(path.read_bytes() for path in tmp_path.iterdir())
    store.command("ALTER TABLE billed_lines DELETE WHERE amount = 0 SETTINGS mutations_sync = 1")
    with pytest.raises(ExportError, match="closed with 2 lines, and 1 are there"):
        export(store, tmp_path / "a.csv")
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == before


def test_what_could_not_be_read_is_named(store, tmp_path):
    """A dead letter of the month is named unless its key is another tenant's generation; none of it is in the files."""
    put(store, line(1, "1"))
    others = msgspec.structs.replace(generation(generation_id(2)), tenant="b")
    store.insert(derived.GENERATIONS, [derived.generation_row(others, 0, 0)], "g")
    before = export(store, tmp_path / "a.csv")
    keys = ((b"?", APRIL), (generation_id(2).encode(), APRIL), (b"?", FEBRUARY))
    for offset, (key, at) in enumerate(keys):
        letter = Raw("tokentrail.attempts.v1", 3, offset, key, b"x", timestamp=us(at) // 1000)
        store.insert(rows.DEAD_LETTERS, [rows.dead_letter_row(letter)], f"d{offset}")
    after = export(store, tmp_path / "a.csv")
    assert (before.unreadable, len(after.unreadable)) == ((), 1)
    assert after.unreadable[0].startswith("tokentrail.attempts.v1/3/0 (")
    assert files_of(after) == files_of(before)


def test_the_tables_have_the_columns_that_closings_write(store):
    """The DDL of what was billed and the rows that are made for it are the same, in name and in number."""
    for table in (BILLED_LINES, CLOSED_PERIODS):
        found = store.query(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {t:String}",
            {"t": table.name},
        )
        assert [row["name"] for row in found] == list(table.columns)
    assert us(APRIL) > us(FEBRUARY)
