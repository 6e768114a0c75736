"""The short way to a row gives the row of the long way, or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Poison, SchemaUnknown
from schemas.events import Canonical, ErrorEnd, Heartbeat, Kind, LogEvent, PartType, Usage
from sinks import express, rows
from sinks.express import Express
from sinks.intake import EventIntake
from tests.support.records import CODEC, Raw, delta, event, generation_id, raw_of, start

GIDS = [generation_id(n) for n in range(2)]


def long_way(record):
    """The row by full decoding, with nothing remembered."""
    return EventIntake(CODEC).row(record)


canonicals = st.builds(
    Canonical,
    type=st.sampled_from([PartType.TEXT, PartType.TEXT, PartType.REASONING, PartType.FINISH]),
    text=st.text(max_size=5) | st.just('héllo "\\\n\u2028🙂'),
    choice_index=st.integers(0, 1),
    tokens_estimate=st.none() | st.integers(0, 3),
    finish_reason=st.none() | st.just("stop"),
)
events = st.builds(
    LogEvent,
    generation_id=st.sampled_from(GIDS),
    tenant=st.just("acme"),
    key_id=st.just("key-1"),
    dialect=st.just("openai.chat"),
    kind=st.sampled_from(
        [Kind.DELTA, Kind.DELTA, Kind.FRAME, Kind.MESSAGE_END, Kind.HEARTBEAT, Kind.UNKNOWN]
    ),
    wall_us=st.integers(0, 2**53),
    edge_id=st.sampled_from(["edge-1", "edge-22"]),
    seq=st.none() | st.integers(0, 300),
    after_seq=st.none() | st.just(3),
    attempt=st.integers(0, 2),
    elapsed_us=st.none() | st.integers(0, 10**10),
    paused_us=st.integers(0, 5),
    raw_event=st.none() | st.just("message"),
    raw=st.none() | st.text(max_size=200),
    canonical=st.lists(canonicals, max_size=2),
    usage=st.none() | st.just(Usage(input=1)),
    heartbeat=st.none() | st.just(Heartbeat()),
    error=st.none() | st.just(ErrorEnd(code="x", message="y")),
)


@given(st.lists(events, max_size=12))
def test_the_short_way_is_the_long_way(history):
    """Whatever was read before, each record's row is the one that full decoding gives."""
    intake = EventIntake(CODEC)
    for offset, value in enumerate(history):
        record = raw_of("t", 1, offset, value)
        assert intake.row(record) == long_way(record)


@given(st.lists(events, min_size=1, max_size=4), st.data())
def test_damaged_bytes_are_never_believed(history, data):
    """A record with bytes changed, cut or added gives the long way's row, or none: damage is judged there alone."""
    short = Express(CODEC)
    for offset, value in enumerate(history * 2):
        record = raw_of("t", 1, offset, value)
        if short.row(record) is None:
            short.learn(record, long_way(record))
    record = raw_of("t", 1, 9, data.draw(st.sampled_from(history)))
    broken = bytearray(record.value)
    for _ in range(data.draw(st.integers(0, 3))):
        broken[data.draw(st.integers(10, len(broken) - 1))] = data.draw(st.integers(0, 255))
    cut_at = data.draw(st.integers(10, len(broken)))
    changed = bytes(broken[:cut_at]) + data.draw(st.binary(max_size=3))
    damaged = Raw("t", 1, 9, record.key, changed)
    row = short.row(damaged)
    if row is not None:
        assert row == long_way(damaged)


@pytest.mark.parametrize("type_", [PartType.TEXT, PartType.REASONING, PartType.TOOL_CALL])
@pytest.mark.parametrize("raw_event", [None, "content_block_delta"])
def test_a_stream_of_deltas_takes_the_short_way(type_, raw_event):
    """From the third delta on nothing is decoded in full, whichever generation's turn it is, whatever the dialect says."""

    def record_of(gid, seq):
        said = Canonical(type=type_, text=f"tök{seq}", block_index=1)
        return raw_of(
            "t", 0, seq, event(gid, Kind.DELTA, seq, canonical=[said], raw="{}", raw_event=raw_event)
        )

    short = Express(CODEC)
    for seq, gid in enumerate((GIDS[0], GIDS[0], GIDS[1])):
        record = record_of(gid, seq)
        assert short.row(record) is None
        short.learn(record, long_way(record))
    for seq in range(3, 300):
        record = record_of(GIDS[seq % 2], seq)
        assert short.row(record) == long_way(record)


