"""THE order of a sink: read → batch → insert → commit. It is written here, once.

``turn`` has steps 1 and 2, ``_settle`` steps 3 and 4. One batch at a time is settled while the next is read; it is
inserted and committed before the next one is, so nothing is reordered. Whatever happens between two steps, a restart
reads from the commit, and what was inserted already is inserted again: the tables' keys make it one row.

Everything this file touches is given to it (``Source``, ``Store``, ``Graveyard``, ``Schemas``, a clock), so that
``tests/unit/test_sink_loop.py`` can crash it between each pair of steps. Before: ``kafka``. After: ``clickhouse``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from schemas.errors import Poison, SchemaUnknown
from sinks.batch import Batch, Full, Limits, RawRecord, token_of
from sinks.erasure import erasure_of
from sinks.store import Erasure, Refused, Row, Table, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sinks.intake import Intake

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
"""A warehouse that comes back is found within it; one that has too many parts gets time to merge."""
LET_GO_S = 5.0
"""How long a rebalance waits for the batch under way: below the group's session time-out (6 s)."""
SCHEMA_POLL_S = 0.5
READ_WAIT_S = 0.5
"""A read without records ends then, so that a stop is heard however old a batch may get."""

_log = structlog.get_logger("sinks")


class Source(Protocol):
    """The log, as one member of the table's consumer group sees it."""

    async def read(self, wait_s: float) -> Sequence[RawRecord]:
        """The next records of each partition in order; none after ``wait_s`` without any."""

    async def commit(self, next_offsets: Mapping[int, int]) -> None:
        """Say where a restart begins. A partition that is no longer ours is left out."""


class Store(Protocol):
    """The row store (``sinks.store.RowStore``) from a coroutine."""

    async def insert(self, table: Table, rows: Sequence[Row], token: str) -> None:
        """Store all rows or none; raises Refused or Unavailable."""

    async def erase(self, erasure: Erasure) -> None:
        """Erase what is forgotten; raises Unavailable."""


class Graveyard(Protocol):
    """The dead letters."""

    async def bury(self, record: RawRecord, stage: str, reason: str, detail: str) -> None:
        """Write a dead letter; returns when Kafka has acknowledged it."""


class Schemas(Protocol):
    """The schemas topic."""

    async def refresh(self) -> None:
        """Learn what was published since the last time."""


class Ports(NamedTuple):
    """What a loop is connected to. ``clock`` gives seconds of a monotonic clock."""

    source: Source
    store: Store
    graveyard: Graveyard
    schemas: Schemas
    clock: Callable[[], float]


class Work:
    """What was read and is not settled. It is replaced whole when partitions are given away."""

    __slots__ = ("batch", "intake")

    def __init__(self, intake: Intake, limits: Limits) -> None:
        self.batch = Batch(limits)
        self.intake = intake

    def take(self) -> Full:
        """The batch, its offsets lowered to where unfinished records begin."""
        full = self.batch.take()
        floors = {p: self.intake.floor(p) for p in full.next_offsets}
        lowered = {
            p: offset if (low := floors[p]) is None else min(offset, low)
            for p, offset in full.next_offsets.items()
        }
        return full._replace(next_offsets=lowered)


class _GivenUpError(Exception):
    """This work is not ours to finish any more. Nothing of it was committed, so nothing is lost."""


