"""The order of a sink, crashed between each pair of its steps: nothing lost, nothing counted twice."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.events import Kind
from schemas.parts import SLICE_BYTES, cut
from sinks import rows
from sinks.batch import Limits
from sinks.erasure import erasure_of
from sinks.intake import EventIntake
from sinks.loop import Loop, Ports
from sinks.memory import MemoryStore
from sinks.store import Refused
from tests.support.records import CODEC, Raw, delta, event, generation_id, raw_of
from tests.support.sink_world import SMALL, STEPS, Source, World, expected, log_of, run_to_the_end


async def test_the_steps_are_taken_in_their_order():
    """Read, then insert, then commit what was inserted; never a commit without its insert before it."""
    world = World([[raw_of("t", 0, i, delta(generation_id(i), 0, "x")) for i in range(3)]])
    await run_to_the_end(world)
    order = [step for step in world.trace if step != "read"]
    assert order == ["insert", "inserted", "commit", "committed"]
    assert world.committed == {0: 3}


async def test_a_backlog_leaves_the_others_their_turn():
    """While records are at hand, an insert goes on and other tasks run: a read that need not wait gives no turn itself."""
    world = World([[raw_of("t", 0, i, delta(generation_id(i), 0, "x")) for i in range(40)]])
    loop = world.session()
    others = itertools.count()

    async def other():
        while True:
            next(others)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    turns = 8
    for _ in range(turns):
        await loop.turn()
    task.cancel()
    assert next(others) >= turns
    assert "inserted" in world.trace


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(step, nth):
    """Killed before or after each step and started again, the views hold every row once and every poison is buried."""
    log = log_of("ddpdbddpdddd")
    world = World(log, crashes=[(step, nth)])
    await run_to_the_end(world)
    stored, buried = expected(log)
    assert world.places() == stored
    assert sorted(set(world.buried)) == buried


@settings(max_examples=60)
@given(
    kinds=st.text(alphabet="dddpb", max_size=14),
    crashes=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 12)), max_size=5),
    merge=st.booleans(),
)
def test_any_history_of_crashes_gives_the_same_rows(kinds, crashes, merge):
    """For any log and any crashes the rows are those of an undisturbed run, before and after a merge."""

    async def history():
        log = log_of(kinds)
        world = World(log, crashes=crashes)
        await run_to_the_end(world)
        calm = World(log)
        await run_to_the_end(calm)
        if merge:
            world.store.merge(rows.EVENTS)
        assert world.store.final(rows.EVENTS) == calm.store.final(rows.EVENTS)
        assert set(world.buried) == set(calm.buried)

    asyncio.run(history())


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_what_is_forgotten_is_gone_whenever_the_sink_died(step, nth):
    """Rows before the erasure go, its own and others stay; so after any crash, and when the log is read again."""
    mine, other = generation_id(1), generation_id(2)
    said = [
        delta(mine, 0, "a secret"),
        delta(other, 0, "x"),
        delta(mine, 1, "and more"),
        event(mine, Kind.FORGOTTEN, None, after_seq=1),
        delta(other, 1, "y"),
    ]
    world = World([[raw_of("t", 0, i, e) for i, e in enumerate(said)]], crashes=[(step, nth)])
    for _ in range(2):
        await run_to_the_end(world)
        assert world.places() == [(0, 1), (0, 3), (0, 4)]
        assert "secret" not in str(world.store.final(rows.EVENTS))
        world.committed = {0: 0}


def test_what_comes_behind_an_erasure_is_not_stored():
    """What a writer still had on its way when its generation was forgotten makes no row, by either way of reading."""
    mine = generation_id(1)
    intake = EventIntake(CODEC)
    said = [delta(mine, 0, "x"), delta(mine, 1, "x"), event(mine, Kind.FORGOTTEN, None), delta(mine, 2, "x")]
    made = [intake.row(raw_of("t", 0, i, e)) is not None for i, e in enumerate(said)]
    assert made == [True, True, True, False]


def test_dead_letters_of_the_forgotten_go_whichever_comes_first():
    """A letter that is there goes with the erasure; one that comes later goes with its own batch; others stay."""
    mine, other = generation_id(1), generation_id(2)
    letters = [
        rows.dead_letter_row(Raw("d", 0, i, key.encode(), b"a secret")) for i, key in enumerate((mine, other))
    ]
    mark = rows.event_row(event(mine, Kind.FORGOTTEN, None, after_seq=1), 0, 9)
    for order in ((letters, [mark]), ([mark], letters)):
        store = MemoryStore()
        for number, block in enumerate(order):
            table = rows.EVENTS if block == [mark] else rows.DEAD_LETTERS
            store.insert(table, block, str(number))
            store.erase(erasure_of(table, block))
        assert [row[7] for row in store.final(rows.DEAD_LETTERS)] == [other.encode()]


async def test_reading_a_whole_log_again_changes_nothing():
    """Insertion of every record a second time, in other batches and under other tokens, adds nothing to a view."""
    log = log_of("ddddbddp")
    world = World(log)
    await run_to_the_end(world)
    before = world.store.final(rows.EVENTS)
    world.committed = dict.fromkeys(world.committed, 0)
    loop = world.session(limits=Limits(rows=1, bytes=10**9, age_s=1.0))
    for _ in range(40):
        await loop.turn()
    await loop.flush()
    assert world.store.final(rows.EVENTS) == before


async def test_a_refused_row_is_found_and_buried_alone():
    """A block with one row that the store will never take is halved: that row is a dead letter, the others are rows."""
    bad = generation_id(5)
    store = MemoryStore(accepts=lambda row: row[rows.EVENTS.columns.index("generation_id")] != bad)
    log = [[raw_of("t", 0, i, delta(generation_id(i), 0, "x")) for i in range(9)]]
    world = World(log, store=store)
    loop = world.session(limits=Limits(rows=9, bytes=10**9, age_s=1.0))
    for _ in range(8):
        await loop.turn()
    await loop.flush()
    assert world.places() == [(0, i) for i in range(9) if i != 5]
    assert world.buried == [(0, 5, "bad_field")]
    assert world.committed == {0: 9}


async def test_a_warehouse_that_is_away_is_waited_for(monkeypatch):
    """While the store is away nothing is committed; when it is back the same rows go in, in their order."""
    monkeypatch.setattr("sinks.loop.BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr("sinks.loop.BACKOFF_MAX_S", 0.002)
    log = [[raw_of("t", 0, i, delta(generation_id(i), 0, "x")) for i in range(6)]]
    world = World(log)
    world.store.away = True
    running = asyncio.create_task(run_to_the_end(world))
    async with asyncio.timeout(5):
        await world.fifth_insert.wait()
    assert world.committed == {0: 0}
    world.store.away = False
    await running
    assert world.places() == [(0, i) for i in range(6)]
    assert world.store.inserts == 2


async def test_a_burst_is_few_inserts():
    """A thousand records that come one by one within a second are one block, and none is missing."""
    world = World([[raw_of("t", 0, n, delta(generation_id(n), 0, "x")) for n in range(1000)]])
    loop = world.session(limits=Limits(rows=10_000, bytes=10**9, age_s=1.0))
    while world.committed != {0: 1000}:
        await loop.turn()
    assert world.store.inserts == 1
    assert world.places() == [(0, n) for n in range(1000)]


async def test_a_stop_settles_what_was_read():
    """SIGTERM: rows that were read but not yet due are inserted and committed before the end."""
    log = [[raw_of("t", 0, 0, delta(generation_id(0), 0, "x"))]]
    world = World(log)
    loop = world.session()
    await loop.turn()
    assert world.committed == {0: 0}
    loop.stop()
    await loop.run()
    assert world.committed == {0: 1}
    assert world.places() == [(0, 0)]


async def test_nothing_is_committed_behind_a_batch_that_was_given_up():
    """A stop does not wait for a warehouse that is away, and no later batch is committed over the one given up."""

    class AwayOnce(MemoryStore):
        def insert(self, table, rows, token):
            self.away = self.inserts == 0
            self.inserts += self.away
            super().insert(table, rows, token)

    log = [[raw_of("t", 0, i, delta(generation_id(i), 0, "x")) for i in range(5)]]
    world = World(log, store=AwayOnce())
    loop = world.session()
    await loop.turn()
    await loop.turn()
    loop.stop()
    await loop.turn()
    await loop.run()
    assert world.counts["insert"] == 1
    assert world.committed == {0: 0}
    await run_to_the_end(world)
    assert world.places() == [(0, i) for i in range(5)]


async def test_what_was_read_is_forgotten_when_partitions_are_given_away():
    """After a rebalance nothing of the old assignment is committed: its records are read again by their new owner."""
    log = [[raw_of("t", 0, i, delta(generation_id(i), 0, "x")) for i in range(2)]]
    world = World(log)
    loop = world.session()
    await loop.turn()
    await loop.let_go()
    await loop.flush()
    assert world.committed == {0: 0}
    assert world.places() == []
    await run_to_the_end(world)
    assert world.places() == [(0, 0), (0, 1)]


async def test_the_first_part_of_an_unfinished_record_is_not_committed_past():
    """A crash between two parts must read the first one again, so the commit stays at it while others move on."""
    gid = generation_id(0)
    parts = cut(CODEC, delta(gid, 0, "y" * (SLICE_BYTES * 2)))
    log = [[raw_of("t", 0, 0, delta(generation_id(9), 0, "x"))]]
    log[0] += [Raw("t", 0, 1 + i, gid.encode(), v) for i, v in enumerate(parts[:-1])]
    world = World(log)
    loop = world.session()
    for _ in range(6):
        await loop.turn()
    await loop.flush()
    assert world.committed == {0: 1}
    log[0].append(Raw("t", 0, len(log[0]), gid.encode(), parts[-1]))
    await run_to_the_end(world)
    assert world.places() == [(0, 0), (0, len(log[0]) - 1)]


async def test_an_unknown_schema_is_waited_for_and_then_buried(monkeypatch):
    """A fingerprint that nobody publishes holds the log for its time, then its record is a dead letter."""
    monkeypatch.setattr("sinks.loop.SCHEMA_POLL_S", 0.4)
    unknown = Raw("t", 0, 0, b"k", b"\xc3\x01" + b"\x07" * 9)
    world = World([[unknown]])
    await run_to_the_end(world)
    assert world.buried == [(0, 0, "undecodable")]
    assert world.schema_refreshes == 3
    assert world.committed == {0: 1}


async def test_a_schema_that_is_published_late_costs_nothing(monkeypatch):
    """Once the schemas topic gives the fingerprint, the waiting record becomes its row."""
    monkeypatch.setattr("sinks.loop.SCHEMA_POLL_S", 0.001)
    tries = itertools.count()
    record = raw_of("t", 0, 0, delta(generation_id(0), 0, "x"))
    world = World([[record]])

    class Late(EventIntake):
        def row(self, record):
            return super().row(
                record if next(tries) >= 2 else Raw("t", 0, 0, b"k", b"\xc3\x01" + b"\x07" * 9)
            )

    ports = Ports(Source(world), world, world, world, lambda: world.now)
    loop = Loop(rows.EVENTS, lambda: Late(CODEC), ports, SMALL, 30.0)
    await loop.turn()
    await loop.flush()
    assert (world.places(), world.buried, world.schema_refreshes) == ([(0, 0)], [], 2)


async def test_a_bug_ends_the_sink():
    """An error that is neither Refused nor Unavailable is no policy's business: it leaves the loop, uncommitted."""

    class Broken(MemoryStore):
        def insert(self, *_):
            raise ZeroDivisionError

    world = World([[raw_of("t", 0, i, delta(generation_id(i), 0, "x")) for i in range(3)]], store=Broken())
    with pytest.raises(ZeroDivisionError):
        await run_to_the_end(world)
    assert world.committed == {0: 0}


def test_the_fake_refuses_a_row_of_another_shape():
    """The store in memory is no laxer than the real one about the number of columns."""
    with pytest.raises(Refused):
        MemoryStore().insert(rows.EVENTS, [(1, 2)], "t")
