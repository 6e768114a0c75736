"""Batches: bounded by rows, bytes and age, whichever comes first.

Pure: ``now`` (seconds on any one clock) is an argument. A batch also carries how far each partition was read, records
without a row included, so that a log of poison alone moves on too. Before: ``intake`` gives the rows. After: ``loop``
inserts a ``Full`` batch and commits its ``next_offsets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sinks.store import Row

ROW_OVERHEAD_BYTES = 200
"""What a row costs beside its record's bytes (keys, times, numbers), so that tiny records are bounded by bytes too."""


class RawRecord(Protocol):
    """A record as the consumer gives it (aiokafka's ConsumerRecord has this shape)."""

    @property
    def topic(self) -> str: ...  # noqa: D102 - a record's own words
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def timestamp(self) -> int: ...  # noqa: D102 - Unix milliseconds, as the log stores it
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...  # noqa: D102


class Limits(NamedTuple):
    """Upper bounds of one batch."""

    rows: int
    bytes: int
    age_s: float


class Full(NamedTuple):
    """A batch on its way to the store: rows, the record behind each, and the offset to go on from per partition."""

    rows: Sequence[Row]
    records: Sequence[RawRecord]
    next_offsets: Mapping[int, int]


class Batch:
    """Collects rows until it is due."""

    __slots__ = ("_bytes", "_limits", "_next_offsets", "_records", "_rows", "_since")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Row] = []
        self._records: list[RawRecord] = []
        self._next_offsets: dict[int, int] = {}
        self._bytes = 0
        self._since: float | None = None

    def add(self, records: Sequence[RawRecord], rows: Sequence[Row | None], now: float) -> None:
        """Take records as they were read, each with its row, or None (a part of a row to come is held, so it counts)."""
        if not records:
            return
        if self._since is None:
            self._since = now
        self._next_offsets |= {record.partition: record.offset + 1 for record in records}
        self._bytes += sum([len(record.value or b"") for record in records]) + ROW_OVERHEAD_BYTES * len(
            records
        )
        self._rows += [row for row in rows if row is not None]
        self._records += [record for record, row in zip(records, rows, strict=True) if row is not None]

    def due(self, now: float) -> bool:
        """Whether a bound is reached. An empty batch is never due."""
        if self._since is None:
            return False
        limits = self._limits
        return (
            len(self._rows) >= limits.rows or self._bytes >= limits.bytes or now - self._since >= limits.age_s
        )

    def wait_s(self, now: float) -> float:
        """How long a reader may wait for more before the batch is due by age."""
        if self._since is None:
            return self._limits.age_s
        return max(0.0, self._since + self._limits.age_s - now)

    def take(self) -> Full:
        """Give what was collected, and begin anew."""
        full = Full(self._rows, self._records, self._next_offsets)
        self._clear()
        return full


def token_of(records: Sequence[RawRecord]) -> str:
    """The name of a block of rows: ``topic:partition:first-last@time`` of every partition in it.

    The same rows always have the same name, and no others have it: ``time`` is the log's own time of the first
    record, which tells a topic from one of the same name that was deleted (clients of this generation are not told
    a topic's id).
    """
    first: dict[int, RawRecord] = {}
    last: dict[int, RawRecord] = {}
    for record in records:
        first.setdefault(record.partition, record)
        last[record.partition] = record
    return ";".join(
        f"{head.topic}:{partition}:{head.offset}-{last[partition].offset}@{head.timestamp}"
        for partition, head in sorted(first.items())
    )
