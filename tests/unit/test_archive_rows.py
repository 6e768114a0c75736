"""A row of ``events`` holds its whole record: what the archive gives is what the log gave."""

import msgspec
import pytest

from edge.archive import Found, event_of
from edge.dialects.native import native_frame
from schemas.events import Kind, LogEvent
from sinks.rows import EVENTS, event_row
from tests.support.archive import READ
from tests.support.golden import examples, value_of

RECORDS = {name: value_of(e) for name, e in examples().items() if e["record"] == "LogEvent"}


def through_a_row(event):
    """Give the record that the archive makes of the row that a sink makes of it."""
    row = dict(zip(EVENTS.columns, event_row(event, 17, 88231), strict=True))
    found = Found(
        event.generation_id, event.tenant, "", "", 17, 0, 0, 0, ended=True, erased=False, readable=True
    )
    return event_of(found, tuple(row[name] for name in READ))


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_comes_back_whole(name):
    """Each golden example, field for field, its frame in the native dialect, and where it lay."""
    event = RECORDS[name]
    back = through_a_row(event)
    whole = msgspec.structs.replace(event, part=None, parts=None, slice=None)
    assert back.event == whole
    assert native_frame(back.event) == native_frame(whole)
    assert (back.partition, back.offset) == (17, 88231)


def test_every_field_of_the_record_is_looked_after():
    """A field that is new in the record is either in a row or known not to be."""
    event = RECORDS["delta-text-openai"]
    given = {"part", "parts", "slice"} | set(LogEvent.__struct_fields__) & set(READ)
    given |= {
        "generation_id",
        "tenant",
        "wall_us",
        "elapsed_us",
        "paused_us",
        "message_start",
        "message_end",
        "error",
    }
    given |= {"usage", "heartbeat", "attempt_start", "attempt_end", "cancel", "tool_status", "client"}
    assert set(type(event).__struct_fields__) == given


@pytest.mark.parametrize("column", ["canonical", "payload"])
def test_what_cannot_be_read_is_left_out(column):
    """A row of a later version, or a broken one, is no record: the reader's rule notices the missing seq."""
    event = RECORDS["delta-text-openai"]
    row = dict(zip(EVENTS.columns, event_row(event, 0, 0), strict=True))
    found = Found("g", "t", "", "", 0, 0, 0, 0, ended=True, erased=False, readable=True)
    assert event_of(found, tuple((row | {column: '{"'})[name] for name in READ)) is None
    later = event_of(found, tuple((row | {"kind": "of-a-later-version"})[name] for name in READ))
    assert later.event.kind is Kind.UNKNOWN
