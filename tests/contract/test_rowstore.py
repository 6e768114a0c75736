"""What a sink assumes of a row store, asked of the fake and of the real one."""

from __future__ import annotations

import gc
import time
import weakref
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone

import pytest

from schemas.events import Usage, UsageSource
from schemas.kinds import Kind
from sinks import derived, rows
from sinks.clickhouse import ClickHouseStore
from sinks.memory import MemoryStore
from sinks.store import Erasure, Refused, SqlError, Unavailable
from tests.support.records import Raw, attempt, delta, event, generation, generation_id, ledger
from tests.support.warehouse import empty_database, fresh_database

NOW_US = time.time_ns() // 1000
"""Tables have a time to live, so the rows of these tests are of today."""
GID = generation_id(1, NOW_US)
TEXT = rows.EVENTS.columns.index("text")


@pytest.fixture(params=["memory", pytest.param("clickhouse", marks=pytest.mark.services)])
def store(request):
    """An empty store."""
    if request.param == "memory":
        yield MemoryStore(accepts=lambda row: all(not isinstance(v, int) or abs(v) < 1 << 63 for v in row))
        return
    with empty_database(request.getfixturevalue("clickhouse")) as real:
        yield real


@pytest.fixture
def real_store(clickhouse):
    with empty_database(clickhouse) as real:
        yield real


def event_row(seq, text="x", offset=None, partition=0, gid=GID):
    return rows.event_row(delta(gid, seq, text), partition, seq if offset is None else offset)


@contextmanager
def host_in(zone):
    """The C library's zone, for as long as the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()


def samples():
    """A row or two of every table, with nulls, arrays, bytes, and money at its limits."""
    letter = Raw("d", 1, 2, b"\x00k", b"\xc3\x01\xff\xfe", timestamp=NOW_US // 1000)
    return {
        rows.EVENTS: [event_row(0, "héllo\n\x00"), rows.event_row(event(GID, Kind.HEARTBEAT, None), 3, 9)],
        derived.ATTEMPTS: [
            derived.attempt_row(attempt(GID), 0, 0),
            derived.attempt_row(attempt(GID, 1, usage=None), 0, 1),
        ],
        derived.GENERATIONS: [derived.generation_row(generation(GID), 0, 0)],
        derived.LEDGER: [
            derived.ledger_row(ledger(GID, amount="99999999999999999999.999999999999999999"), 0, 0),
            derived.ledger_row(ledger(GID, "input", amount=None, unit_price=None, quantity=None), 0, 1),
            derived.ledger_row(ledger(GID, "cache_read", amount="-0.000000000000000001", quantity=0), 0, 2),
        ],
        rows.DEAD_LETTERS: [rows.dead_letter_row(letter)],
    }


@pytest.mark.parametrize("table", list(samples()), ids=lambda table: table.name)
def test_a_row_comes_back_as_it_went_in(store, table):
    """Every column of every table keeps its value exactly: text, bytes, null, arrays, times, decimals."""
    inserted = samples()[table]
    store.insert(table, inserted, "t")
    assert store.final(table) == sorted(
        inserted, key=lambda row: [row[table.columns.index(n)] for n in table.key]
    )


def test_nothing_comes_of_nothing(store):
    """An empty block is no error, and an empty table has no rows."""
    store.insert(rows.EVENTS, [], "t")
    assert store.final(rows.EVENTS) == []


def test_the_same_block_under_its_token_is_stored_once(store):
    """A repeat of an insert whose answer was lost adds nothing, also before any merge."""
    for _ in range(3):
        store.insert(rows.EVENTS, [event_row(0), event_row(1)], "t:0:0-1")
    assert len(store.final(rows.EVENTS)) == 2


def test_equal_blocks_under_other_tokens_are_both_stored(store):
    """A token alone tells blocks apart: an equal block under another one is not dropped by its bytes."""
    first, second = event_row(0, "a"), event_row(0, "b")
    store.insert(rows.EVENTS, [first], "one")
    store.insert(rows.EVENTS, [second], "two")
    store.insert(rows.EVENTS, [first], "three")
    assert [row[TEXT] for row in store.final(rows.EVENTS)] == ["a"]


def test_an_insert_holds_nothing_of_its_rows(real_store):
    """What was stored is free at once, without the collector: a backlog of batches that wait for it is a process's death."""

    class Text(str):  # a plain one cannot be watched
        __slots__ = ("__weakref__",)

    text = Text("x")
    *before, _, canonical, payload, parts = event_row(0)
    seen = weakref.ref(text)
    gc.disable()
    try:
        real_store.insert(rows.EVENTS, [(*before, text, canonical, payload, parts)], "t")
        del text
        assert seen() is None
    finally:
        gc.enable()
    assert [row[TEXT] for row in real_store.final(rows.EVENTS)] == ["x"]


