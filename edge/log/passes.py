"""Shared reading: every reader of a partition is served by the same two passes, never by a consumer of its own.

``PartitionReaders`` holds the readers of one partition, each with its own position. Whoever fetches (the tail pass at
the end, the catch-up pass wherever a position is wanted) hands the fetched range to ``offer``: it advances exactly
those readers whose position lies inside the range, so two passes can serve the same reader without loss or repeat, and
a slow reader (full buffer) just stays where it is until it reads again.

Pure of Kafka: ranges in, progress out. Before: ``kafka`` fetches. After: ``follow``.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from edge.log import Progress, Raw

BUFFER_BYTES_MAX = 1 << 20
"""A reader with more unread bytes takes no part in a pass; it goes on from its position later."""


class Fetched(NamedTuple):
    """A contiguous range of a partition: records from ``start`` (inclusive) to ``end`` (exclusive), holes allowed."""

    start: int
    end: int
    high_watermark: int
    records: Sequence[tuple[int, int, bytes | None, bytes | None]]  # offset, timestamp_ms, key, value


AHEAD_RANGES_MAX = 1
"""So many ranges are fetched for a reader that has not come back for the last one: what it has may hold the end."""
_offset_of = attrgetter("offset")


class KeyReader:
    """One reader of one key (implements ``edge.log.Reader``)."""

    def __init__(
        self, key: bytes, position: int, *, every: bool, on_change: Callable[["KeyReader"], None]
    ) -> None:
        self.key = key
        self.position = position
        self.every = every
        self.caught_up = False
        self.closed = False
        self.served = 0
        self.ranges = 0
        self._on_change = on_change
        self._records: list[Raw] = []
        self._bytes = 0
        self._progress = False
        self._ahead = 0
        self._timestamp_ms: int | None = None
        self._error: Exception | None = None
        self._wake: asyncio.Future[None] | None = None

    @property
    def wants(self) -> bool:
        """Whether a pass may give it more."""
        return not self.closed and self._bytes < BUFFER_BYTES_MAX

    @property
    def hungry(self) -> bool:
        """Whether a pass is worth making for it: it waits, or nothing was fetched ahead of it yet."""
        waits = self._wake is not None and not self._wake.done()
        return self.wants and (waits or self._ahead < AHEAD_RANGES_MAX)

    async def read(self) -> Progress:
        """See edge.log.Reader."""
        while not (self._records or self._progress):
            if self._error is not None:
                raise self._error
            self._wake = asyncio.get_running_loop().create_future()
            self._on_change(self)
            await self._wake
        records, self._records = self._records, []
        self._ahead, self._bytes, self._progress = 0, 0, False
        self._on_change(self)
        return Progress(records, self.position, self.caught_up, self._timestamp_ms)

    def close(self) -> None:
        """See edge.log.Reader."""
        if not self.closed:
            self.closed = True
            self._on_change(self)

    def fail(self, error: Exception) -> None:
        """End the reading with an error, after what is buffered."""
        self._error = error
        self._notify()

    def take(self, fetched: Fetched, records: Sequence[Raw]) -> None:
        """Advance over a range that begins at or before the position; ``records`` are those of this key."""
        if records and records[0].offset < self.position:
            records = records[bisect_left(records, self.position, key=_offset_of) :]
        self._records.extend(records)
        self._bytes += sum(len(raw.value) for raw in records)
        reached_end = fetched.end >= fetched.high_watermark
        news = bool(self._records) or self.every or (reached_end and not self.caught_up)
        if fetched.records:
            self._timestamp_ms = fetched.records[-1][1]
        self.position = fetched.end
        self.ranges += 1
        self._ahead += 1
        self.caught_up = reached_end
        if news:
            self._progress = True
            self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class PartitionReaders:
    """The readers of one partition.

    Attributes:
        tail_from: where the tail pass goes on; None: nobody stands at the end.
        ranges: how many ranges who is ``wanted`` was given before: one that reads on is served more at a time.

    """

    def __init__(self) -> None:
        self.readers: set[KeyReader] = set()
        self.ranges = 0
        self.tail_from: int | None = None
        self._offered = 0
        self._turns = 0

    def wanted(self) -> int | None:
        """Where the catch-up pass goes next: a position that the tail pass does not serve; None where there is none.

        By turns the lowest, so that readers who stand apart come together and share, and that of who was served longest
        ago: a long replay keeps nobody waiting who needs little.
        """
        tail = self.tail_from
        behind = [r for r in self.readers if r.hungry and (tail is None or r.position != tail)]
        if not behind:
            return None
        self._turns += 1
        if self._turns % 2:
            chosen = min(behind, key=lambda reader: reader.position)
        else:
            chosen = min(behind, key=lambda reader: (reader.served, reader.position))
        self.ranges = chosen.ranges
        return chosen.position

    def offer(self, fetched: Fetched, only: KeyReader | None = None) -> None:
        """Give a fetched range to every reader that stands inside it, or to one of them."""
        readers = self.readers if only is None else (only,)
        inside = [r for r in readers if r.wants and fetched.start <= r.position <= fetched.end]
        if not inside:
            return
        self._offered += 1
        by_key: dict[bytes | None, list[Raw]] = {r.key: [] for r in inside}
        for offset, timestamp_ms, key, value in fetched.records:
            found = by_key.get(key)
            if found is not None and value is not None:
                found.append(Raw(offset, timestamp_ms, value))
        for reader in inside:
            reader.served = self._offered
            reader.take(fetched, by_key[reader.key])

    def fail(self, error: Exception, below: int | None = None, above: int | None = None) -> None:
        """Fail the readers whose position lies below an offset and above another; all where neither is given."""
        for reader in list(self.readers):
            position = reader.position
            if (below is None or position < below) and (above is None or position > above):
                reader.fail(error)
                self.readers.discard(reader)
