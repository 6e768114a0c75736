"""What each record becomes in its table."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from schemas import topics
from schemas.errors import Poison, SchemaUnknown
from schemas.events import Canonical, Gap, Heartbeat, Kind, PartType, Usage
from schemas.ids import uuid7
from schemas.parts import SLICE_BYTES, cut
from sinks import derived, rows
from sinks.intake import TABLES, EventIntake, intake_of
from tests.support.records import (
    CODEC,
    T0_US,
    Raw,
    attempt,
    delta,
    event,
    generation,
    generation_id,
    ledger,
    raw_of,
    start,
)

GID = generation_id(1)


def shown(table, row):
    """A row by column name."""
    assert len(row) == len(table.columns)
    return dict(zip(table.columns, row, strict=True))


def test_an_event_row_keeps_the_record_and_its_place():
    """The row of a delta has the exact raw data, the joined text, the canonical JSON and Kafka's own position."""
    parts = [
        Canonical(type=PartType.TEXT, text="Hel"),
        Canonical(type=PartType.REASONING, text="hm"),
        Canonical(type=PartType.TEXT, text="lo", choice_index=1),
    ]
    row = shown(rows.EVENTS, rows.event_row(event(GID, seq=3, raw='{"a":1}', canonical=parts), 4, 99))
    assert (row["partition"], row["offset"], row["seq"], row["after_seq"]) == (4, 99, 3, None)
    assert (row["raw"], row["text"]) == ('{"a":1}', "Hello")
    assert msgspec.json.decode(row["canonical"], type=list[Canonical]) == parts
    assert (row["elapsed_ms"], row["payload"], row["parts"]) == (1.5, "", 1)


def test_start_is_the_time_in_the_id():
    """``start`` comes from the UUIDv7 alone, so that every row of a generation falls into one partition."""
    late = event(GID, wall_us=T0_US + 86_400_000_000)
    assert shown(rows.EVENTS, rows.event_row(late, 0, 0))["start"] == T0_US // 1000 * 1000


def test_a_payload_holds_what_the_kind_has_of_its_own():
    """A trace record's sub-record stands in ``payload`` under its name."""
    beat = event(GID, Kind.HEARTBEAT, None, after_seq=2, heartbeat=Heartbeat(elapsed_ms=15_000))
    row = shown(rows.EVENTS, rows.event_row(beat, 0, 0))
    assert msgspec.json.decode(row["payload"]) == {"heartbeat": {"elapsed_ms": 15_000}}
    assert (row["seq"], row["after_seq"], row["raw"]) == (None, 2, None)


@pytest.mark.parametrize("bad", ["", "g1", "0199d1f0-0000-4000-8000-000000000000", uuid7(1 << 47, 0)])
def test_an_id_without_a_usable_time_is_poison(bad):
    """A row without a start could not be put into a partition of the table."""
    with pytest.raises(Poison, match="generation_id"):
        rows.start_us(bad)


def test_an_attempt_row_shows_milliseconds_and_usage():
    """Durations are exact milliseconds, buckets stand beside one another, null is not zero."""
    gap = Gap(content_index=0, start_us=1, length_us=2_000_001)
    row = shown(derived.ATTEMPTS, derived.attempt_row(attempt(GID, gaps=[gap]), 1, 2))
    assert (row["first_content_ms"], row["last_content_ms"], row["elapsed_ms"]) == (120.001, None, 900.0)
    assert (row["usage_input"], row["usage_cache_read"], row["usage_source"]) == (10, None, "reported")
    assert row["gaps"] == [(0, 0.001, 2000.001, None, None, "decode", "content")]
    assert (row["outcome"], row["dispatch"], row["committed"]) == ("ok", "accepted", True)


def test_an_attempt_without_usage_is_unmeasured():
    """Where the provider reported nothing, every bucket is null and the source says none."""
    row = shown(derived.ATTEMPTS, derived.attempt_row(attempt(GID, usage=None), 0, 0))
    assert {name: row[name] for name in row if name.startswith("usage_")} == {
        **dict.fromkeys((n for n in row if n.startswith("usage_")), None),
        "usage_source": "none",
        "usage_flags": [],
    }


def test_a_generation_row_carries_its_stalls_and_timings():
    """Timings are columns, stalls one array of named tuples."""
    row = shown(derived.GENERATIONS, derived.generation_row(generation(GID), 0, 0))
    assert (row["ttft_ms"], row["stall_ms"], row["stall_count"], row["tpot_ms"]) == (120.001, 2500.5, 1, None)
    assert row["stalls"] == [(0, 2, 1, 200.0, 2500.5, None, "decode", "content", True)]
    assert row["attempts"] == [(0, "simulator", "gpt-x", None, None, None, True, None, None, None)]
    assert (row["latency_queue_ms"], row["cancel_mode"]) == (None, None)


def test_money_is_exact():
    """An amount keeps every digit that a ledger line says, and null stays null."""
    row = shown(
        derived.LEDGER,
        derived.ledger_row(ledger(GID, amount="99999999999999999999.999999999999999999"), 0, 5),
    )
    assert row["amount"] == Decimal("99999999999999999999.999999999999999999")
    assert shown(derived.LEDGER, derived.ledger_row(ledger(GID, amount=None), 0, 5))["amount"] is None


@pytest.mark.parametrize("bad", ["1e-19", "NaN", "Infinity", "100000000000000000000", "1,5", ""])
def test_money_that_a_column_cannot_hold_is_poison(bad):
    """Nothing is rounded or cut on its way into the ledger."""
    with pytest.raises(Poison, match="amount"):
        derived.ledger_row(ledger(GID, amount=bad), 0, 5)


