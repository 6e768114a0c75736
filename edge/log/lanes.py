"""The publisher: one lane per partition, one batch of a lane in flight, the rest gathers behind it.

Batching is what makes a durable chunk cheap: a produce request costs far more than a record. Nothing waits for a timer
while the process is idle; under load whatever came while a batch was in flight, or since the last tick, travels together.
What somebody waits for (an opening, a first content, an end) waits for no tick: ``hurry``. The order of a lane is
the order of ``append``; a record is handed to the producer once and never again by us.

A batch that fails poisons its producer (idempotence has lost its sequence): the lane goes on with a fresh producer, and
only once everything that the old one had of this lane has settled, which one batch in flight gives for free. What waits
behind a failed batch under one of its keys fails with it, unsent: no part of a record and no end of a stream lands
behind a hole. What is appended afterwards is sent.

Before: ``driver`` (through ``EventLog.append``). After: ``kafka`` owns the producers.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from edge.log import OnAck, OnFail
from schemas.events import Struct

BATCH_BYTES_MAX = 900_000
"""Below the broker's default 1 MiB with the batch's own overhead; a single record is below it by ``schemas.parts``."""
RECORD_OVERHEAD_BYTES = 70
QUIET_TICKS = 5
"""After so many ticks without a departure there is no load to gather for."""


class Item(Struct, frozen=True):
    """One value on its way; the callbacks belong to the last value of a record."""

    key: bytes
    value: bytes
    on_ack: OnAck | None
    on_fail: OnFail


Send = Callable[[int, Sequence[Item]], Awaitable[int]]
"""Publish a batch to a partition; returns the base offset (≥ 0) or raises."""


class Lanes:
    """All lanes of one process.

    Args:
        send: publishes one batch; must not send it again by itself after it failed.
        gather_s: a busy process lets records of so much time share a request.

    """

    def __init__(self, send: Send, gather_s: float) -> None:
        self._send = send
        self._gather_s = gather_s
        self._queues: dict[int, deque[Item]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._hurried: set[int] = set()
        self._next_tick: asyncio.Future[None] | None = None
        self._strikes: asyncio.TimerHandle | None = None
        self._left_s = float("-inf")
        self._idle = asyncio.Event()
        self._idle.set()

    def append(
        self, partition: int, key: bytes, values: Sequence[bytes], on_ack: OnAck, on_fail: OnFail
    ) -> None:
        """See EventLog.append."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = deque()
        if len(values) > 1:
            queue.extend(Item(key, part, None, on_fail) for part in values[:-1])
        queue.append(Item(key, values[-1], on_ack, on_fail))
        if partition not in self._tasks:
            self._idle.clear()
            self._tasks[partition] = asyncio.get_running_loop().create_task(self._run(partition, queue))

    def hurry(self, partition: int) -> None:
        """See EventLog.hurry. The lanes that wait for the tick leave with it: together they are one produce request."""
        if self._queues.get(partition):
            self._hurried.add(partition)
            self._strike()

    async def _tick(self, partition: int) -> None:
        """Leave at once after a quiet while or in a hurry, else at the process's next tick.

        Lanes that leave together share one produce request of the producer.
        """
        loop = asyncio.get_running_loop()
        if partition in self._hurried:
            self._left_s = loop.time()
            return
        if self._next_tick is None:
            now_s = loop.time()
            if now_s - self._left_s > QUIET_TICKS * self._gather_s:
                self._left_s = now_s
                return
            self._next_tick = loop.create_future()
            self._strikes = loop.call_later(self._gather_s, self._strike)
        await asyncio.shield(self._next_tick)

    def _strike(self) -> None:
        tick, self._next_tick = self._next_tick, None
        strikes, self._strikes = self._strikes, None
        if tick is None or strikes is None:
            return
        strikes.cancel()  # it may be struck early
        self._left_s = asyncio.get_running_loop().time()
        tick.set_result(None)

    async def drain(self) -> None:
        """Wait until every queued record has settled."""
        await self._idle.wait()

    async def abandon(self) -> None:
        """Give up what is queued, untold: the process ends."""
        running = list(self._tasks.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, partition: int, queue: deque[Item]) -> None:
        try:
            while queue:
                if self._gather_s:
                    await self._tick(partition)
                self._hurried.discard(partition)
                batch = _take(queue)
                try:
                    base = await self._send(partition, batch)
                except Exception as error:  # noqa: BLE001 - whatever the producer raises is this batch's outcome
                    _settle_failed([*batch, *_withdraw(queue, {item.key for item in batch})], error)
                else:
                    _settle(batch, base)
        finally:
            del self._tasks[partition]
            if not self._tasks:
                self._idle.set()


def _take(queue: deque[Item]) -> list[Item]:
    batch = [queue.popleft()]
    size = len(batch[0].value) + RECORD_OVERHEAD_BYTES
    while queue and (size := size + len(queue[0].value) + RECORD_OVERHEAD_BYTES) <= BATCH_BYTES_MAX:
        batch.append(queue.popleft())
    return batch


def _withdraw(queue: deque[Item], keys: set[bytes]) -> list[Item]:
    """Take the items of these keys out of the queue."""
    waiting = list(queue)
    queue.clear()
    queue.extend(item for item in waiting if item.key not in keys)
    return [item for item in waiting if item.key in keys]


def _settle(batch: list[Item], base: int) -> None:
    for i, item in enumerate(batch):
        if item.on_ack is not None:
            item.on_ack(base + i)


def _settle_failed(batch: list[Item], error: Exception) -> None:
    """Tell each record once: its parts share a callback, and so may the records of one writer."""
    told: set[OnFail] = set()
    for item in batch:
        if item.on_fail not in told:
            told.add(item.on_fail)
            item.on_fail(error)
