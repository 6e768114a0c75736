"""The shell around billing: one AttemptRecord in, its ledger lines acknowledged by Kafka, or a dead letter.

``settle`` returns when nothing of the record can be lost any more: every line is acknowledged, or the record lies among
the dead letters. It never raises, since an exception that leaves a Faust agent is an event acknowledged and lost:

- Poison goes to the dead letters, awaited.
- Transient (broker away, schema not seen yet) is tried again in place, without end and without overtaking; a schema that
  stays unknown for ``schema_wait_s`` becomes a dead letter.
- Anything else is a bug: ``halt`` ends the process like a crash, so that the record is read again. Sending a line twice
  is nothing: equal lines of one revision are one.
- ``stop`` is asked while a record cannot be settled: ``gave_up`` says so, and the record is left as it is, to be read
  again.

Before: ``tariff``. After: ``app`` feeds it; ``sinks`` store the lines.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from pipeline.dead_letters import Source
from pipeline.tariff import Tariff
from schemas.codec import Codec, check_key
from schemas.errors import Poison, SchemaUnknown, TokentrailError, Transient
from schemas.records import AttemptRecord
from schemas.topics import ATTEMPTS, LEDGER

STAGE = "billing"
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0  # a broker's fail-over takes 3-4 s: the first try after it comes soon


class _GivenUpError(TokentrailError):
    """The worker is to end while the log takes no records."""


class Publish(Protocol):
    """Sends a record and returns when it is acknowledged. Raises Transient."""

    def __call__(self, topic: str, key: bytes, value: bytes) -> Awaitable[object]:
        """Send."""


class DeadLetter(Protocol):
    """Puts a record aside, with its original bytes, and returns when that is acknowledged. Raises Transient."""

    def __call__(self, source: Source, poison: Poison, *, stage: str) -> Awaitable[object]:
        """Send."""


class BillingAgent:
    """Settles one attempt after the other; owns no connection and no clock but the event loop's.

    Args:
        codec: decodes attempts, encodes lines; learns foreign schemas elsewhere.
        tariff: prices, policies and terms.
        publish: to the ledger's topic.
        dead_letter: for what can never be billed.
        halt: ends the process at once without a commit; what it raises or returns is not used.
        schema_wait_s: how long an unknown fingerprint is waited for.
    """

    def __init__(
        self,
        *,
        codec: Codec,
        tariff: Tariff,
        publish: Publish,
        dead_letter: DeadLetter,
        halt: Callable[[BaseException], object],
        schema_wait_s: float = 30.0,
    ) -> None:
        self._codec = codec
        self._tariff = tariff
        self._publish = publish
        self._dead_letter = dead_letter
        self._halt = halt
        self._schema_wait_s = schema_wait_s
        self._stopping = asyncio.Event()
        self.gave_up = asyncio.Event()
        self.attempts_settled = 0
        self.lines_published = 0
        self.lines_unpriced = 0
        self.dead_letters = 0
        self.retries = 0

    def stop(self) -> None:
        """No try is repeated from now on: a record that cannot be settled is given up instead."""
        self._stopping.set()

    async def settle(
        self, key: bytes | None, value: bytes | None, *, partition: int = -1, offset: int = -1
    ) -> None:
        """Bill one record of the attempts topic; returns when it may be acknowledged.

        Args:
            key: the record's key, as it lay in the topic.
            value: its value.
            partition: where it lay, for its dead letter.
            offset: where it lay.
        """
        try:
            try:
                await self._bill(key, value)
            except Poison as poison:
                send = partial(
                    self._dead_letter, Source(ATTEMPTS.name, partition, offset, key, value), poison
                )
                await self._until_done(partial(send, stage=STAGE))
                self.dead_letters += 1
            self.attempts_settled += 1
        except _GivenUpError:
            self.gave_up.set()
            await asyncio.Event().wait()  # never: who returned would have it acknowledged
        except Exception as bug:  # noqa: BLE001 - whatever it is: this record must not be acknowledged
            self._halt(bug)
            await asyncio.Event().wait()  # never: until the process ends, or this task is cancelled with it

    async def _bill(self, key: bytes | None, value: bytes | None) -> None:
        record = await self._decoded(value)
        check_key(key, record.generation_id)
        lines = self._tariff.bill(record)
        self.lines_unpriced += sum(line.status == "unpriced" for line in lines)
        key_bytes = record.generation_id.encode()
        sends = [partial(self._publish, LEDGER.name, key_bytes, self._codec.encode(line)) for line in lines]
        done = await asyncio.gather(*map(self._until_done, sends), return_exceptions=True)
        for outcome in done:  # all are settled by now, so that none is left running when one has failed
            if isinstance(outcome, BaseException):
                raise outcome
        self.lines_published += len(lines)

    async def _decoded(self, value: bytes | None) -> AttemptRecord:
        """The record; a schema that is not known yet is waited for."""
        waited_s, backoff_s = 0.0, BACKOFF_FIRST_S
        while True:
            try:
                return self._codec.decode(value, AttemptRecord)
            except SchemaUnknown as unknown:
                if waited_s >= self._schema_wait_s:
                    raise Poison("schema_version", str(unknown)) from unknown
                await self._pause(backoff_s, unknown)
                waited_s, backoff_s = waited_s + backoff_s, min(backoff_s * 2, BACKOFF_MAX_S)

    async def _until_done(self, send: Callable[[], Awaitable[object]]) -> None:
        """Send until it is acknowledged."""
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                await send()
            except Transient as failure:
                await self._pause(backoff_s, failure)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
            else:
                return

    async def _pause(self, backoff_s: float, why: Transient) -> None:
        """Wait for the next try; where the worker stops instead, give up loudly."""
        self.retries += 1
        try:
            async with asyncio.timeout(backoff_s):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise _GivenUpError("the worker stops while a record is not settled; it is read again") from why