def test_of_equal_ledger_lines_the_first_in_log_order_stands():
    """An equal repeat at a later offset has a lower version, so it never moves the line behind a conflicting one."""
    first = shown(derived.LEDGER, derived.ledger_row(ledger(GID), 0, 5))
    again = shown(derived.LEDGER, derived.ledger_row(ledger(GID), 0, 9))
    assert first["precedence"] > again["precedence"]


def letter(**changes) -> Raw:
    headers = {
        "topic": b"tokentrail.events.v1",
        "partition": b"3",
        "offset": b"77",
        "stage": b"fold",
        "reason": b"undecodable",
        "detail": b"no header",
        "failed_us": b"123",
    }
    headers |= changes
    return Raw(topics.DEAD_LETTERS.name, 1, 8, b"key", b"\xff", headers=list(headers.items()))


def test_a_dead_letter_row_says_where_the_record_lay():
    """The key of a dead letter is the place of the record in its own topic; the bytes are kept as they are."""
    row = shown(rows.DEAD_LETTERS, rows.dead_letter_row(letter()))
    assert (row["topic"], row["partition"], row["offset"]) == ("tokentrail.events.v1", 3, 77)
    assert (row["value"], row["failed"], row["letter_offset"]) == (b"\xff", 123, 8)


@pytest.mark.parametrize("broken", [{"offset": b"x"}, {"partition": b"\xff"}, {"offset": b"9" * 30}])
def test_a_dead_letter_is_never_poison_itself(broken):
    """With headers that say nothing usable, the letter's own place is its key."""
    row = shown(rows.DEAD_LETTERS, rows.dead_letter_row(letter(**broken)))
    assert (row["topic"], row["partition"], row["offset"]) == (topics.DEAD_LETTERS.name, 1, 8)


def test_every_table_has_an_intake():
    """Each table's records, as their producers encode them, become one row with its place in front."""
    values = {
        "events": start(GID),
        "attempts": attempt(GID),
        "generations": generation(GID),
        "ledger": ledger(GID),
    }
    for table in TABLES:
        record = (
            letter() if table is rows.DEAD_LETTERS else raw_of(table.topic.name, 2, 5, values[table.name])
        )
        assert len(intake_of(table, CODEC).row(record) or ()) == len(table.columns)


@pytest.mark.parametrize("table", [t for t in TABLES if t is not rows.DEAD_LETTERS], ids=lambda t: t.name)
def test_what_can_never_be_read_is_poison(table):
    """Tombstones, foreign bytes and records of another type are told as such; an unknown schema is not."""
    intake = intake_of(table, CODEC)
    other = CODEC.encode(attempt(GID) if table.name != "attempts" else ledger(GID))
    for value in (None, b"", b"{}", b"\xc3\x01", other):
        with pytest.raises(Poison):
            intake.row(Raw("t", 0, 0, GID.encode(), value))
    with pytest.raises(SchemaUnknown):
        intake.row(Raw("t", 0, 0, GID.encode(), b"\xc3\x01" + b"\x07" * 9))


def test_a_record_under_a_foreign_key_is_poison():
    """The key is what partitions, compacts and finds: a record under another one is not believed."""
    with pytest.raises(Poison, match="key_mismatch"):
        EventIntake(CODEC).row(raw_of("t", 0, 0, start(GID), key=b"other"))


BIG = delta(GID, 1, "x" * (2 * SLICE_BYTES))


def parts_of(big, first_offset=10, gid=GID):
    return [Raw("t", 0, first_offset + i, gid.encode(), v) for i, v in enumerate(cut(CODEC, big))]


def test_parts_become_one_row_at_the_last_offset():
    """A record in parts is one row: whole, at the offset of its last part; until then its first part is the floor."""
    intake = EventIntake(CODEC)
    records = parts_of(BIG)
    assert len(records) > 2
    for record in records[:-1]:
        assert intake.row(record) is None
        assert intake.floor(0) == 10
        assert intake.floor(1) is None
    row = shown(rows.EVENTS, intake.row(records[-1]))
    assert (row["offset"], row["parts"], row["text"]) == (
        records[-1].offset,
        len(records),
        "x" * (2 * SLICE_BYTES),
    )
    assert intake.floor(0) is None


def test_trace_records_may_stand_between_parts():
    """A heartbeat between two parts is a row of its own and does not break the record."""
    intake = EventIntake(CODEC)
    records = parts_of(BIG)
    intake.row(records[0])
    assert intake.row(raw_of("t", 0, 11, event(GID, Kind.HEARTBEAT, None, after_seq=0))) is not None
    assert [intake.row(r) is None for r in records[1:]] == [True] * (len(records) - 2) + [False]


def test_parts_that_never_become_whole_do_not_hold_the_commit_for_ever():
    """A numbered record behind them, or the log's time, ends the wait for parts of an edge that died."""
    intake = EventIntake(CODEC)
    intake.row(parts_of(BIG)[0])
    assert intake.row(raw_of("t", 0, 50, event(GID, Kind.ERROR, 2))) is not None
    assert intake.floor(0) is None
    intake.row(parts_of(BIG)[0])
    other = generation_id(2)
    assert (
        intake.row(raw_of("t", 0, 60, delta(other, 0, "a"), timestamp=T0_US // 1000 + 1_000_000)) is not None
    )
    assert intake.floor(0) is None
    assert intake.given_up == 2


def test_a_usage_column_for_every_bucket():
    """A bucket that is added to Usage needs its columns here: none may vanish on the way to SQL."""
    buckets = set(msgspec.structs.asdict(Usage())) - {"source", "flags", "raw"}
    for table in (derived.ATTEMPTS, derived.GENERATIONS):
        assert {f"usage_{bucket}" for bucket in buckets} <= set(table.columns)
