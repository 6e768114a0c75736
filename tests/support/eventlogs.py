"""The two logs that pass one suite, each with a way to prune it, and short words for writing and reading."""

import secrets
import time

from compose.kafka import admin, publish
from edge.log.kafka import KafkaLog
from edge.log.memory import MemoryLog
from schemas.codec import Codec
from schemas.ids import uuid7
from schemas.settings import Settings
from schemas.topics import CONFIG, EVENTS
from tests.support.waiting import Acks, drain


def wall_ms():
    """Give the wall time in milliseconds."""
    return time.time_ns() // 1_000_000


def new_key():
    """Give a key that no other test writes to."""
    return uuid7(wall_ms(), secrets.randbits(74)).encode()


class MemoryBackend:
    """The log in memory, and how to prune it."""

    def __init__(self):
        self.log = MemoryLog(wall_ms)

    async def prune(self, partition, before_offset):
        """Take out what lies below an offset."""
        self.log.drop(partition, lambda record: record[0] < before_offset)

    async def configure(self, key, value):
        """Say something on the config topic, as an operator does."""
        del key
        self.log.put_config(value)


class KafkaBackend:
    """The session's broker, and how to prune it."""

    def __init__(self, bootstrap_servers):
        self._bootstrap_servers = bootstrap_servers
        self.log = KafkaLog(Settings(kafka={"bootstrap_servers": bootstrap_servers}), Codec())

    async def configure(self, key, value):
        """Say something on the config topic, as an operator does."""
        await publish(self._bootstrap_servers, CONFIG.name, [(key, value)])

    async def prune(self, partition, before_offset):
        """Take out what lies below an offset."""
        from aiokafka.admin import RecordsToDelete
        from aiokafka.structs import TopicPartition

        where = TopicPartition(EVENTS.name, partition)
        async with admin(self._bootstrap_servers) as cluster:
            await cluster._client.delete_records({where: RecordsToDelete(before_offset=before_offset)})


async def written(log, partition, key, *values):
    """Append values as records of their own; their offsets, once all are acknowledged."""
    acks = Acks()
    for value in values:
        acks.append(log, partition, key, [value], value)
    return await acks.offsets()


async def end_of(log, partition):
    """Give the next offset of a partition."""
    return (await log.bounds(partition))[1]


async def read_values(log, partition, key, offset, count):
    """Read that many values of a key from an offset on."""
    reader = log.reader(partition, key, offset)
    try:
        return [raw.value for raw in await drain(reader, count)]
    finally:
        reader.close()
