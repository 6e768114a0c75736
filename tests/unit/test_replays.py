"""What the readers of one edge share of the log: the same events, bounded, and never another record's."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from edge.generation import Delivered
from edge.log import Raw
from edge.reading.replays import RECORD_BYTES_MAX, UNUSED_US, Replays
from schemas.events import Kind
from schemas.parts import RECORD_BYTES_MAX as WHOLE_BYTES_MAX
from tests.support.edge import CODEC, Client, Writer, turns
from tests.support.events import log_event


def entry(offset, text="x"):
    """Give a record and its event."""
    event = log_event(kind=Kind.DELTA, seq=offset, raw=text)
    return Raw(offset, 0, CODEC.encode(event)), Delivered(event, 0, offset)


async def ended(*texts):
    """Give the writer of a generation that said so and ended."""
    writer = Writer()
    writer.start()
    for text in texts:
        writer.text(text)
    writer.end()
    await turns()
    return writer


async def test_a_record_is_decoded_once_for_all_readers():
    """A second reader of the log is given the first one's very events, so that each frame is rendered once."""
    writer = await ended("a", "b")
    first = await Client(writer.follower(local=False)).done()
    later = await Client(writer.follower(2, local=False)).done()
    assert [id(each) for each in later.got] == [id(each) for each in first.got[2:]]


async def test_another_record_at_the_same_place_is_another_event():
    """On a topic that was made anew a reader gets what lies there now, whatever lay at that offset before."""
    writer = await ended("before")
    await Client(writer.follower(local=False)).done()
    again = Writer(identity=writer.identity)
    again.replays = writer.replays
    again.start()
    again.text("after")
    again.end()
    await turns()
    client = await Client(again.follower(local=False)).done()
    assert [each.event.raw for each in client.got] == [None, "after", "[DONE]"]


async def test_records_in_parts_are_joined_by_each_reader():
    """What came in parts is shared by nobody: a reader that begins behind the first part must not have it."""
    writer = await ended("x" * WHOLE_BYTES_MAX, "small")
    whole = await Client(writer.follower(local=False)).done()
    assert whole.seqs == [0, 1, 2, 3]
    again = await Client(writer.follower(local=False)).done()
    assert again.shown == whole.shown
    assert again.got[1] is not whole.got[1]
    assert again.got[2] is whole.got[2]
    assert writer.replays.bytes < WHOLE_BYTES_MAX


async def test_what_is_forgotten_is_not_held():
    """A generation that is forgotten, by whoever finds it first, leaves nothing here."""
    writer = await ended("secret")
    await Client(writer.follower(local=False)).done()
    assert writer.replays.bytes
    forgotten = log_event(
        kind=Kind.FORGOTTEN, seq=None, after_seq=2, generation_id=writer.identity.generation_id
    )
    writer.log.put(writer.partition, writer.identity.generation_id.encode(), CODEC.encode(forgotten))
    follower = writer.follower(9, local=False)
    while not follower.reading.ended:
        await follower._more()
    assert writer.replays.bytes == 0


def test_what_nobody_comes_for_is_left_out():
    """An event stays while somebody asks for it now and then, and goes in the second turn in which nobody did."""
    replays = Replays(10_000)
    (kept, event), (unused, other) = entry(1), entry(2)
    replays.add("g", kept, event)
    replays.add("g", unused, other)
    for turn in range(1, 4):
        replays.keep_within(10_000, turn * UNUSED_US)
        assert replays.find("g", kept) is event
    assert replays.find("g", unused) is None
    replays.keep_within(10_000, 4 * UNUSED_US)
    replays.keep_within(10_000, 5 * UNUSED_US)
    assert replays.bytes == 0
    assert replays.find("g", kept) is None


def test_large_records_are_not_held():
    """One large record does not take the room of hundreds."""
    replays = Replays(1 << 30)
    large, event = entry(1, "x" * RECORD_BYTES_MAX)
    replays.add("g", large, event)
    assert replays.bytes == 0
    assert replays.find("g", large) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "find", "turn", "forget", "room"]),
        st.sampled_from("abc"),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_room_is_kept_and_no_event_is_anothers(steps):
    """Whatever is added, asked for, forgotten and left out: no more is held than there is room, and only what was added."""
    room, now_us = 6_000, 0
    replays = Replays(room)
    for what, generation_id, offset, size in steps:
        raw, event = entry(offset, generation_id + "x" * size)
        if what == "add":
            replays.add(generation_id, raw, event)
        elif what == "find":
            found = replays.find(generation_id, raw)
            assert found is None or msgspec.structs.astuple(found.event) == msgspec.structs.astuple(
                event.event
            )
        elif what == "forget":
            replays.forget(generation_id)
            assert replays.find(generation_id, raw) is None
        elif what == "turn":
            now_us += UNUSED_US
            replays.keep_within(room, now_us)
        else:
            room = 2_000 * size
            replays.keep_within(room, now_us)
        assert 0 <= replays.bytes <= room
    for generation_id in "abc":
        replays.forget(generation_id)
    assert replays.bytes == 0
