"""Sending: idempotent, acks=all, and replaced once it has failed.

A client whose batch expired without a leader is poisoned for ever on that partition (notes on Kafka, 1.4), so a failed
one is never used again. Before: ``fold_service``, ``app``. After: the broker.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from pipeline.kafka.closing import close
from schemas.errors import Transient
from schemas.settings import Kafka

BATCH_BYTES_MAX = 1 << 20
"""One open batch per partition is the client's whole buffer: large enough that one slow partition stalls no other."""
RETRY_BACKOFF_MS = 50
STOP_LIMIT_S = 3.0
"""One that never connected has nothing to send. The last one ends with the process: whoever sent has waited."""
UNRESOLVED_S = 5.0
"""Futures of a stopped client may never resolve: so long after the request time-out they are given up."""


class Message(NamedTuple):
    """A record to be sent; ``partition`` None: by its key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None


class Producer:
    """Idempotent, acks=all. A failed one is replaced, since it can be poisoned for ever.

    What it sends may be sent again: equal records of ours are one.
    """

    def __init__(self, settings: Kafka) -> None:
        self._settings = settings
        self._client: Any = None
        self._starting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connect; Transient while no broker answers."""
        async with self._starting:
            if self._client is None:
                self._client = await self._connected()

    async def _connected(self) -> Any:
        client = AIOKafkaProducer(
            bootstrap_servers=self._settings.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=BATCH_BYTES_MAX,
            request_timeout_ms=self._settings.request_timeout_ms,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            metadata_max_age_ms=self._settings.metadata_max_age_ms,
        )
        try:
            await client.start()
        except KafkaError as error:
            await close(client, STOP_LIMIT_S)
            raise Transient(f"no producer: {error!r}") from error
        return client

    async def send_all(self, messages: Sequence[Message]) -> None:
        """Send in order; returns when each is acknowledged. Transient: some may be, and all are to be sent again."""
        if not messages:
            return
        await self.start()
        client = self._client
        limit_s = self._settings.request_timeout_ms / 1000 + UNRESOLVED_S
        try:
            futures = [await _send(client, message) for message in messages]
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*futures)
        except MessageSizeTooLargeError:
            raise  # no later try can send it: a bug of whoever made the record
        except (KafkaError, TimeoutError) as error:
            self._replace(client)
            raise Transient(f"not acknowledged: {error!r}") from error

    def _replace(self, client: Any) -> None:
        """Leave the failed client to close in the background; the next send starts a new one."""
        if client is not self._client:
            return  # another sender met the same failure before
        self._client = None
        limit_s = self._settings.request_timeout_ms / 1000 + UNRESOLVED_S
        closing = asyncio.create_task(close(client, limit_s))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _send(client: Any, message: Message) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = await client.send(
        message.topic,
        message.value,
        key=message.key,
        partition=message.partition,
        headers=list(message.headers),
    )
    return future