@pytest.mark.parametrize(
    "parts",
    [
        [Canonical(type=PartType.TEXT, text="a"), Canonical(type=PartType.TEXT, text="b")],
        [Canonical(type=PartType.FINISH, finish_reason="stop")],
        [Canonical(type=PartType.UNKNOWN, text="x")],
        [Canonical(type=PartType.TEXT)],
        [],
    ],
)
def test_what_is_said_again_is_the_same_row(parts):
    """Records without one text part of their own are known by the whole of what they say, or not at all."""
    intake = EventIntake(CODEC)
    for seq in range(4):
        record = raw_of("t", 0, seq, event(GIDS[0], Kind.FRAME, seq, canonical=parts))
        assert intake.row(record) == long_way(record)
        other = raw_of("t", 0, seq, event(GIDS[0], Kind.DELTA, seq, canonical=[*parts[:1], *parts[:1]]))
        assert intake.row(other) == long_way(other)


def test_an_empty_text_written_at_length_is_not_believed():
    """A length of nothing in two bytes is read as the long way reads it: as no text, of which its JSON says nothing."""
    intake = EventIntake(CODEC)
    for seq in range(3):
        intake.row(raw_of("t", 0, seq, delta(GIDS[0], seq, "a")))
    empty = raw_of("t", 0, 3, delta(GIDS[0], 3, ""))
    at = empty.value.rindex(b"\x02\x02\x00") + 2
    at_length = Raw("t", 0, 3, empty.key, empty.value[:at] + b"\x80" + empty.value[at:])
    assert intake.row(at_length) == long_way(at_length) == long_way(empty)


def test_a_record_under_a_foreign_key_is_not_known():
    """The front of a record is remembered under its key: the same bytes under another one go the long way."""
    intake = EventIntake(CODEC)
    intake.row(raw_of("t", 0, 0, delta(GIDS[0], 1, "a")))
    intake.row(raw_of("t", 0, 1, delta(GIDS[1], 1, "a")))
    with pytest.raises(Poison, match="key_mismatch"):
        intake.row(raw_of("t", 0, 2, delta(GIDS[0], 2, "b"), key=GIDS[1].encode()))


def test_a_foreign_schema_is_not_known():
    """Bytes under another fingerprint are of another layout, however they look."""
    intake = EventIntake(CODEC)
    record = raw_of("t", 0, 0, delta(GIDS[0], 1, "a"))
    intake.row(record)
    with pytest.raises(SchemaUnknown):
        intake.row(Raw("t", 0, 1, record.key, record.value[:2] + b"\x07" * 8 + record.value[10:]))


def test_what_is_remembered_is_bounded(monkeypatch):
    """With more generations than are remembered, rows stay right."""
    monkeypatch.setattr(express, "HEADS_MAX", 2)
    monkeypatch.setattr(express, "ENDS_MAX", 1)
    intake = EventIntake(CODEC)
    for number in range(6):
        for value in (start(generation_id(number)), delta(generation_id(number), 1, "a", attempt=number)):
            record = raw_of("t", 0, number, value)
            assert intake.row(record) == long_way(record)


def test_another_contract_is_refused_at_the_start(monkeypatch):
    """When LogEvent's fields move, no process starts that would read them at their old places."""
    monkeypatch.setattr(express, "READ_HERE", ("tenant", *express.READ_HERE[1:]))
    with pytest.raises(ValueError, match="bring both together"):
        Express(CODEC)


def test_it_writes_the_columns_of_the_table():
    """The short way names no column itself: its row has as many values as the table has columns."""
    intake = EventIntake(CODEC)
    *before, last = (raw_of("t", 0, seq, delta(GIDS[0], seq, "a")) for seq in (1, 2, 3))
    for record in before:
        intake.row(record)
    assert len(intake._express.row(last)) == len(rows.EVENTS.columns)
    assert intake.row(raw_of("t", 0, 3, event(GIDS[0], Kind.HEARTBEAT, None, after_seq=2))) is not None
