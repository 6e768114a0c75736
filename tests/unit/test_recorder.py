"""The recorder: publish before emit, one number a record, and what a failed log or a lost lease does to the readers."""

import asyncio

import pytest

from edge.recorder import LEASE_LOST, LOG_UNAVAILABLE
from schemas.digest import ContentDigest
from schemas.events import Heartbeat, Kind
from schemas.parts import RECORD_BYTES_MAX
from tests.support.edge import HALF_ORPHAN_US, Writer, turns


async def test_nothing_is_visible_before_the_log_has_it():
    """An event enters the window when the log acknowledged it, in seq order, and never earlier."""
    writer = Writer()
    writer.log.hold()
    writer.start()
    writer.text("a")
    await turns()
    assert writer.window_seqs() == []
    assert [event.seq for event in writer.logged()] == [0, 1]
    writer.log.release()
    assert writer.window_seqs() == [0, 1]
    assert [d.offset for d in writer.generation.window] == [0, 1]


async def test_numbered_records_count_up_and_trace_records_stand_between():
    """Seqs are gapless; a trace record has none, says after which it came, and is never in the window."""
    writer = Writer()
    writer.recorder.trace(Kind.HEARTBEAT, heartbeat=Heartbeat())
    writer.start()
    writer.text("a")
    writer.recorder.trace(Kind.HEARTBEAT, heartbeat=Heartbeat())
    writer.end()
    await turns()
    assert [(e.seq, e.after_seq) for e in writer.logged()] == [
        (None, None),
        (0, None),
        (1, None),
        (None, 1),
        (2, None),
    ]
    assert writer.window_seqs() == [0, 1, 2]
    assert writer.generation.terminal.event.seq == 2
    assert writer.generation.ended.is_set()


async def test_every_record_says_whose_it_is_and_when():
    """Identity, edge and both clocks stand on each record: wall time is the start's plus the monotonic time since."""
    writer = Writer()
    writer.clock.us = 1_500
    event = writer.start()
    text = writer.text("a")
    identity = writer.identity
    for record in (event, text):
        assert (record.generation_id, record.tenant, record.key_id, record.edge_id) == (
            identity.generation_id,
            identity.tenant,
            identity.key_id,
            "edge-1",
        )
    assert text.elapsed_us == 1_500
    assert text.wall_us == writer.generation.accepted_wall_us + 1_500


async def test_the_digest_is_over_what_was_given_to_the_log():
    """The running hash is that of all content in seq order, so that the terminal can carry it."""
    writer, expected = Writer(), ContentDigest()
    writer.start()
    for fragment in ("Hel", "lo", ""):
        expected.update(writer.text(fragment).canonical)
    assert writer.end().message_end.output_hash == expected.output_hash()
    await turns()


async def test_a_record_above_the_limit_is_one_event_at_its_last_part():
    """A huge event is cut in the log and one in the window; its offset is the last part's."""
    writer = Writer()
    writer.start()
    writer.text("x" * (2 * RECORD_BYTES_MAX))
    await turns()
    assert [event.part for event in writer.logged()] == [None, 0, 1, 2, 3, 4]
    assert writer.window_seqs() == [0, 1]
    assert writer.generation.window[1].offset == len(writer.logged()) - 1


async def test_settled_waits_for_everything_so_far():
    """What was appended is acknowledged when ``settled`` returns True; in an outage it returns False in time."""
    writer = Writer()
    assert await writer.recorder.settled(1)
    writer.log.hold()
    writer.start()
    assert not await writer.recorder.settled(0.01)
    waiting = asyncio.ensure_future(writer.recorder.settled(5))
    await turns()
    assert not waiting.done()
    writer.log.release()
    assert await waiting


async def test_reading_may_go_on_below_the_bound():
    """``below`` waits while more bytes than the bound are unacknowledged, and no longer."""
    writer = Writer()
    writer.log.hold()
    writer.start()
    writer.text("x" * 1_000)
    size = writer.recorder.unacked_bytes
    assert size > 1_000
    await asyncio.wait_for(writer.recorder.below(size), 1)
    waiting = asyncio.ensure_future(writer.recorder.below(size - 1))
    await turns()
    assert not waiting.done()
    writer.log.release()
    await asyncio.wait_for(waiting, 1)
    assert writer.recorder.unacked_bytes == 0


