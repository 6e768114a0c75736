"""Histories of a generation: an edge that writes it, everything that can go wrong, and clients that come and go."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.recorder import LOG_UNAVAILABLE
from schemas.events import ErrorEnd, Heartbeat, Kind, LogEvent, MessageEnd
from tests.support.edge import CODEC, HALF_ORPHAN_US, Client, VirtualClock, Writer, turns
from tests.support.waiting import until

ORPHAN_US = 2 * HALF_ORPHAN_US


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


@settings(max_examples=200)
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
