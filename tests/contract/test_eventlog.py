"""One suite for every EventLog: the log in memory passes it, and Apache Kafka does.

The fake is worth something only while both pass the same tests; ``test_eventlog_outage`` has what only a broker can show.
"""

import asyncio
import secrets

import pytest

from edge.log import OffsetGone
from edge.log.passes import BUFFER_BYTES_MAX
from tests.support.eventlogs import (
    KafkaBackend,
    MemoryBackend,
    end_of,
    new_key,
    read_values,
    wall_ms,
    written,
)
from tests.support.waiting import WITHIN_S, Acks, drain, until


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.services)])
def make_backend(request):
    """Give what makes a backend; the broker is started outside of the event loop."""
    if request.param == "memory":
        return MemoryBackend
    servers = request.getfixturevalue("topics")
    return lambda: KafkaBackend(servers)


@pytest.fixture
async def backend(make_backend):
    """Give a started backend, stopped at the end."""
    backend = make_backend()
    await backend.log.start()
    yield backend
    await backend.log.stop()


@pytest.fixture
def log(backend):
    """Give the started log."""
    return backend.log


async def test_appended_records_are_acknowledged_in_order_with_rising_offsets(log):
    """Acknowledgements come in the order of append, each with its own offset, and a reader finds exactly those."""
    key, other = new_key(), new_key()
    acks = Acks()
    for number in range(60):
        acks.append(log, 3, key if number % 3 else other, [b"%d" % number], number)
    offsets = await acks.offsets()
    assert acks.names == list(range(60))
    assert offsets == sorted(set(offsets))
    reader = log.reader(3, key, offsets[0])
    found = await drain(reader, 40)
    reader.close()
    assert [(raw.offset, raw.value) for raw in found] == [(offsets[n], b"%d" % n) for n in range(60) if n % 3]


async def test_partitions_are_independent(log):
    """A key is read in the partition that it was written to, and in no other."""
    key = new_key()
    first, second = await end_of(log, 4), await end_of(log, 5)
    await written(log, 4, key, b"in four")
    await written(log, 5, key, b"in five")
    assert await read_values(log, 4, key, first, 1) == [b"in four"]
    assert await read_values(log, 5, key, second, 1) == [b"in five"]


async def test_several_values_are_one_record_with_one_acknowledgement(log):
    """The parts of a record stand one behind the other, and the acknowledgement names the last one's offset."""
    key, start = new_key(), await end_of(log, 6)
    acks = Acks()
    acks.append(log, 6, key, [b"part 0", b"part 1", b"part 2"], "whole")
    acks.append(log, 6, key, [b"behind"], "behind")
    last, behind = await acks.offsets()
    reader = log.reader(6, key, start)
    found = await drain(reader, 4)
    reader.close()
    assert [raw.value for raw in found] == [b"part 0", b"part 1", b"part 2", b"behind"]
    assert [raw.offset for raw in found] == [last - 2, last - 1, last, behind]


async def test_a_reader_replays_and_then_follows(log):
    """Reading from an offset gives what is there, says that it caught up, and goes on with what comes."""
    key = new_key()
    offsets = await written(log, 7, key, b"a", b"b", b"c")
    reader = log.reader(7, key, offsets[1])
    assert [raw.value for raw in await drain(reader, 2)] == [b"b", b"c"]
    await written(log, 7, key, b"d")
    assert [raw.value for raw in await drain(reader, 1)] == [b"d"]
    reader.close()


async def test_the_end_of_the_log_is_said_once_and_again_with_every(log):
    """A reader learns that nothing lies behind; without ``every`` other keys' records do not wake it any more."""
    key, other = new_key(), new_key()
    start = await end_of(log, 8)
    quiet = log.reader(8, key, start)
    told = log.reader(8, key, start, every=True)
    async with asyncio.timeout(WITHIN_S):
        first = await quiet.read()
        assert (list(first.records), first.caught_up, first.position) == ([], True, start)
        seen = await told.read()
        silent = asyncio.ensure_future(quiet.read())
        (offset,) = await written(log, 8, other, b"of another key")
        while seen.position <= offset:
            seen = await told.read()
            assert list(seen.records) == []
        assert seen.timestamp_ms is not None
        assert abs(seen.timestamp_ms - wall_ms()) < 60_000
        assert not silent.done()
        (mine,) = await written(log, 8, key, b"mine")
        progress = await silent
        while not progress.records:
            progress = await quiet.read()
    assert [(raw.offset, raw.value) for raw in progress.records] == [(mine, b"mine")]
    quiet.close()
    told.close()