async def test_tokens_count_as_delivered_once_the_log_has_them():
    """Delivered means acknowledged by the log."""
    writer = Writer()
    writer.start()
    writer.text("a")
    await turns()
    writer.log.hold()
    writer.text("b")
    await turns()
    assert writer.recorder.tokens_acked == 1
    writer.log.release()
    assert writer.recorder.tokens_acked == 2


async def test_a_refused_record_ends_emitting_for_good():
    """Behind a failed publish nothing is emitted from memory; the writer is told once, the rest goes on in the log."""
    writer = Writer()
    writer.start()
    writer.text("a")
    await turns()
    writer.log.fail_next()
    writer.text("lost")
    writer.text("behind it")
    await turns()
    assert writer.told == [LOG_UNAVAILABLE]
    assert writer.recorder.failed
    assert writer.generation.on_log
    assert not await writer.recorder.settled(1)
    writer.fail()
    await turns()
    assert writer.window_seqs() == [0, 1]
    assert [(event.seq, event.kind) for event in writer.logged()] == [
        (0, Kind.MESSAGE_START),
        (1, Kind.DELTA),
        (4, Kind.ERROR),
    ]


async def test_who_waits_is_released_by_a_failure():
    """Neither ``settled`` nor ``below`` outlives a log that refuses."""
    writer = Writer()
    writer.log.hold()
    writer.start()
    writer.log.fail_next()
    writer.text("lost")
    settled = asyncio.ensure_future(writer.recorder.settled(60))
    below = asyncio.ensure_future(writer.recorder.below(0))
    await turns()
    writer.log.release()
    assert not await asyncio.wait_for(settled, 5)
    await asyncio.wait_for(below, 5)


async def test_records_of_the_ending_are_waited_for_behind_a_failure():
    """What settles late does not make the count of waiting records wrong for what is appended afterwards."""
    writer = Writer()
    writer.start()
    await turns()
    writer.log.fail_next()
    writer.text("lost")
    await turns()
    writer.log.hold()
    writer.fail()
    await turns()
    assert writer.recorder.unacked_bytes > 0
    writer.log.release()
    assert writer.recorder.unacked_bytes == 0


@pytest.mark.parametrize("late_us", [1, HALF_ORPHAN_US * 10])
async def test_a_freeze_loses_the_lease_and_nothing_else(late_us):
    """An acknowledgement that came too late is not emitted from memory; the log goes on to be written."""
    writer = Writer()
    writer.start()
    await turns()
    writer.log.hold()
    writer.text("acknowledged too late")
    writer.clock.us += HALF_ORPHAN_US + late_us
    writer.log.release()
    assert writer.told == [LEASE_LOST]
    assert writer.window_seqs() == [0]
    assert writer.generation.on_log
    assert not writer.recorder.failed
    writer.text("quick again")
    await turns()
    assert writer.window_seqs() == [0]
    assert writer.told == [LEASE_LOST]
    assert [event.seq for event in writer.logged()] == [0, 1, 2]


async def test_where_the_generation_begins_is_known_even_without_a_lease():
    """A start that was acknowledged too late to be emitted still says where reading the log begins."""
    writer = Writer()
    writer.log.put(writer.partition, b"another key", b"something")
    writer.log.hold()
    writer.start()
    writer.clock.us += HALF_ORPHAN_US + 1
    writer.log.release()
    assert writer.generation.start_offset == 1


async def test_the_oldest_unacknowledged_record_is_known():
    """An outage is measured from the record that has waited longest."""
    writer = Writer()
    writer.start()
    await asyncio.sleep(0)
    assert writer.recorder.oldest_unacked_us is None
    writer.log.hold()
    writer.clock.us += 5_000
    oldest_us = writer.clock.us
    writer.text("a")
    writer.clock.us += 4_000
    writer.text("b")
    assert writer.recorder.oldest_unacked_us == oldest_us
    writer.log.release()
    assert writer.recorder.oldest_unacked_us is None
