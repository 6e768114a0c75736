"""The reading passes over several brokers, in front of stubs of the vendor's client: one that is silent holds up no other."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from edge.log.fetcher import Fetcher
from tests.support.waiting import until

TOPIC, KEY = "events", b"k" * 36


def batch(offset, value):
    """Give a record as a broker sends it."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, timestamp=1, key=KEY, value=value, headers=[])
    written = bytearray(builder.build())
    written[0:8] = offset.to_bytes(8, "big")
    return bytes(written)


class Brokers:
    """A cluster in which each partition has a broker of its number; a silent one answers when it is let."""

    def __init__(self):
        self.cluster = SimpleNamespace(leader_for_partition=lambda place: place.partition)
        self.records = {0: [], 1: []}
        self.news = asyncio.Event()
        self.silent = None
        self.hanging = 0

    def force_metadata_update(self):
        """Nothing is stale here."""

    def put(self, number, value):
        """Append, and answer who waits for it."""
        self.records[number].append(value)
        self.news.set()

    async def send(self, node, request):
        """Answer a fetch; at the end of a partition after the wait that it allows, or with what comes meanwhile."""
        if node == self.silent:
            self.hanging += 1
            await asyncio.Event().wait()
        ((_, places),) = request._topics
        (number, offset, _), *_ = places
        held = self.records[number]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(request._max_wait_ms / 1000):
                while offset >= len(held):
                    self.news.clear()
                    await self.news.wait()
        said = batch(offset, held[offset]) if offset < len(held) else b""
        return SimpleNamespace(topics=[(TOPIC, [(number, 0, len(held), said)])])


async def test_a_silent_broker_holds_up_no_other():
    """While one does not answer at all, its readers wait; another's are given what comes, at the tail and from behind."""
    brokers = Brokers()
    fetcher = Fetcher(brokers, brokers, TOPIC)
    fetcher.start()
    try:
        stuck, live = (fetcher.reader(number, KEY, 0, every=False) for number in (0, 1))
        for reader in (stuck, live):
            assert (await asyncio.wait_for(reader.read(), 10)).caught_up
        brokers.silent = 0
        waiting = asyncio.ensure_future(stuck.read())
        await until(lambda: brokers.hanging)
        for value in (b"a", b"b", b"c"):
            brokers.put(1, value)
            found = await asyncio.wait_for(live.read(), 10)
            assert [record.value for record in found.records] == [value]
        again, seen = fetcher.reader(1, KEY, 0, every=False), []
        while len(seen) < 3:
            seen += [record.value for record in (await asyncio.wait_for(again.read(), 10)).records]
        assert seen == [b"a", b"b", b"c"]
        assert not waiting.done()
        waiting.cancel()
    finally:
        await fetcher.stop()


async def test_a_bug_in_one_answer_ends_the_pass_aloud():
    """What is no answer at all is a bug, and the edge says that it cannot read."""
    brokers = Brokers()
    brokers.send = lambda *_: asyncio.sleep(0, SimpleNamespace(topics=None))
    fetcher = Fetcher(brokers, brokers, TOPIC)
    fetcher.start()
    try:
        with pytest.raises(Exception, match="cannot read the log"):
            await asyncio.wait_for(fetcher.reader(0, KEY, 0, every=False).read(), 10)
        assert fetcher.broken
    finally:
        await fetcher.stop()