async def test_readers_of_one_partition_stand_where_they_want(log):
    """Readers at different positions of one partition each get everything behind their own, once and in order."""
    key = new_key()
    offsets = await written(log, 9, key, *(b"%d" % n for n in range(20)))
    starts = (0, 5, 13, 19)
    readers = [log.reader(9, key, offsets[n]) for n in starts]
    await written(log, 9, key, b"live")
    for start, reader in zip(starts, readers, strict=True):
        found = [raw.value for raw in await drain(reader, 21 - start)]
        assert found == [b"%d" % n for n in range(start, 20)] + [b"live"]
        reader.close()


async def test_a_late_reader_with_a_lower_offset_disturbs_nobody(log):
    """A replay that begins below everyone else's position is served, and the others get nothing twice."""
    key = new_key()
    offsets = await written(log, 10, key, b"0", b"1", b"2", b"3")
    tail = log.reader(10, key, offsets[3])
    assert [raw.value for raw in await drain(tail, 1)] == [b"3"]
    late = log.reader(10, key, offsets[0])
    assert [raw.value for raw in await drain(late, 4)] == [b"0", b"1", b"2", b"3"]
    await written(log, 10, key, b"4")
    for reader in (tail, late):
        assert [raw.value for raw in await drain(reader, 1)] == [b"4"]
        reader.close()


