"""The idempotency keys of the last day, as the claims topic has them: this edge's memory of who claimed what.

Every edge reads the whole topic, so every edge knows every claim; of one key they stand in log order. What is forgotten:
a claim that is out of the topic's own retention by the log's times, the oldest ones above ``limit.claims_max``, and one
of which it is known that it can never win again. A key is kept as a hash of tenant and text. Before: ``log``. After:
``once``.
"""

import asyncio
import hashlib
import heapq
from collections.abc import Callable
from typing import NamedTuple

import structlog

from edge.log import EventLog, Placed
from edge.reading.decode import said_in
from schemas.codec import Codec
from schemas.records import ClaimRecord
from schemas.topics import CLAIMS, DAY_MS

log = structlog.get_logger()


class Claim(NamedTuple):
    """A generation claims a key. ``at_ms`` is the log's own time."""

    at_ms: int
    offset: int
    partition: int
    generation_id: str
    body_hash: bytes


def key_of(tenant: str, text: str) -> str:
    """The name of a tenant's key: its text goes nowhere. The length keeps tenant and text apart."""
    return hashlib.sha256(f"{len(tenant)}:{tenant}:{text}".encode()).hexdigest()


class Claims:
    """All claims that count.

    Args:
        claims_max: so many at the most.
        on_forgotten: told of each that was forgotten because of it.

    """

    def __init__(self, claims_max: int, on_forgotten: Callable[[], None] = lambda: None) -> None:
        self._max = claims_max
        self._on_forgotten = on_forgotten
        self._by_key: dict[bytes, list[Claim]] = {}
        self._by_age: list[tuple[Claim, bytes]] = []  # a heap
        self._newest_ms = 0
        self._position: dict[int, int] = {}
        self._waiting: dict[tuple[int, int], list[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._by_age)

    async def follow(self, event_log: EventLog, codec: Codec) -> None:
        """Take what the topic says; runs until cancelled."""
        async for placed in event_log.claims():
            record = await said_in(event_log, codec, placed.value, ClaimRecord)
            try:
                if record is not None:
                    self.take(placed, record)
            except ValueError as error:
                log.warning("claim skipped", error=str(error))
            self._reached(placed)

    def take(self, placed: Placed, record: ClaimRecord) -> None:
        """Remember a claim; hearing it again changes nothing. ValueError for one that is no claim of ours."""
        key = bytes.fromhex(record.claim_key)
        claim = Claim(
            placed.timestamp_ms,
            placed.offset,
            placed.partition,
            record.generation_id,
            bytes.fromhex(record.body_hash),
        )
        known = self._by_key.setdefault(key, [])
        if claim in known:
            return
        known.append(claim)
        known.sort(key=lambda one: one.offset)  # one that is heard again stands where it stood
        heapq.heappush(self._by_age, (claim, key))
        self._newest_ms = max(self._newest_ms, claim.at_ms)
        oldest_ms = self._newest_ms - (CLAIMS.retention_ms or 0)
        while self._by_age and (len(self._by_age) > self._max or self._by_age[0][0].at_ms < oldest_ms):
            dropped, of_key = heapq.heappop(self._by_age)
            self._drop(of_key, dropped)
            if self._newest_ms - dropped.at_ms <= DAY_MS:
                self._on_forgotten()

    def standing(self, key: str, at_ms: int) -> list[Claim]:
        """The claims of a key, in log order, that are no older than a day at a time."""
        return [claim for claim in self._by_key.get(bytes.fromhex(key), ()) if at_ms - claim.at_ms <= DAY_MS]

    def forget(self, key: str, claim: Claim) -> None:
        """A claim can never win again: its generation ended in an error before any content."""
        self._drop(bytes.fromhex(key), claim)

    async def reached(self, partition: int, offset: int) -> None:
        """Wait until the topic was read up to and with an offset."""
        if self._position.get(partition, 0) > offset:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((partition, offset), []).append(waiter)
        await waiter

    def _reached(self, placed: Placed) -> None:
        self._position[placed.partition] = placed.offset + 1
        for waiter in self._waiting.pop((placed.partition, placed.offset), ()):
            if not waiter.done():
                waiter.set_result(None)

    def _drop(self, key: bytes, claim: Claim) -> None:
        known = self._by_key.get(key, [])
        if claim in known:
            known.remove(claim)
        if not known:
            self._by_key.pop(key, None)
