"""A log in memory: the fake that passes the contract suite of the real one, and can be made to fail.

Used by the story, by Hypothesis histories and by the casebook's resume vectors, where offsets and moments must be
chosen. ``hold`` keeps acknowledgements back, ``fail_next`` fails the next append, ``drop`` takes records out (as
retention or a truncation would), ``put`` writes what another producer would.

Before: ``driver``, ``follow``. After: nothing.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence

from edge.log import LogAway, OffsetGone, OnAck, OnFail, Placed, Reader
from edge.log.passes import Fetched, KeyReader, PartitionReaders

Record = tuple[int, int, bytes | None, bytes | None]


class _SmallTopic:
    """A topic that everybody reads whole."""

    def __init__(self) -> None:
        self.held: list[Placed] = []
        self.whole = False
        self._news: list[asyncio.Event] = []

    def put(self, timestamp_ms: int, value: bytes) -> Placed:
        """Append, and wake the readers."""
        placed = Placed(0, len(self.held), timestamp_ms, value)
        self.held.append(placed)
        for news in self._news:
            news.set()
        return placed

    async def records(self) -> AsyncIterator[Placed]:
        """Everything, then what comes."""
        news = asyncio.Event()
        self._news.append(news)
        for position in itertools.count():
            while position >= len(self.held):
                self.whole = True
                news.clear()
                await news.wait()
            yield self.held[position]

    async def values(self) -> AsyncIterator[bytes]:
        """The same without where each lies."""
        async for placed in self.records():
            yield placed.value


class MemoryLog:
    """EventLog in memory. ``now_ms`` gives append times."""

    def __init__(self, now_ms: Callable[[], int], partitions: int = 32) -> None:
        self.partitions = partitions
        self._now_ms = now_ms
        self._records: defaultdict[int, list[Record]] = defaultdict(list)
        self._next: defaultdict[int, int] = defaultdict(int)
        self._first: defaultdict[int, int] = defaultdict(int)
        self._readers: defaultdict[int, PartitionReaders] = defaultdict(PartitionReaders)
        self._held: list[Callable[[], None]] | None = None
        self._fail: tuple[Exception, bool] | None = None
        self._failing: dict[bytes, Exception] = {}
        self._control = _SmallTopic()
        self._config = _SmallTopic()
        self._claims = _SmallTopic()

    async def start(self) -> None:
        """See EventLog."""

    async def stop(self) -> None:
        """See EventLog."""
        await asyncio.sleep(0)  # acknowledgements that are on their way come first

    def append(
        self, partition: int, key: bytes, values: Sequence[bytes], on_ack: OnAck, on_fail: OnFail
    ) -> None:
        """See EventLog."""
        if key in self._failing:  # behind a failed record, unsent, until its writer knows
            error = self._failing[key]
            self._tell(lambda: on_fail(error))
            return
        failure, self._fail = self._fail, None
        if failure is None or failure[1]:
            for value in values:
                last = self.put(partition, key, value)
        if failure is None:
            self._tell(lambda: on_ack(last))
        else:
            self._failing[key] = failure[0]
            self._tell(lambda: on_fail(self._failing.pop(key)))

    def hurry(self, partition: int) -> None:
        """See EventLog. Nothing waits here."""

    def _tell(self, said: Callable[[], None]) -> None:
        """Outcomes are told in the order of append, from the loop."""
        if self._held is not None:
            self._held.append(said)
        else:
            asyncio.get_running_loop().call_soon(said)

    def put(self, partition: int, key: bytes | None, value: bytes | None, offset: int | None = None) -> int:
        """Write one record as any producer would; its offset (a chosen one leaves a hole)."""
        offset = self._next[partition] if offset is None else offset
        self._records[partition].append((offset, self._now_ms(), key, value))
        self._next[partition] = offset + 1
        self._serve(partition)
        return offset

    def records(self, partition: int) -> list[Record]:
        """What the partition holds, in log order."""
        return list(self._records[partition])

    def all_records(self) -> list[tuple[int, Record]]:
        """Everything held, by partition."""
        return [(p, r) for p in sorted(self._records) for r in self._records[p]]

    def hold(self) -> None:
        """Keep acknowledgements and failures back until ``release``."""
        self._held = self._held or []

    def release(self) -> None:
        """Tell what was kept back, in order."""
        held, self._held = self._held or [], None
        for said in held:
            said()

    def fail_next(self, error: Exception | None = None, *, lands: bool = False) -> None:
        """Fail the next append; ``lands``: the record is in the log all the same, as after a lost answer."""
        self._fail = (error or LogAway("told to fail"), lands)

    def drop(self, partition: int, wanted: Callable[[Record], bool]) -> None:
        """Take records out. Where a prefix is gone, the log begins behind it."""
        kept = [r for r in self._records[partition] if not wanted(r)]
        self._records[partition] = kept
        self._first[partition] = kept[0][0] if kept else self._next[partition]

    def reader(self, partition: int, key: bytes, offset: int, *, every: bool = False) -> Reader:
        """See EventLog."""
        readers = self._readers[partition]

        def changed(reader: KeyReader) -> None:
            if reader.closed:
                readers.readers.discard(reader)
            else:
                self._serve(partition)

        found = KeyReader(key, offset, every=every, on_change=changed)
        readers.readers.add(found)
        self._serve(partition)
        return found

    def _serve(self, partition: int) -> None:
        readers, end = self._readers[partition], self._next[partition]
        first = self._first[partition]
        readers.fail(OffsetGone(first), below=first)
        for start in {r.position for r in readers.readers if r.wants}:
            records = [r for r in self._records[partition] if r[0] >= start]
            readers.offer(Fetched(start, end, end, records))

    async def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """See EventLog."""
        return next((r[0] for r in self._records[partition] if r[1] >= timestamp_ms), None)

    async def bounds(self, partition: int) -> tuple[int, int]:
        """See EventLog."""
        return self._first[partition], self._next[partition]

    async def learn(self) -> None:
        """See EventLog."""

    async def tell(self, key: bytes, value: bytes) -> None:
        """See EventLog."""
        del key
        self._control.put(self._now_ms(), value)

    def put_config(self, value: bytes) -> None:
        """Append to the config topic, as an operator does."""
        self._config.put(self._now_ms(), value)

    async def claim(self, key: bytes, value: bytes) -> tuple[int, int]:
        """See EventLog."""
        del key
        return self._claims.put(self._now_ms(), value)[:2]

    def control(self) -> AsyncIterator[bytes]:
        """See EventLog."""
        return self._control.values()

    def config(self) -> AsyncIterator[bytes]:
        """See EventLog."""
        return self._config.values()

    def claims(self) -> AsyncIterator[Placed]:
        """See EventLog."""
        return self._claims.records()

    @property
    def control_read(self) -> bool:
        """See EventLog."""
        return self._control.whole

    @property
    def config_read(self) -> bool:
        """See EventLog."""
        return self._config.whole

    @property
    def claims_read(self) -> bool:
        """See EventLog."""
        return self._claims.whole
