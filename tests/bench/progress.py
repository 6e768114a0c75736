"""How far a consumer group came, and when: a backlog's rate is the slope between its first and its last commit seen.

Starting up is not in it, nor is the last commit, which may wait for its time. Before: `row_fold`, `row_sink`. After: the
broker.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError

from tests.bench.stack import BenchFailed

POLL_S = 0.05
"""Asking costs client and broker some 2 ms."""
DEADLINE_S = 120.0
SAMPLES_MIN = 3


class Sample(NamedTuple):
    """The group had done so many records at that time; its process had used so much CPU."""

    at_s: float
    records: int
    cpu_s: float


async def ends(bootstrap_servers: str, *topics: str) -> dict[str, int]:
    """Topic → how many records were ever written to it."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False)
    await consumer.start()
    try:
        await consumer._client.force_metadata_update()
        wanted = [
            TopicPartition(t, p) for t in topics for p in consumer._client.cluster.partitions_for_topic(t)
        ]
        found = await consumer.end_offsets(wanted)
    finally:
        await consumer.stop()
    return {topic: sum(end for tp, end in found.items() if tp.topic == topic) for topic in topics}


class GroupWatch:
    """The commits of a group on one topic. ``done_of``: a commit (offset and metadata) → records done."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, done_of: Callable[[Any], int]) -> None:
        self._client = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        self._group, self._topic, self._done_of = group, topic, done_of

    async def __aenter__(self) -> Self:
        await self._client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def records(self) -> int:
        """Records done now."""
        try:
            committed: Mapping[Any, Any] = await self._client.list_consumer_group_offsets(self._group)
        except GroupCoordinatorNotAvailableError:
            return 0  # the first group of a new broker: the topic of the commits is just being made
        return sum(
            self._done_of(at) for tp, at in committed.items() if tp.topic == self._topic and at.offset >= 0
        )

    async def until(self, total: int, cpu_s: Callable[[], float]) -> list[Sample]:
        """Every commit that was seen until all is done; BenchFailed where that takes too long."""
        samples: list[Sample] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while not samples or samples[-1].records < total:
            records = await self.records()
            if not samples or samples[-1].records != records:
                samples.append(Sample(time.perf_counter(), records, cpu_s()))
            if time.monotonic() > deadline_s:
                raise BenchFailed(f"{self._group} did {records} of {total} records in {DEADLINE_S:.0f} s")
            await asyncio.sleep(POLL_S)
        return samples


def rate_of(samples: Sequence[Sample]) -> dict[str, float]:
    """Records per second and CPU per record, between the first commit after the start and the last before the end."""
    within = samples[1:-1]
    if len(within) < SAMPLES_MIN:
        raise BenchFailed(f"only {len(within)} commits were seen: measure more records")
    first, last = within[0], within[-1]
    records = last.records - first.records
    return {
        "records_per_s": records / (last.at_s - first.at_s),
        "cpu_us_per_record": (last.cpu_s - first.cpu_s) * 1e6 / records,
    }
