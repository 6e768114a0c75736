"""The shipped tables and views on the real engine: every view counts a row once, whatever was inserted and merged."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from compose.questions import QUESTIONS
from schemas.events import CancelRequested, Kind, MessageEnd, Outcome
from schemas.records import AttemptSummary, Diagnosis, LineageEdge, Side
from sinks import derived, migrate, rows
from sinks.intake import TABLES
from sinks.store import SqlError
from tests.support.records import T0_US, Raw, attempt, delta, event, generation, generation_id, ledger, start
from tests.support.warehouse import empty_database, fresh_database

NOW_US = time.time_ns() // 1000
ENDED, LIVE, LOST, AGAIN = (generation_id(n, NOW_US) for n in (1, 2, 3, 4))
VIEWS = sorted(
    {
        line.split()[4]
        for migration in migrate.shipped()
        for line in migration.text.splitlines()
        if line.startswith("CREATE OR REPLACE VIEW")
    }
)


@pytest.fixture
def store(clickhouse):
    with empty_database(clickhouse) as real:
        yield real


@pytest.fixture
def migrated(clickhouse):
    """Give a database in which a test may touch the migrations."""
    with fresh_database(clickhouse) as real:
        yield real


def blocks():
    """One block per table: an ended, a live and a lost generation, two revisions, a conflict, an unpriced line."""
    log = [
        start(ENDED),
        delta(ENDED, 1, "Hel"),
        delta(ENDED, 2, "lo"),
        event(ENDED, Kind.MESSAGE_END, 3, message_end=MessageEnd(finish_reason="stop"), raw="[DONE]"),
        start(LIVE),
        delta(LIVE, 1, "…"),
        start(LOST),
    ]
    price = {"side": Side.PROVIDER_COST, "amount": "0.4"}
    return {
        rows.EVENTS: [rows.event_row(e, 0, offset) for offset, e in enumerate(log)],
        derived.ATTEMPTS: [
            derived.attempt_row(attempt(ENDED, 0, 0, provider="wrong"), 0, 0),
            derived.attempt_row(attempt(ENDED, 0, 1), 0, 1),
            derived.attempt_row(attempt(LOST), 0, 2),
            derived.attempt_row(attempt(AGAIN, 0, outcome=Outcome.FAILED, committed=False), 0, 3),
            derived.attempt_row(attempt(AGAIN, 1), 0, 4),
        ],
        derived.GENERATIONS: [
            derived.generation_row(generation(ENDED, 3, stalls=[]), 0, 0),
            derived.generation_row(
                generation(
                    ENDED,
                    4,
                    diagnoses=[Diagnosis(name="slow", evidence="{}")],
                    output_hash="a",
                    content_events=2,
                ),
                0,
                1,
            ),
            derived.generation_row(generation(LOST, terminal="error", error_code="edge_lost"), 0, 2),
            derived.generation_row(again(), 0, 3),
        ],
        derived.LEDGER: [
            derived.ledger_row(ledger(ENDED, "output", 0, amount="0.9", side=Side.PROVIDER_COST), 0, 0),
            derived.ledger_row(ledger(ENDED, "output", 1, content_hash="first", **price), 0, 1),
            derived.ledger_row(
                ledger(ENDED, "output", 1, content_hash="second", **price | {"amount": "5"}), 0, 2
            ),
            derived.ledger_row(ledger(ENDED, "input", 1, **price | {"amount": "0.1"}), 0, 3),
            derived.ledger_row(
                ledger(LOST, "none", 0, **price | {"amount": None, "quantity": None, "status": "unpriced"}),
                0,
                4,
            ),
        ],
        rows.DEAD_LETTERS: [rows.dead_letter_row(Raw("d", 0, 1, b"k", b"v", timestamp=NOW_US // 1000))],
    }


def again():
    """Give a generation that repeats the ended one with a second attempt and another answer, and is then cancelled."""
    return generation(
        AGAIN,
        previous_generation_id=ENDED,
        lineage=[LineageEdge(kind="retry", from_id=ENDED, to_id=AGAIN)],
        attempts=[
            AttemptSummary(attempt=0, provider="simulator", outcome="failed", reason="first"),
            AttemptSummary(attempt=1, provider="simulator", outcome="ok", reason="retry", committed=True),
        ],
        finish_reason="cancelled",
        cancel=CancelRequested(at_us=1_000),
        output_hash="b",
        content_events=1,
    )


def shown(store):
    """Every view, whole, in an order of its own."""
    return {name: sorted(store.query(f"SELECT * FROM {name}"), key=repr) for name in VIEWS}  # noqa: S608


def test_views_are_the_same_after_double_insertion_and_merges(store):
    """Each shipped view answers the same once, twice inserted in other blocks, and merged."""
    for table, block in blocks().items():
        store.insert(table, block, f"{table.name}:1")
    once = shown(store)
    assert {name for name, found in once.items() if not found} == set()
    for table, block in blocks().items():
        for number, row in enumerate(reversed(block)):
            store.insert(table, [row], f"{table.name}:2:{number}")
    assert shown(store) == once
    for table in TABLES:
        store.merge(table)
    assert shown(store) == once


def test_live_generations_are_those_without_an_end(store):
    """Started, without a terminal in the log and without a finalized row: one here is live, not three."""
    for table, block in blocks().items():
        store.insert(table, block, table.name)
    (live,) = store.query("SELECT * FROM live_generations")
    assert (str(live["generation_id"]), live["model"], live["last_seq"]) == (LIVE, "gpt-x", 1)


def test_nothing_is_summed_over_revisions(store):
    """The current line is the highest revision; of two contents of it the first in log order, and the other counts as a conflict."""
    store.insert(derived.LEDGER, blocks()[derived.LEDGER], "t")
    (cost,) = store.query("SELECT * FROM cost_by_tenant_day WHERE side = 'provider_cost'")
    assert cost["amount"] == Decimal("0.5")
    assert (cost["lines"], cost["unpriced_lines"], cost["conflicts"]) == (3, 1, 1)


def test_a_later_revision_replaces_the_whole_attempt(store):
    """An attempt first told as lost, with one line of unknown amount, keeps nothing of that when its own word comes."""
    lost = ledger(ENDED, "none", 0, amount=None, quantity=None)
    told = [ledger(ENDED, bucket, 1) for bucket in ("input", "output")]
    store.insert(
        derived.LEDGER, [derived.ledger_row(line, 0, n) for n, line in enumerate([*told, lost])], "t"
    )
    found = store.query("SELECT bucket, revision FROM ledger_current ORDER BY bucket")
    assert [(row["bucket"], row["revision"]) for row in found] == [("input", 1), ("output", 1)]


def test_two_records_are_never_mixed(store):
    """Of two records of one revision the first in the log stands whole: a bucket that only the other has is set aside."""
    lines = [ledger(ENDED, "input", content_hash="a", record_hash="A")]
    lines += [
        ledger(ENDED, name, content_hash=name, record_hash="B", amount="7")
        for name in ("input", "cache_read")
    ]
    store.insert(derived.LEDGER, [derived.ledger_row(line, 0, n) for n, line in enumerate(lines)], "t")
    (stands,) = store.query("SELECT bucket, record_hash, conflicts FROM ledger_current")
    assert stands == {"bucket": "input", "record_hash": "A", "conflicts": 1}
    aside = store.query("SELECT bucket, amount, stands_amount FROM ledger_set_aside ORDER BY bucket")
    assert [tuple(row.values()) for row in aside] == [
        ("cache_read", Decimal(7), None),
        ("input", Decimal(7), Decimal("0.00001")),
    ]


def test_unmeasured_is_not_zero(store):
    """A bucket that nobody measured has no quantity and is counted beside the sum."""
    store.insert(derived.LEDGER, blocks()[derived.LEDGER], "t")
    (none,) = store.query("SELECT quantity, unmeasured_lines FROM usage_by_bucket WHERE bucket = 'none'")
    assert none == {"quantity": None, "unmeasured_lines": 1}


def test_text_in_sql_is_the_text_that_was_streamed(store):
    """The text parts of the log, joined in seq order, are what a client that joined its deltas has."""
    store.insert(rows.EVENTS, blocks()[rows.EVENTS], "t")
    (row,) = store.query(
        "SELECT arrayStringConcat(arrayMap(p -> p.2, arraySort(groupArray((seq, text))))) AS text "
        "FROM events_final WHERE generation_id = {id:UUID} AND seq IS NOT NULL",
        {"id": ENDED},
    )
    assert row["text"] == "Hello"


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
def test_every_ready_question_can_be_asked(store, filled):
    """`tokentrail sql --list` promises nothing that an empty or a filled warehouse would refuse."""
    if filled:
        for table, block in blocks().items():
            store.insert(table, block, table.name)
    refused = {}
    for name, question in QUESTIONS.items():
        try:
            store.query(question.sql)
        except SqlError as error:
            refused[name] = str(error)
    assert refused == {}


def test_tables_have_the_columns_that_rows_have(store):
    """The DDL's columns are the columns that the pure functions make, in name and in number."""
    for table in TABLES:
        found = store.query(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {t:String}",
            {"t": table.name},
        )
        assert {row["name"] for row in found} == set(table.columns)


