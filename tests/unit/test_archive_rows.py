"""A row of ``events`` holds its whole record: what the archive gives is what the log gave."""

import asyncio

import msgspec
import pytest

import edge.reading.archive
from edge.dialects.native import native_frame
from edge.reading.archive import Archive, ArchiveAway
from edge.reading.archive_rows import Found, event_of
from schemas.events import Kind, LogEvent
from schemas.settings import ClickHouse
from sinks.rows import EVENTS, event_row
from tests.support.archive import READ
from tests.support.edge import identity_of
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


async def test_an_archive_that_is_silent_is_not_waited_for_by_everyone(monkeypatch):
    """Who came first waits as long as an answer may take; who comes right behind is told at once, and later asks anew."""
    asked = []

    async def silent(reader, writer):
        asked.append(writer)
        await reader.read()
        writer.close()

    for name, value in (("CONNECT_S", 0.05), ("ANSWER_S", 0.2), ("SILENT_S", 0.3)):
        monkeypatch.setattr(edge.reading.archive, name, value)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        archive = Archive(ClickHouse(url=f"http://127.0.0.1:{port}"))
        loop, took_s, counts = asyncio.get_running_loop(), [], []
        for wait_s in (0, 0, 0.35):
            await asyncio.sleep(wait_s)
            began_s = loop.time()
            with pytest.raises(ArchiveAway):
                await archive.find("acme", identity_of(0).generation_id)
            took_s.append(loop.time() - began_s)
            counts.append(len(asked))
        assert took_s[0] >= 0.15
        assert took_s[1] < 0.05
        assert counts[0] == counts[1] < counts[2]
        await archive.close()
        for writer in asked:
            writer.close()
