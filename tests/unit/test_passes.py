"""Shared reading: whatever the passes offer in whatever order, each reader gets its key's records once, in order."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.log import LogAway, OffsetGone, Raw
from edge.log.passes import BUFFER_BYTES_MAX, Fetched, KeyReader, PartitionReaders

KEYS = (b"a", b"b")
MIB = 1 << 20


def reader_at(position, key=b"a", *, every=False, on_change=None):
    """Give a reader that nobody serves yet."""
    return KeyReader(key, position, every=every, on_change=on_change or (lambda _: None))


def fetched(start, end, high_watermark, *records):
    """Give a range with records as (offset, key)."""
    return Fetched(start, end, high_watermark, [(o, 1_000 + o, key, b"%d" % o) for o, key in records])


class Waiting:
    """A future of somebody who waits, whatever comes."""

    def done(self):
        """He still waits."""
        return False

    def set_result(self, _):
        """He is not in this test."""


class World:
    """A partition that grows, with holes, and two passes whose fetches arrive late and in any order."""

    def __init__(self):
        self.readers = PartitionReaders()
        self.log = []
        self.end = 0
        self.on_the_way = []
        self.latest = None
        self.all = []

    def append(self, key, hole):
        """Write a record, perhaps behind a hole as compaction or a transaction marker leaves one."""
        self.end += hole
        self.log.append((self.end, 1_000, key, b"%d" % self.end))
        self.end += 1

    def open(self, key, position):
        """Begin to read."""
        reader = KeyReader(key, min(position, self.end), every=False, on_change=lambda _: None)
        self.readers.readers.add(reader)
        self.all.append((reader, reader.position, []))
        if self.latest is not None:  # as the fetcher serves who comes a moment later
            self.readers.offer(self.latest._replace(high_watermark=self.latest.end + 1), only=reader)
            assert not reader.caught_up

    def fetch(self, start, size):
        """Ask for a range; the answer is on its way."""
        end = min(self.end, start + size)
        if start <= end:
            records = [record for record in self.log if start <= record[0] < end]
            self.on_the_way.append(Fetched(start, end, self.end, records))

    def arrive(self, which):
        """Let one of the answers arrive."""
        if self.on_the_way:
            self.latest = self.on_the_way.pop(which % len(self.on_the_way))
            self.readers.offer(self.latest)

    def read(self, which):
        """Let one reader take what is buffered for it."""
        if self.all:
            reader, _, got = self.all[which % len(self.all)]
            if reader._records:
                progress = asyncio.run(reader.read())
                got += [raw.offset for raw in progress.records]
                assert all(offset < progress.position for offset in got)

    def finish(self):
        """Serve everybody to the end, as the catch-up pass would: all of them wait for more."""
        for reader in self.readers.readers:
            reader._wake = Waiting()
        while any(reader.wants and reader.position < self.end for reader in self.readers.readers):
            self.fetch(self.readers.wanted(), 3)
            self.arrive(-1)
        for number in range(len(self.all)):
            self.read(number)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(KEYS), st.integers(0, 2)),
    st.tuples(st.just("open"), st.sampled_from(KEYS), st.integers(0, 12)),
    st.tuples(st.just("fetch"), st.integers(0, 12), st.integers(1, 6)),
    st.tuples(st.just("arrive"), st.integers(0, 5)),
    st.tuples(st.just("read"), st.integers(0, 5)),
)


@given(st.lists(STEPS, max_size=60))
def test_any_interleaving_of_two_passes_gives_each_reader_every_record_once(steps):
    """Late, repeated, overlapping and stale ranges: a reader's records are those of its key from its start, in order."""
    world = World()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.finish()
    for reader, start, got in world.all:
        assert got == [offset for offset, _, key, _ in world.log if key == reader.key and offset >= start]


def test_only_readers_inside_a_range_take_it():
    """A range that begins behind a reader would leave a gap, one that ends before it has nothing for it."""
    readers = PartitionReaders()
    below, inside, at_end, above = (reader_at(n) for n in (4, 6, 8, 9))
    readers.readers |= {below, inside, at_end, above}
    readers.offer(fetched(5, 8, 8, (5, b"a"), (6, b"a"), (7, b"a")))
    assert [r.position for r in (below, inside, at_end, above)] == [4, 8, 8, 9]
    assert [raw.offset for raw in inside._records] == [6, 7]
    assert not at_end._records


async def test_a_full_reader_stands_still_until_it_is_read():
    """A reader whose buffer is full takes no part; reading makes room and asks to be served again."""
    asked = []
    reader = reader_at(0, on_change=asked.append)
    readers = PartitionReaders()
    readers.readers.add(reader)
    readers.offer(Fetched(0, 1, 9, [(0, 1, b"a", bytes(BUFFER_BYTES_MAX))]))
    readers.offer(Fetched(1, 2, 9, [(1, 1, b"a", b"x")]))
    assert reader.position == 1
    assert readers.wanted() is None
    progress = await reader.read()
    assert [raw.offset for raw in progress.records] == [0]
    assert asked == [reader]
    assert readers.wanted() == 1