def test_every_column_of_every_table_has_a_comment(store):
    """Whoever looks into the database finds what each column means."""
    bare = store.query(
        "SELECT c.table, c.name FROM system.columns AS c JOIN system.tables AS t "
        "ON t.database = c.database AND t.name = c.table "
        "WHERE c.database = currentDatabase() AND t.engine LIKE '%MergeTree' AND c.comment = ''"
    )
    assert bare == []


def test_no_table_has_an_enum(store):
    """A word that is new in the log must never poison an insert."""
    assert (
        store.query(
            "SELECT table, name FROM system.columns WHERE database = currentDatabase() AND type LIKE '%Enum%'"
        )
        == []
    )


def test_migrations_are_applied_once(store):
    """A second start finds everything in place and does nothing."""
    assert migrate.apply(store) == []
    names = [row["name"] for row in store.query("SELECT name FROM schema_migrations FINAL ORDER BY number")]
    assert names == [migration.name for migration in migrate.shipped()]


def test_a_migration_that_broke_off_is_done_again(migrated):
    """Every statement may run twice: a crash before the entry in the book leads to the same database."""
    migrated.command("TRUNCATE TABLE schema_migrations")
    assert migrate.apply(migrated) == [migration.name for migration in migrate.shipped()]


def test_an_edited_migration_is_refused(store):
    """What was applied here cannot be changed by an edit: the file's hash is compared before anything runs."""
    first, *others = migrate.shipped()
    edited = [first._replace(text=first.text + "\n-- edited\n"), *others]
    with pytest.raises(migrate.MigrationError, match=first.name):
        migrate.apply(store, migrations=edited)


def test_a_row_of_long_ago_is_partitioned_by_its_own_start(store):
    """All copies of a row meet in the partition of the time in its id, whenever they are inserted."""
    old = generation_id(9, T0_US - 40 * 86_400_000_000)
    store.insert(derived.GENERATIONS, [derived.generation_row(generation(old), 0, 0)], "a")
    store.insert(derived.GENERATIONS, [derived.generation_row(generation(old, 9), 0, 1)], "b")
    store.merge(derived.GENERATIONS)
    (parts,) = store.query(
        "SELECT uniqExact(partition) AS partitions FROM system.parts "
        "WHERE database = currentDatabase() AND table = 'generations' AND active"
    )
    assert parts == {"partitions": 1}
