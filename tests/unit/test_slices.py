"""What a long replay asks of the log, and when: few requests, each sent before what came of the one before is worked on."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from edge.log.fetcher import FETCH_BYTES, Fetcher
from edge.reading.slices import SLICE_EVENTS_MAX, Slices

TOPIC, GENERATION = "events", "0199c0de-0000-7000-8000-000000000000"
LARGE, SMALL = 10_000, 100


class Broker:
    """One partition of records of one size, given in as many bytes as are asked for; ``asked`` holds those."""

    def __init__(self, count, record_bytes):
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: 0)
        self.count = count
        self.record_bytes = record_bytes
        self.asked = []

    def force_metadata_update(self):
        """Nothing is stale here."""

    async def send(self, node, request):
        """Answer a fetch; who asks at the end waits for ever."""
        del node
        ((_, ((number, offset, size),)),) = request._topics
        if offset >= self.count:
            await asyncio.Event().wait()
        self.asked.append(size)
        last = min(self.count, offset + max(1, size // self.record_bytes))
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
        for at in range(offset, last):
            value = bytes(self.record_bytes)
            builder.append(at - offset, timestamp=1, key=GENERATION.encode(), value=value, headers=[])
        written = bytearray(builder.build())
        written[0:8] = offset.to_bytes(8, "big")
        return SimpleNamespace(topics=[(TOPIC, [(number, 0, self.count, bytes(written))])])


class Decoded:
    """In place of what an edge's readers share: every record is known, and ``noted`` says what was so when it was wanted."""

    def __init__(self, note):
        self.noted = []
        self._note = note

    def find(self, generation_id, raw):
        """See Replays."""
        del generation_id
        self.noted.append(self._note())
        return raw


@pytest.fixture
async def replay():
    """Give what reads so many records from the first one on, and what it notes of each."""
    fetchers = []

    def begin(count, record_bytes, note):
        broker = Broker(count, record_bytes)
        fetcher = Fetcher(broker, broker, TOPIC)
        fetcher.start()
        fetchers.append(fetcher)
        log = SimpleNamespace(
            reader=lambda partition, key, offset: fetcher.reader(partition, key, offset, every=False)
        )
        decoded = Decoded(lambda: note(broker))
        return broker, decoded, Slices(log, None, GENERATION, 0, decoded)

    yield begin
    for fetcher in fetchers:
        await fetcher.stop()


async def taken(slices, count):
    """Read so many events; how many came at a time."""
    sizes = []
    while sum(sizes) < count:
        sizes.append(len(await asyncio.wait_for(slices.take(0), 10)))
    slices.close()
    return sizes


async def test_who_reads_on_is_given_more_at_a_time(replay):
    """A first range is short, each further one twice as large up to a bound: a long replay needs few requests."""
    count = 10 * FETCH_BYTES // LARGE
    broker, _, slices = replay(count, LARGE, lambda _: None)
    await taken(slices, count)
    assert [size // FETCH_BYTES for size in broker.asked] == [1, 2, 4, 4]


async def test_the_range_behind_is_asked_for_before_one_is_worked_on(replay):
    """When the first record of a range is decoded, the request for what follows it was sent, and no further one."""
    count = 7 * FETCH_BYTES // LARGE
    broker, decoded, slices = replay(count, LARGE, lambda broker: len(broker.asked))
    await taken(slices, count)
    assert len(broker.asked) >= 3
    assert decoded.noted[0] == 2
    assert decoded.noted == sorted(decoded.noted)


async def test_between_two_slices_the_loop_has_its_turn(replay):
    """A long range is decoded in slices, and what was due when one was begun is done before the next: bytes leave."""
    loop, due, turns = asyncio.get_running_loop(), [], []

    def note(_):
        if not due:
            due.append(loop.call_soon(lambda: (due.clear(), turns.append("one"))))
        return len(turns)

    count = 3 * SLICE_EVENTS_MAX
    _, decoded, slices = replay(count, SMALL, note)
    assert await taken(slices, count) == [SLICE_EVENTS_MAX] * 3
    firsts = decoded.noted[::SLICE_EVENTS_MAX]
    assert firsts == sorted(set(firsts))
    assert all(
        len(set(decoded.noted[at : at + SLICE_EVENTS_MAX])) == 1 for at in range(0, count, SLICE_EVENTS_MAX)
    )