def caught_up_after(starts, *, end, size):
    """Give how many fetches the catch-up pass makes until each of the readers that begin there stands at the end."""
    readers, fetches, after = PartitionReaders(), 0, {}
    standing = {start: reader_at(start, key=b"%d" % start) for start in starts}
    for reader in standing.values():
        reader._wake = Waiting()
    readers.readers |= set(standing.values())
    readers.tail_from = end
    while (position := readers.wanted()) is not None:
        fetches += 1
        readers.offer(Fetched(position, min(position + size, end), end, []))
        after |= {s: fetches for s, reader in standing.items() if reader.position == end and s not in after}
    return [after[start] for start in starts]


def test_a_long_replay_keeps_nobody_waiting():
    """Who needs two ranges has them within a few turns, however much somebody else reads; all together share what they read."""
    long, short = caught_up_after([0, 980], end=1_000, size=10)
    assert short <= 5
    assert long <= 102
    swarm = caught_up_after(range(0, 1_000, 7), end=1_000, size=10)
    assert max(swarm) <= 2 * 100  # the whole partition once, and half of the turns for those who waited


async def test_nothing_is_fetched_far_ahead_of_a_reader():
    """One range ahead of who has not come back for the last one; who waits is served again and again."""
    asked = []
    reader = reader_at(0, on_change=asked.append)
    readers = PartitionReaders()
    readers.readers.add(reader)
    readers.offer(fetched(0, 2, 99, (0, b"a")))
    assert readers.wanted() is None
    assert [raw.offset for raw in (await reader.read()).records] == [0]
    assert asked == [reader]
    assert readers.wanted() == 2
    readers.offer(fetched(2, 4, 99, (2, b"b")))
    assert readers.wanted() is None
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    assert asked == [reader, reader]
    for start in (4, 6, 8):
        assert readers.wanted() == start
        readers.offer(fetched(start, start + 2, 99, (start, b"b")))
    readers.offer(fetched(10, 12, 99, (10, b"a")))
    assert [raw.offset for raw in (await waiting).records] == [10]


def test_the_lowest_wanted_position_leaves_the_tail_to_its_own_pass():
    """The catch-up pass reads for those who are not at the tail, from the lowest of them."""
    readers = PartitionReaders()
    readers.readers |= {reader_at(9), reader_at(9), reader_at(5), reader_at(3)}
    assert readers.wanted() == 3
    readers.tail_from = 9
    assert readers.wanted() == 3
    readers.tail_from = 3
    assert readers.wanted() == 5


async def test_the_end_is_told_once_and_other_keys_only_with_every():
    """Without ``every`` a reader wakes for its own records and for having caught up; with it, for each range."""
    quiet, told = reader_at(0), reader_at(0, every=True)
    readers = PartitionReaders()
    readers.readers |= {quiet, told}
    readers.offer(fetched(0, 2, 4, (0, b"b"), (1, b"b")))
    assert (quiet._progress, told._progress) == (False, True)
    readers.offer(fetched(2, 4, 4, (3, b"b")))
    progress = await quiet.read()
    assert (list(progress.records), progress.position, progress.caught_up) == ([], 4, True)
    assert progress.timestamp_ms == 1_003
    readers.offer(fetched(4, 5, 5, (4, b"b")))
    assert not quiet._progress


async def test_what_is_buffered_comes_before_the_error():
    """A reader that fails still gives what it had; then it raises, each time."""
    reader = reader_at(0)
    reader.take(fetched(0, 1, 1, (0, b"a")), [Raw(0, 1, b"0")])
    reader.fail(LogAway("away"))
    assert [raw.offset for raw in (await reader.read()).records] == [0]
    for _ in range(2):
        with pytest.raises(LogAway):
            await reader.read()


def test_failing_concerns_the_readers_that_cannot_be_served():
    """Below the log's start, or above an offset: those alone fail and are forgotten."""
    readers = PartitionReaders()
    low, middle, high = reader_at(1), reader_at(5), reader_at(9)
    readers.readers |= {low, middle, high}
    readers.fail(OffsetGone(3), below=3)
    assert readers.readers == {middle, high}
    readers.fail(OffsetGone(3), above=8)
    assert readers.readers == {middle}


async def test_a_waiting_reader_wakes_for_an_error():
    """Nobody waits for records that will never come."""
    reader = reader_at(0)
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    reader.fail(LogAway("away"))
    with pytest.raises(LogAway):
        await asyncio.wait_for(waiting, 5)


def test_closing_is_idempotent():
    """A reader says once that it is gone."""
    said = []
    reader = reader_at(0, on_change=said.append)
    reader.close()
    reader.close()
    assert said == [reader]
    assert not reader.wants
