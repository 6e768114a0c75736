"""One generation's memory: the window, what readers may take of it, and how they wait."""

import asyncio

import pytest

from edge.generation import Delivered
from schemas.errors import IllegalMove
from schemas.lifecycle import Signal, State
from tests.support.edge import Writer, turns


async def filled(count):
    """Give a generation with that many acknowledged events."""
    writer = Writer()
    writer.start()
    for number in range(count - 1):
        writer.text(f"{number}")
    await turns()
    return writer.generation


def seqs(found):
    """Give the seqs of delivered events."""
    return [delivered.event.seq for delivered in found]


async def test_a_reader_gets_what_lies_behind_its_position():
    """From any seq on, up to what is acknowledged; an empty list is "nothing new", not an end."""
    generation = await filled(5)
    assert seqs(generation.since(0)) == [0, 1, 2, 3, 4]
    assert seqs(generation.since(4)) == [4]
    assert generation.since(5) == []
    assert generation.since(50) == []


async def test_what_the_window_gave_up_must_be_read_from_the_log():
    """Shrinking takes the older half and says how much was freed; a reader that needs it is sent to the log."""
    generation = await filled(5)
    before = generation.window_bytes
    freed = generation.shrink()
    assert freed > 0
    assert generation.window_bytes == before - freed
    assert generation.window_first_seq == 2
    assert generation.since(1) is None
    assert seqs(generation.since(2)) == [2, 3, 4]


async def test_a_window_can_be_given_up_whole():
    """Shrinking goes down to nothing and then frees nothing; the numbers go on from where they were."""
    generation = await filled(3)
    while generation.shrink():
        pass
    assert generation.window_bytes == 0
    assert generation.window_first_seq == 3
    assert generation.since(2) is None
    assert generation.since(3) == []


async def test_every_waiting_reader_wakes_for_news():
    """An acknowledged event wakes all of them once; one that left does not disturb the others."""
    writer = Writer()
    generation = writer.generation
    readers = [asyncio.ensure_future(generation.news()) for _ in range(3)]
    await turns()
    readers[1].cancel()
    await turns()
    writer.start()
    await turns()
    assert [reader.done() for reader in readers] == [True, True, True]
    assert readers[1].cancelled()
    later = asyncio.ensure_future(generation.news())
    await turns()
    assert not later.done()
    generation.wake()
    await asyncio.wait_for(later, 1)


async def test_leaving_memory_wakes_the_readers():
    """Whoever waits for memory looks at the log from now on, for good."""
    generation = await filled(1)
    waiting = asyncio.ensure_future(generation.news())
    await turns()
    generation.leave_memory()
    await asyncio.wait_for(waiting, 1)
    assert generation.on_log


async def test_the_terminal_is_known_when_it_is_acknowledged():
    """``ended`` is set by the acknowledged terminal, not by the one on its way."""
    writer = Writer()
    writer.start()
    await turns()
    writer.log.hold()
    writer.end()
    await turns()
    assert not writer.generation.ended.is_set()
    writer.log.release()
    assert writer.generation.ended.is_set()
    assert writer.generation.terminal.event.seq == 1


async def test_the_state_moves_by_its_table_alone():
    """An illegal move raises and changes nothing."""
    generation = await filled(1)
    assert generation.stage == "queued"
    with pytest.raises(IllegalMove):
        generation.signal(Signal.CONTENT_CAPTURED)
    assert generation.state is State.ACCEPTED
    generation.signal(Signal.START_ACKED)
    generation.signal(Signal.DISPATCHED)
    assert generation.stage == "prefill"


async def test_content_that_the_log_has_makes_it_streaming():
    """Decode becomes streaming with the first acknowledged content, and not with a frame."""
    writer = Writer()
    generation = writer.generation
    for signal in (Signal.START_ACKED, Signal.DISPATCHED, Signal.CONTENT_CAPTURED):
        generation.signal(signal)
    writer.start()
    await turns()
    assert generation.state is State.DECODE
    writer.text("a")
    await turns()
    assert generation.state is State.STREAMING


async def test_the_size_of_an_event_counts_its_text():
    """The budget counts what an event holds, not how many there are."""
    writer = Writer()
    small, large = writer.text("x"), writer.text("x" * 10_000)
    assert Delivered(large, 0, 0).size - Delivered(small, 0, 0).size == 2 * 9_999
    await turns()