def test_rows_with_one_key_are_one_row(store):
    """Blocks that overlap after a crash count each row once, before and after a merge."""
    store.insert(rows.EVENTS, [event_row(s) for s in (0, 1, 2)], "a")
    store.insert(rows.EVENTS, [event_row(s) for s in (1, 2, 3)], "b")
    before = store.final(rows.EVENTS)
    assert [row[1] for row in before] == [0, 1, 2, 3]
    store.merge(rows.EVENTS)
    assert store.final(rows.EVENTS) == before


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_the_higher_revision_stands(store, order):
    """Whichever of two revisions was inserted last, before and after a merge the higher one is the row."""
    for revision in order:
        row = derived.generation_row(generation(GID, revision, events=revision * 10), 0, revision)
        store.insert(derived.GENERATIONS, [row], f"r{revision}")
    events_at = derived.GENERATIONS.columns.index("events")
    assert [row[events_at] for row in store.final(derived.GENERATIONS)] == [20]
    store.merge(derived.GENERATIONS)
    assert [row[events_at] for row in store.final(derived.GENERATIONS)] == [20]


@pytest.mark.parametrize("order", [(5, 9), (9, 5)])
def test_of_equal_ledger_lines_the_first_in_log_order_stands(store, order):
    """An equal line that was written again later in the log does not take the place of the first."""
    for offset in order:
        store.insert(derived.LEDGER, [derived.ledger_row(ledger(GID), 0, offset)], f"o{offset}")
    assert [row[1] for row in store.final(derived.LEDGER)] == [5]


def test_conflicting_ledger_lines_are_both_kept(store):
    """The same revision with other content is another row: nothing is replaced unseen."""
    one = derived.ledger_row(ledger(GID, content_hash="a"), 0, 0)
    other = derived.ledger_row(ledger(GID, content_hash="b", amount="7"), 0, 1)
    store.insert(derived.LEDGER, [one, other], "t")
    assert len(store.final(derived.LEDGER)) == 2


def test_a_block_with_a_row_that_does_not_fit_is_refused_whole(store):
    """Of a block with one impossible value nothing is stored, and its token is still free."""
    bad = (1 << 70, *event_row(1)[1:])
    with pytest.raises(Refused):
        store.insert(rows.EVENTS, [event_row(0), bad], "t")
    assert store.final(rows.EVENTS) == []
    store.insert(rows.EVENTS, [event_row(0)], "t")
    assert len(store.final(rows.EVENTS)) == 1


def test_rows_of_many_days_are_one_block(real_store):
    """A backlog over more partitions than a server takes by default is inserted like any other block."""
    days = [NOW_US - day * 86_400_000_000 for day in range(120 * 30, 0, -30)]
    lines = [derived.ledger_row(ledger(generation_id(n, us)), 0, n) for n, us in enumerate(days)]
    real_store.insert(derived.LEDGER, lines, "t")
    assert len(real_store.final(derived.LEDGER)) == len(days)


def test_a_missing_table_is_waited_for(clickhouse):
    """An insert into a database without tables loses nothing: it may be given again when an operator made them."""
    with fresh_database(clickhouse, migrated=False) as bare, pytest.raises(Unavailable):
        bare.insert(rows.EVENTS, [event_row(0)], "t")


def test_a_server_that_is_away_is_unavailable():
    """Nobody answering is Unavailable, for a new store as for its statements."""
    with pytest.raises(Unavailable):
        ClickHouseStore("http://127.0.0.1:9")


def test_a_wrong_statement_says_so(real_store):
    """SQL that the server does not understand is an error of its own, with the server's words."""
    with pytest.raises(SqlError, match="nowhere"):
        real_store.query("SELECT * FROM nowhere")


