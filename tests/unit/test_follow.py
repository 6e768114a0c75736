"""The one path of reading: memory and log give the same, wherever a reader begins and whatever is missing.

``test_follow_histories`` has everything at once.
"""

import pytest

from edge.follow import READ_EVENTS_MAX, Hole, LogSilent, OffsetGone
from schemas.events import Heartbeat, Kind, LogEvent
from schemas.parts import RECORD_BYTES_MAX
from tests.support.edge import CODEC, Client, Writer, turns


async def finished(count=4):
    """Give the writer of a generation that ended properly, with so many deltas."""
    writer = Writer()
    writer.start()
    for number in range(count):
        writer.text(f"{number}")
        writer.recorder.trace(Kind.HEARTBEAT, heartbeat=Heartbeat())
    writer.end()
    await turns()
    return writer


async def test_live_resumed_and_finished_streams_are_the_same():
    """From any seq, from memory or from the log, while it runs or afterwards: the same events at the same offsets."""
    writer = Writer()
    writer.start()
    await turns()
    live = [Client(writer.follower(0)), Client(writer.follower(0, local=False))]
    for number in range(5):
        writer.text(f"{number}")
        await turns()
    live.append(Client(writer.follower(3)))
    writer.end()
    clients = [await client.done() for client in live]
    replay = await Client(writer.follower(0, local=False)).done()
    assert replay.seqs == [0, 1, 2, 3, 4, 5, 6]
    for client in clients:
        assert client.shown == replay.shown[client.first_seq :]
    for seq in range(7):
        for local in (True, False):
            resumed = await Client(writer.follower(seq, local=local)).done()
            assert resumed.shown == replay.shown[seq:]


async def test_a_reader_whose_memory_is_gone_goes_on_from_the_log():
    """The window gives up what a reader still needs: it reads on from the log without loss or repeat."""
    writer = Writer()
    writer.start()
    writer.text("a")
    await turns()
    follower = writer.follower(0)
    first = await follower.read()
    for number in range(8):
        writer.text(f"{number}")
    await turns()
    while writer.generation.shrink():
        pass
    writer.text("behind")
    writer.end()
    await turns()
    client = await Client(follower).done()
    assert [d.event.seq for d in first] + client.seqs == list(range(12))


async def test_leaving_memory_in_the_middle_changes_nothing():
    """A lost lease sends readers to the log, wherever they stand; what they get does not change."""
    writer = Writer()
    writer.start()
    writer.text("a")
    await turns()
    waiting, late = Client(writer.follower(0)), writer.follower(0)
    await turns()
    assert waiting.seqs == [0, 1]
    writer.generation.leave_memory()
    writer.text("b")
    writer.end()
    assert (await waiting.done()).seqs == [0, 1, 2, 3]
    assert (await Client(late).done()).shown == waiting.shown


async def test_a_record_in_parts_is_one_event_from_both_sources():
    """A huge event is delivered whole, once; a reader that begins behind it starts behind its last part."""
    writer = Writer()
    writer.start()
    writer.text("x" * (2 * RECORD_BYTES_MAX))
    writer.end()
    await turns()
    memory = await Client(writer.follower(0)).done()
    log = await Client(writer.follower(0, local=False)).done()
    assert memory.shown == log.shown
    assert [event.seq for event in (d.event for d in log.got)] == [0, 1, 2]
    at_its_end = writer.follower(2, local=False, offset=log.got[1].offset)
    assert (await Client(at_its_end).done()).shown == log.shown[2:]


async def test_an_unreadable_record_is_skipped():
    """What no reader can decode is not the readers' to report; what follows is delivered by its seq."""
    writer = Writer()
    writer.start()
    writer.log.put(writer.partition, writer.identity.generation_id.encode(), b"no record")
    writer.text("a")
    writer.end()
    await turns()
    assert (await Client(writer.follower(0, local=False)).done()).seqs == [0, 1, 2]


async def test_a_hole_before_a_proper_end_comes_behind_what_lies_before_it():
    """What can be delivered is delivered; then the reading breaks off and says what is available behind the hole."""
    writer = await finished(4)
    writer.log.drop(writer.partition, lambda r: CODEC.decode(r[3], LogEvent).seq == 2)
    client = await Client(writer.follower(0, local=False)).done()
    assert client.seqs == [0, 1]
    assert isinstance(client.broke_off, Hole)
    assert client.broke_off.first_available_seq == 3
    follower = writer.follower(0, local=False)
    with pytest.raises(Hole):
        await follower.preload(100)
    assert not follower.ended


async def test_an_error_terminal_closes_a_hole():
    """An error that follows a lost range is delivered: the readers know that the stream ended and how."""
    writer = Writer()
    writer.start()
    writer.text("a")
    writer.text("lost")
    writer.fail("edge_lost")
    await turns()
    writer.log.drop(writer.partition, lambda r: CODEC.decode(r[3], LogEvent).seq == 2)
    client = await Client(writer.follower(0, local=False)).done()
    assert client.seqs == [0, 1, 3]
    assert client.broke_off is None


async def test_what_retention_took_is_said():
    """A log that begins behind the wanted offset is an error, not an empty stream."""
    writer = await finished(4)
    writer.log.drop(writer.partition, lambda r: r[0] < 3)
    client = await Client(writer.follower(0, local=False, offset=0)).done()
    assert isinstance(client.broke_off, OffsetGone)


async def test_an_outage_is_told_to_this_edges_readers():
    """While the log takes nothing, readers of memory are told so instead of waiting for ever."""
    writer = Writer()
    writer.start()
    await turns()
    client = Client(writer.follower(0))
    await turns()
    assert client.seqs == [0]
    writer.generation.log_away = True
    writer.generation.wake()
    assert isinstance((await client.done()).broke_off, LogSilent)


@pytest.mark.parametrize("local", [True, False])
async def test_a_cursor_beyond_the_end_ends(local):
    """A reader that wants what lies behind the terminal gets the end: an error is shown to it, a proper end is not."""
    ended = await finished(2)
    assert (await Client(ended.follower(50, local=local)).done()).seqs == []
    failed = Writer(number=1)
    failed.start()
    failed.fail()
    await turns()
    assert (await Client(failed.follower(50, local=local)).done()).seqs == [1]


async def test_a_long_replay_is_handed_out_in_pieces():
    """Thousands of events do not go out in one go: other clients are served between."""
    writer = await finished(3 * READ_EVENTS_MAX)
    follower = writer.follower(0)
    sizes = []
    while not follower.ended:
        sizes.append(len(await follower.read()))
    assert max(sizes) == READ_EVENTS_MAX
    assert sum(sizes) == 3 * READ_EVENTS_MAX + 2
