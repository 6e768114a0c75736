"""The schemas topic, as this process uses it: announce what it writes, learn what others wrote.

Before: ``fold_service``, ``app``. After: ``kafka``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from pipeline.kafka import Message
from schemas.codec import HEADER_BYTES, MAGIC, Codec
from schemas.errors import Poison, Transient
from schemas.registry import missing
from schemas.topics import SCHEMAS

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0

log = structlog.get_logger(__name__)

Read = Callable[[], Awaitable[Sequence[tuple[bytes | None, bytes | None]]]]
Send = Callable[[Sequence[Message]], Awaitable[None]]


class SchemaTopic:
    """What is known of the topic.

    Args:
        codec: learns the schemas.
        read: every record of the topic (fingerprint, schema). Raises Transient.
        send: returns when everything is acknowledged. Raises Transient.
    """

    def __init__(self, codec: Codec, read: Read, send: Send) -> None:
        self._codec = codec
        self._read = read
        self._send = send
        self._stopping = asyncio.Event()

    async def learn(self) -> set[str]:
        """Read the topic; the fingerprints that it holds. What is no schema there is logged and left alone."""
        present: set[str] = set()
        for key, value in await self._read():
            if value is None:
                continue
            try:
                present.add(self._codec.learn(value.decode(errors="replace")))
            except Poison as poison:
                log.warning("no schema in the schemas topic", key=repr(key), detail=poison.detail)
        return present

    async def announce(self) -> None:
        """Put the own schemas there, before the first record that needs them."""
        unknown = missing(self._codec, await self.learn())
        await self._send([Message(SCHEMAS.name, fp.encode(), text.encode()) for fp, text in unknown.items()])

    def stop(self) -> None:
        """Nothing is waited for any more."""
        self._stopping.set()

    async def wait_for(self, fingerprint: str, wait_s: float) -> None:
        """Read the topic again until it holds the schema. Poison (schema_version) after ``wait_s``.

        Also returns once ``stop`` is called. Raises Transient where the topic cannot be read.
        """
        clock = asyncio.get_running_loop().time
        deadline, backoff_s = clock() + wait_s, BACKOFF_FIRST_S
        while not self._stopping.is_set():
            await self.learn()
            if self._codec.knows(fingerprint):
                return
            if clock() >= deadline:
                raise Poison("schema_version", f"schema {fingerprint} is not in {SCHEMAS.name}")
            log.warning("a schema is not known yet", fingerprint=fingerprint)
            try:
                async with asyncio.timeout(backoff_s):
                    await self._stopping.wait()
            except TimeoutError:
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def look_up(self, value: bytes | None, wait_s: float) -> None:
        """Wait for the schema of these bytes where it is not known; what becomes of them their reader decides."""
        if value is None or value[: len(MAGIC)] != MAGIC or len(value) < HEADER_BYTES:
            return
        fingerprint = value[len(MAGIC) : HEADER_BYTES].hex()
        if self._codec.knows(fingerprint):
            return
        try:
            await self.wait_for(fingerprint, wait_s)
        except (Poison, Transient) as error:
            log.warning("schema not found", fingerprint=fingerprint, error=str(error))