class Loop:
    """The sink of one table.

    Args:
        table: where the rows go.
        intake: makes the record → row step anew, without memory of what was read before.
        schema_wait_s: how long an unknown schema is waited for before its record becomes a dead letter.
    """

    def __init__(
        self, table: Table, intake: Callable[[], Intake], ports: Ports, limits: Limits, schema_wait_s: float
    ) -> None:
        self._table = table
        self._intake = intake
        self._ports = ports
        self._limits = limits
        self._schema_wait_s = schema_wait_s
        self._stop = asyncio.Event()
        self._work = Work(intake(), limits)
        self._settling: asyncio.Task[None] | None = None
        self._gave_up = False  # stopped before a batch could be stored: nothing behind it may be committed
        self.rows_stored = self.dead_letters = 0
        self.stored: dict[int, int] = {}  # by partition, the offset behind what is stored and committed
        self.stored_until_ms: int | None = None  # the log's own time of what of it was read last

    async def run(self) -> None:
        """Turn until ``stop``, then settle what was read."""
        while not self._stop.is_set():
            await self.turn()
        await self.flush()

    def stop(self) -> None:
        """End after the turn under way."""
        self._stop.set()

    async def turn(self) -> None:
        """Steps 1 and 2; a batch that is due goes on to 3 and 4."""
        ports = self._ports
        await asyncio.sleep(
            0
        )  # a backlog is read without a wait: the insert, heartbeats and others get their turn
        # 1. Read. Nothing of it is committed: a crash from here on reads it again.
        records = await ports.source.read(min(self._work.batch.wait_s(ports.clock()), READ_WAIT_S))
        # 2. Batch. A record becomes a row, a part of a row to come, or a dead letter that Kafka has acknowledged.
        work = self._work  # as of the records: partitions may have been given away while we waited for them
        if self._gave_up:
            return
        now = ports.clock()
        rows: list[Row | None] = []
        try:
            for record in records:
                try:
                    row = work.intake.row(record)
                except (Poison, SchemaUnknown) as error:
                    row = await self._without_row(work, record, error)
                rows.append(row)
        except _GivenUpError:
            return  # the rest is not in the batch, so it is not committed either: it is read again
        finally:
            work.batch.add(records[: len(rows)], rows, now)
        if work.batch.due(ports.clock()):
            await self._settled()
            if work is self._work:
                self._settling = asyncio.create_task(self._settle(work, work.take()))
        elif self._settling is not None and self._settling.done():
            await self._settled()

    async def flush(self) -> None:
        """Settle what was read so far, whether it is due or not."""
        await self._settled()
        if not self._gave_up:
            await self._settle(self._work, self._work.take())

    async def let_go(self) -> None:
        """Partitions are about to be given away: settle the batch under way if that is quick, forget the rest."""
        self.forget()
        if self._settling is not None:
            await asyncio.wait({self._settling}, timeout=LET_GO_S)

    def forget(self) -> None:
        """Forget what was read and is not settled: it is read again, from the commit, by whoever has its partition."""
        self._work = Work(self._intake(), self._limits)

    async def _settle(self, work: Work, full: Full) -> None:
        try:
            # 3. Insert. Ends when the store has every row, except those that lie as acknowledged dead letters.
            await self._insert(work, full.rows, full.records)
            # Part of it: what the rows say is forgotten goes, and goes again whenever they are inserted again.
            await self._erase(work, full.rows)
        except _GivenUpError:
            self._gave_up = self._gave_up or work is self._work
            return
        # 4. Commit. Only what step 3 has secured. A crash before it inserts the same rows again, under the same keys.
        if full.next_offsets:
            await self._ports.source.commit(full.next_offsets)
        self.rows_stored += len(full.rows)
        self.stored.update(full.next_offsets)
        if full.records:
            self.stored_until_ms = full.records[-1].timestamp

    async def _settled(self) -> None:
        if self._settling is not None:
            await self._settling
            self._settling = None

    async def _insert(self, work: Work, rows: Sequence[Row], records: Sequence[RawRecord]) -> None:
        """Insert in order; what is refused is halved until the row is found, which becomes a dead letter."""
        pending = [(rows, records)] if rows else []
        while pending:
            rows, records = pending.pop()
            try:
                await self._insert_when_possible(work, rows, records)
            except Refused as refusal:
                if len(rows) == 1:
                    await self._bury(records[0], "bad_field", f"refused by {self._table.name}: {refusal}")
                    continue
                half = len(rows) // 2
                pending.append((rows[half:], records[half:]))
                pending.append((rows[:half], records[:half]))

    async def _insert_when_possible(
        self, work: Work, rows: Sequence[Row], records: Sequence[RawRecord]
    ) -> None:
        """Insert, waiting while the store is away; _GivenUpError once the wait is in vain: we stop, or let go."""
        token = token_of(records)
        await self._when_possible(
            work, lambda: self._ports.store.insert(self._table, rows, token), rows=len(rows)
        )

    async def _erase(self, work: Work, rows: Sequence[Row]) -> None:
        """Erase what is forgotten, waiting while the store is away."""
        erasure = erasure_of(self._table, rows)
        if erasure is not None:
            await self._when_possible(work, lambda: self._ports.store.erase(erasure), rows=0)

    async def _when_possible(self, work: Work, act: Callable[[], Awaitable[None]], *, rows: int) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                await act()
            except Unavailable as error:
                _log.warning(
                    "warehouse away", table=self._table.name, rows=rows, retry_s=backoff_s, error=str(error)
                )
            else:
                return
            await self._pause(work, backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _without_row(self, work: Work, record: RawRecord, error: Poison | SchemaUnknown) -> Row | None:
        """Step 2 for a record that made none: its schema is waited for; what is poison becomes a dead letter."""
        waited_s = 0.0
        while isinstance(error, SchemaUnknown) and waited_s < self._schema_wait_s:
            if waited_s:
                await self._pause(work, SCHEMA_POLL_S)
            await self._ports.schemas.refresh()
            waited_s += SCHEMA_POLL_S
            try:
                return work.intake.row(record)
            except (Poison, SchemaUnknown) as again:
                error = again
        if isinstance(error, Poison):
            await self._bury(record, error.reason, error.detail)
        else:
            await self._bury(record, "undecodable", f"schema {error.fingerprint} was never published")
        if work is not self._work:
            raise _GivenUpError
        return None

    async def _bury(self, record: RawRecord, reason: str, detail: str) -> None:
        _log.warning(
            "dead letter",
            table=self._table.name,
            partition=record.partition,
            offset=record.offset,
            reason=reason,
            detail=detail,
        )
        await self._ports.graveyard.bury(record, f"sink.{self._table.name}", reason, detail)
        self.dead_letters += 1

    async def _pause(self, work: Work, seconds: float) -> None:
        """Wait so long; _GivenUpError where it is over: we stop, or the partitions of this work are given away."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            if work is self._work:
                return
        _log.warning("given up, nothing committed", table=self._table.name)
        raise _GivenUpError
