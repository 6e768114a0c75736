"""The one path of reading: memory and log give the same, and a generation's every history ends the same for all."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.follow import READ_EVENTS_MAX, Hole, LogSilent, OffsetGone
from edge.recorder import LOG_UNAVAILABLE
from schemas.events import ErrorEnd, Heartbeat, Kind, LogEvent, MessageEnd
from schemas.parts import RECORD_BYTES_MAX
from tests.support.edge import CODEC, HALF_ORPHAN_US, Client, VirtualClock, Writer, turns
from tests.support.waiting import until

ORPHAN_US = 2 * HALF_ORPHAN_US


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


class History:
    """An edge that writes one generation, everything that can go wrong, and clients that come and go."""

    def __init__(self):
        self.clock = VirtualClock()
        self.writer = Writer(self.clock)
        self.log = self.writer.log
        self.key = self.writer.identity.generation_id.encode()
        self.clients = []
        self.ended = False
        self.held_since_us = None

    # what the edge does

    def write(self):
        """Publish content; an edge that was told of a failure has stopped reading its provider."""
        if not self.ended:
            self.writer.text("x")

    def beat(self):
        """Publish a heartbeat."""
        if not self.ended:
            self.writer.recorder.trace(Kind.HEARTBEAT, heartbeat=Heartbeat())

    def end(self, *, proper):
        """Publish the terminal."""
        if not self.ended:
            self.ended = True
            if proper:
                self.writer.end()
            else:
                self.writer.fail("upstream_error")

    async def settle(self):
        """Let callbacks run; a refused record is followed by the error terminal, as the driver does it."""
        await turns()
        if LOG_UNAVAILABLE in self.writer.told:
            self.writer.told.clear()
            self.ended = True
            self.writer.fail()
            await turns()

    # what the world does

    def hold(self):
        """The process stops hearing of its acknowledgements (it is frozen, or the broker is slow)."""
        self.log.hold()

    def release(self):
        """It hears of them."""
        self.log.release()

    def refuse(self, *, lands):
        """The next publish fails; it may stand in the log all the same."""
        self.log.fail_next(lands=lands)

    def copy(self, which):
        """A record stands in the log twice."""
        records = [r for r in self.log.records(self.writer.partition) if r[2] == self.key]
        if records:
            self.log.put(self.writer.partition, self.key, records[which % len(records)][3])

    def shrink(self):
        """The memory budget takes the older half of the window."""
        self.writer.generation.shrink()

    def wait(self, quarters):
        """Time passes: so many quarters of the orphan time."""
        self.clock.us += quarters * ORPHAN_US // 4 + 1

    def find_orphan(self):
        """The finder ends a generation that the log has heard nothing of for the orphan time."""
        records = [r for r in self.log.records(self.writer.partition) if r[2] == self.key]
        if not records or self.clock.wall_ms() - records[-1][1] < ORPHAN_US // 1000:
            return
        events = [CODEC.decode(record[3], LogEvent) for record in records]
        if any(event.is_terminal for event in events) or all(event.seq is None for event in events):
            return
        seq = 1 + max(event.seq for event in events if event.seq is not None)
        first = events[0]
        lost = LogEvent(
            generation_id=first.generation_id,
            tenant=first.tenant,
            key_id=first.key_id,
            dialect=first.dialect,
            kind=Kind.ERROR,
            wall_us=self.clock.wall_us(),
            edge_id="finder",
            seq=seq,
            raw="lost",
            error=ErrorEnd(code="edge_lost", message="lost"),
        )
        self.log.put(self.writer.partition, self.key, CODEC.encode(lost))

    # what clients do

    def connect(self, *, local):
        """A client connects for the first time: here, or on another edge."""
        self.clients.append(Client(self.writer.follower(0, local=local, offset=0)))

    def resume(self, which, *, local):
        """A client that was cut off resumes behind the last event that it has."""
        if self.clients:
            before = self.clients[which % len(self.clients)]
            if before.got and not before.got[-1].event.is_terminal:
                last = before.got[-1]
                offset = 0 if local else last.offset
                self.clients.append(
                    Client(self.writer.follower(last.event.seq + 1, local=local, offset=offset))
                )

    async def close(self):
        """Everything comes to rest: acknowledgements are heard, an open generation is found orphaned, its edge thaws."""
        await self.settle()
        self.release()
        await self.settle()
        self.clock.us += 2 * ORPHAN_US
        self.find_orphan()
        self.beat()
        await turns()


STEPS = st.one_of(
    st.tuples(st.just("write")),
    st.tuples(st.just("write")),
    st.tuples(st.just("beat")),
    st.tuples(st.just("hold")),
    st.tuples(st.just("release")),
    st.tuples(st.just("refuse"), st.fixed_dictionaries({"lands": st.booleans()})),
    st.tuples(st.just("copy"), st.integers(0, 9)),
    st.tuples(st.just("shrink")),
    st.tuples(st.just("wait"), st.integers(0, 5)),
    st.tuples(st.just("find_orphan")),
    st.tuples(st.just("connect"), st.fixed_dictionaries({"local": st.booleans()})),
    st.tuples(st.just("resume"), st.integers(0, 5), st.fixed_dictionaries({"local": st.booleans()})),
    st.tuples(st.just("end"), st.fixed_dictionaries({"proper": st.booleans()})),
)


async def played(steps):
    """Play a history to its end; the history, and what a replay of the whole log gives."""
    history = History()
    history.writer.start()
    await turns()
    for name, *arguments in steps:
        named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        getattr(history, name)(*arguments, **named)
        await history.settle()
    await history.close()
    replay = await Client(history.writer.follower(0, local=False, offset=0)).done()
    await until(lambda: all(client.task.done() for client in history.clients), within_s=5)
    return history, replay


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_in_every_history_clients_hold_exactly_what_a_replay_gives(steps):
    """Copies, freezes, refused publishes, lost answers, a foreign terminal: live equals replay, and one terminal."""
    history, replay = asyncio.run(played(steps))
    assert replay.broke_off is None
    assert [kind in (Kind.MESSAGE_END, Kind.ERROR) for _, kind, *_ in replay.shown] == [
        *[False] * (len(replay.got) - 1),
        True,
    ]
    at = {seq: number for number, seq in enumerate(replay.seqs)}
    for client in history.clients:
        assert client.broke_off is None
        first = at.get(client.first_seq, len(replay.got) - 1)
        assert client.shown == replay.shown[first:]


def test_the_history_that_the_lease_is_for():
    """A frozen edge whose generation was ended by the finder: no client holds what came after, here or anywhere."""
    steps = [
        ("connect", {"local": True}),
        ("write",),
        ("hold",),
        ("wait", 5),
        ("find_orphan",),
        ("write",),
        ("release",),
        ("write",),
        ("end", {"proper": True}),
    ]
    history, replay = asyncio.run(played(steps))
    assert replay.seqs == [0, 1, 2]
    assert replay.got[-1].event.edge_id == "finder"
    assert history.clients[0].shown == replay.shown
    assert any(isinstance(event.message_end, MessageEnd) for event in history.writer.logged())
