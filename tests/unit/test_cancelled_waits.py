"""What waits for the log is ended by a cancellation, in whatever moment that comes, and by the end of the process."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaTimeoutError

from edge.log.kafka import KafkaLog
from tests.support.edge import CODEC, settings_of, turns


class OneAnswer:
    """A producer whose acknowledgement the test gives."""

    def __init__(self):
        self.sent = asyncio.Event()
        self.answer = asyncio.get_running_loop().create_future()

    async def send_and_wait(self, *_, **__):
        """Give the test's answer."""
        self.sent.set()
        return await self.answer


@pytest.mark.parametrize("turns_between", range(6))
async def test_a_reader_that_leaves_as_it_is_announced_is_announced_no_more(turns_between):
    """The acknowledgement and the end of the connection come together: the announcing ends with the connection."""
    log, producer = KafkaLog(settings_of(), CODEC), OneAnswer()
    log._producers = [producer]

    async def announce():
        while True:
            await log.tell(b"key", b"value")
            await asyncio.sleep(3600)  # the period of the announcements

    task = asyncio.ensure_future(announce())
    await producer.sent.wait()
    producer.answer.set_result(SimpleNamespace(offset=7))
    for _ in range(turns_between):
        await asyncio.sleep(0)
    task.cancel()
    await turns(20)
    assert task.cancelled()


class NoBroker:
    """A producer whose broker went away for good: it has no room for a batch, and does not stop either."""

    def create_batch(self):
        """Give a batch that takes everything."""
        return SimpleNamespace(append=lambda **_: 0, close=lambda: None)

    async def send_batch(self, *_, **__):
        """Have no room."""
        await asyncio.sleep(0)
        raise KafkaTimeoutError

    async def stop(self):
        """Wait for what was queued."""
        await asyncio.Event().wait()

    @property
    def client(self):
        """Its connections."""
        return SimpleNamespace(close=nothing)


async def nothing(*_):
    """Stop at once."""


async def test_an_edge_without_a_broker_stops(monkeypatch):
    """Records wait for a broker that never comes back: a stop gives them up after its time."""
    monkeypatch.setattr("edge.log.connections.STOP_LIMIT_S", 0.05)
    monkeypatch.setattr("edge.log.kafka.DRAIN_S", 0.05)
    log = KafkaLog(settings_of(), CODEC)
    log._producers = [NoBroker()]
    log._fetcher = log._asker = SimpleNamespace(stop=nothing)
    log.append(0, b"key", [b"value"], lambda _: None, lambda _: None)
    async with asyncio.timeout(10):
        await log.stop()