@pytest.mark.services
def test_a_question_changes_nothing(real_store):
    """A statement that would change something is no question: it is refused in a short sentence, and nothing happened."""
    for statement in (
        "DROP TABLE events",
        "TRUNCATE TABLE events",
        "INSERT INTO slo_targets SELECT 'x', '', 1, 1",
    ):
        with pytest.raises(SqlError, match=r"readonly mode") as refused:
            real_store.query(statement)
        assert "http" not in str(refused.value)
    assert real_store.query("SELECT count() AS n FROM events") == [{"n": 0}]
    assert real_store.query("SELECT count() AS n FROM slo_targets") == [{"n": 0}]


def test_parameters_are_bound_not_pasted(real_store):
    """A value in ``params`` is a value, whatever stands in it, and times are aware UTC."""
    (row,) = real_store.query(
        "SELECT {text:String} AS text, toDateTime64(0, 6, 'UTC') AS at", {"text": "'; DROP TABLE events --"}
    )
    assert row["text"] == "'; DROP TABLE events --"
    assert row["at"].isoformat() == "1970-01-01T00:00:00+00:00"


def test_erasing_takes_the_text_and_leaves_the_mark(store):
    """Of a forgotten generation only its mark stays, and no dead letter of it; others stay; again is the same."""
    other = generation_id(2, NOW_US)
    mark = rows.event_row(event(GID, Kind.FORGOTTEN, None, after_seq=1), 0, 9)
    letters = [rows.dead_letter_row(Raw("d", 0, i, key.encode(), b"x")) for i, key in enumerate((GID, other))]
    foreign = rows.event_row(event(GID, tenant="o'ther"), 1, 0)
    store.insert(rows.EVENTS, [event_row(0), event_row(1), mark, event_row(0, gid=other), foreign], "a")
    store.insert(rows.DEAD_LETTERS, letters, "b")
    for _ in range(2):
        store.erase(Erasure(generations=[("acme", GID), ("o'ther", other)]))
    left = {(row[2], row[3], row[7]) for row in store.final(rows.EVENTS)}
    assert left == {("acme", GID, "forgotten"), ("acme", other, "delta"), ("o'ther", GID, "delta")}
    store.insert(rows.DEAD_LETTERS, letters, "c")
    store.erase(Erasure(suspects=[GID, other]))
    assert [row[7] for row in store.final(rows.DEAD_LETTERS)] == [other.encode()]


def test_an_instant_is_the_same_on_a_host_in_any_zone(real_store):
    """Written in Shanghai, an instant in an hour that comes twice somewhere is found by it, in whatever zone it is asked."""
    at = datetime(2025, 10, 26, 0, 30, 0, 589_000, tzinfo=UTC)  # the second 2:30 in Budapest is an hour later
    wall_us = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    with host_in("Asia/Shanghai"):
        row = derived.attempt_row(attempt(generation_id(1, wall_us), started_us=wall_us), 0, 0)
        real_store.insert(derived.ATTEMPTS, [row], "t")
        for asked in (at, at.astimezone(timezone(timedelta(hours=8)))):
            (found,) = real_store.query(
                "SELECT started FROM attempts FINAL WHERE started = {at:DateTime64(6, 'UTC')}", {"at": asked}
            )
            assert found["started"] == at


def test_one_batch_four_times_and_again_in_another(real_store):
    """Ten rows whose answer was lost three times, then eight of them with five new ones: 15 rows and 150 tokens, merged or not."""
    usage = Usage(output=10, source=UsageSource.REPORTED)
    block = [
        derived.generation_row(generation(generation_id(n, NOW_US), usage=usage), 0, n) for n in range(15)
    ]
    counted = "SELECT count() AS rows, sum(usage_output) AS tokens FROM generations_final"
    daily = "SELECT sum(generations) AS rows, sum(output_tokens) AS tokens FROM latency_by_model"
    for _ in range(4):
        real_store.insert(derived.GENERATIONS, block[:10], "first")
        assert real_store.query(counted) == [{"rows": 10, "tokens": 100}]
    real_store.insert(derived.GENERATIONS, block[2:], "second")
    for _ in range(2):
        assert real_store.query(counted) == real_store.query(daily) == [{"rows": 15, "tokens": 150}]
        real_store.merge(derived.GENERATIONS)