async def test_a_slow_reader_goes_on_from_where_it_stood(log):
    """A reader that does not read holds a bounded buffer, slows nobody, and misses nothing afterwards."""
    key, count = new_key(), 24
    start = await end_of(log, 11)
    slow, fast = log.reader(11, key, start), log.reader(11, key, start)
    values = [b"%02d" % n + bytes(BUFFER_BYTES_MAX // 4) for n in range(count)]
    await written(log, 11, key, *values)
    assert [raw.value[:2] for raw in await drain(fast, count)] == [b"%02d" % n for n in range(count)]
    assert slow._bytes < 3 * BUFFER_BYTES_MAX
    assert [raw.value[:2] for raw in await drain(slow, count)] == [b"%02d" % n for n in range(count)]
    await written(log, 11, key, b"behind")
    for reader in (slow, fast):
        assert [raw.value for raw in await drain(reader, 1)] == [b"behind"]
        reader.close()


async def test_a_record_larger_than_one_fetch_is_read_beside_a_busy_partition(log):
    """A record above the fetch size comes whole, also while another partition always has something to read."""
    busy, key = new_key(), new_key()
    busy_reader = log.reader(12, busy, await end_of(log, 12))
    reader = log.reader(13, key, await end_of(log, 13))
    appended = Acks()

    async def keep_busy():
        while True:
            appended.append(log, 12, busy, [bytes(1_000)], None)
            await busy_reader.read()
            await asyncio.sleep(0)  # the fake answers without ever giving the loop away

    pumping = asyncio.ensure_future(keep_busy())
    big = bytes(890_000)
    await written(log, 13, key, *(b"%d" % n + big for n in range(4)))
    assert [raw.value[:1] for raw in await drain(reader, 4)] == [b"0", b"1", b"2", b"3"]
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)
    await appended.offsets()
    reader.close()
    busy_reader.close()


async def test_a_closed_reader_gets_nothing_and_takes_nothing_from_others(log):
    """Closing is idempotent and concerns one reader alone."""
    key, start = new_key(), await end_of(log, 14)
    closed, open_one = log.reader(14, key, start), log.reader(14, key, start)
    closed.close()
    closed.close()
    await written(log, 14, key, b"a")
    assert [raw.value for raw in await drain(open_one, 1)] == [b"a"]
    assert not closed._records
    open_one.close()


async def test_who_comes_a_moment_later_reads_the_same_to_the_end(log):
    """Readers that come one right after the other have the same records; each is told of the end as it is then."""
    key, other = new_key(), new_key()
    offsets = await written(log, 18, key, b"0", b"1")
    for number in range(2, 6):
        reader = log.reader(18, key, offsets[0], every=True)
        seen, caught_up = [], False
        while not caught_up:
            records, position, caught_up, _ = await reader.read()
            seen += [raw.value for raw in records]
        assert seen == [b"%d" % nth for nth in range(number)]
        assert position == (await log.bounds(18))[1]
        reader.close()
        await written(log, 18, other, b"x")
        offsets += await written(log, 18, key, b"%d" % number)


async def test_a_burst_of_others_leaves_nobody_behind(log):
    """A reader at the end, whose key is silent while others write more than one fetch holds, gets its next record."""
    key, other = new_key(), new_key()
    reader = log.reader(19, key, await end_of(log, 19), every=True)
    while not (await reader.read()).caught_up:
        pass
    reader.every = False
    for _ in range(3):
        await written(log, 19, other, *[bytes(20_000)] * 40)
        await written(log, 19, key, b"mine")
        assert [raw.value for raw in await drain(reader, 1)] == [b"mine"]
    reader.close()


async def test_an_offset_before_the_log_start_is_gone(backend):
    """Reading what retention took is an error that says where the log begins now; later offsets are not touched."""
    log, key = backend.log, new_key()
    offsets = await written(log, 15, key, b"0", b"1", b"2", b"3")
    tail = log.reader(15, key, offsets[3])
    assert [raw.value for raw in await drain(tail, 1)] == [b"3"]
    await backend.prune(15, offsets[2])
    reader = log.reader(15, key, offsets[0])
    with pytest.raises(OffsetGone) as gone:
        await drain(reader, 1)
    assert gone.value.start_offset == offsets[2]
    assert await log.bounds(15) == (offsets[2], offsets[3] + 1)
    assert await read_values(log, 15, key, offsets[2], 2) == [b"2", b"3"]
    await written(log, 15, key, b"4")
    assert [raw.value for raw in await drain(tail, 1)] == [b"4"]
    tail.close()


async def test_offset_at_finds_the_first_record_of_a_time(log):
    """A time gives the first offset that was appended at or after it, and none beyond the end."""
    key = new_key()
    (first,) = await written(log, 16, key, b"earlier")
    reader = log.reader(16, key, first)
    (earlier,) = await drain(reader, 1)
    await until(lambda: wall_ms() > earlier.timestamp_ms)
    (second,) = await written(log, 16, key, b"later")
    (later,) = await drain(reader, 1)
    reader.close()
    assert later.timestamp_ms > earlier.timestamp_ms
    assert await log.offset_at(16, later.timestamp_ms) == second
    assert await log.offset_at(16, earlier.timestamp_ms + 1) == second
    assert await log.offset_at(16, earlier.timestamp_ms) == first
    assert await log.offset_at(16, wall_ms() + 3_600_000) is None
    assert await log.offset_at(16, -1) == (await log.bounds(16))[0]


async def test_bounds_are_asked_now(log):
    """The next offset to be written is known the moment that an append is acknowledged."""
    key = new_key()
    first, end = await log.bounds(17)
    offsets = await written(log, 17, key, b"a", b"b")
    assert offsets[0] == end
    assert await log.bounds(17) == (first, end + 2)


@pytest.mark.parametrize("topic", ["control", "config"])
async def test_a_small_topic_is_read_from_the_beginning_and_then_live(backend, topic):
    """A reader of control or config gets what was said before it came, then what is said later."""
    log, before, after = backend.log, secrets.token_bytes(8), secrets.token_bytes(8)
    say = {"control": log.tell, "config": backend.configure}[topic]
    await say(new_key(), before)
    seen = []

    async def follow():
        async for value in getattr(log, topic)():
            seen.append(value)  # noqa: PERF401 - it never ends: each is looked at as it comes

    following = asyncio.ensure_future(follow())
    await until(lambda: before in seen and getattr(log, f"{topic}_read"))
    await say(new_key(), after)
    await until(lambda: after in seen)
    assert seen.count(before) == seen.count(after) == 1
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_stopping_flushes_what_was_appended(make_backend):
    """Every record that was appended before the stop has its acknowledgement when the stop returns."""
    backend = make_backend()
    await backend.log.start()
    acks, key = Acks(), new_key()
    for number in range(30):
        acks.append(backend.log, number % 2 + 18, key, [b"%d" % number], number)
    await backend.log.stop()
    assert sorted(acks.names) == list(range(30))
    assert not acks.failed


async def test_a_claim_is_read_back_where_it_was_put(backend):
    """Every claim is read from the topic's beginning, of one key in the order of their places, with the log's own time."""
    log = backend.log
    mine, other = new_key(), new_key()
    places = [await log.claim(mine, b"%d" % n) for n in range(3)]
    elsewhere = await log.claim(other, b"other")
    found = {}

    async def follow():
        async for placed in log.claims():
            found[placed.partition, placed.offset] = placed

    following = asyncio.ensure_future(follow())
    await until(lambda: log.claims_read and {*places, elsewhere} <= found.keys())
    live = await log.claim(mine, b"live")
    await until(lambda: live in found)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert [found[place].value for place in (*places, live)] == [b"0", b"1", b"2", b"live"]
    assert len({partition for partition, _ in (*places, live)}) == 1
    assert sorted({*places, live}) == [*places, live]
    assert all(abs(found[place].timestamp_ms - wall_ms()) < 60_000 for place in (*places, live))
