"""The log as the edge sees it: append in order, read one generation from an offset, follow control and claims.

``EventLog`` is the protocol; ``memory`` is the fake and ``kafka`` the real thing, and both pass
``tests/contract/test_eventlog.py``. Everything is keyed by generation id; offsets are Kafka's.

Invariants: records of one partition are appended in the order of ``append`` and acknowledged in that order; a record is
never sent twice by us; a failed append fails everything of that generation behind it (the caller stops emitting).

Before: ``driver`` appends. After: ``follow`` reads.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol

from schemas.errors import TokentrailError, Transient


class LogAway(Transient):
    """The broker does not take or give records at the moment."""


class OffsetGone(TokentrailError):
    """The wanted offset lies before what the log still holds (retention passed)."""

    def __init__(self, start_offset: int) -> None:
        super().__init__(f"the log begins at offset {start_offset} now")
        self.start_offset = start_offset


class Raw(NamedTuple):
    """One record of the wanted key. ``timestamp_ms`` is the log's own append time."""

    offset: int
    timestamp_ms: int
    value: bytes


class Placed(NamedTuple):
    """A record of a topic that is read whole, and where it lies. ``timestamp_ms`` is the log's own append time."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes


class Progress(NamedTuple):
    """What a reader got: records of its key, in offset order, and how far the reading has come.

    ``position`` is the next offset to be looked at; ``caught_up``: the log had nothing behind it at that moment;
    ``timestamp_ms`` is that of the last record looked at (of any key), None when there was none.
    """

    records: Sequence[Raw]
    position: int
    caught_up: bool
    timestamp_ms: int | None


class Reader(Protocol):
    """One reader of one key in one partition. ``every``: report progress even where no record of the key was found."""

    every: bool

    async def read(self) -> Progress:
        """The next progress; waits for it. Raises OffsetGone or LogAway."""

    def close(self) -> None:
        """Stop reading; idempotent."""


OnAck = Callable[[int], None]
OnFail = Callable[[Exception], None]


class EventLog(Protocol):
    """What the edge needs of the log."""

    partitions: int

    async def start(self) -> None:
        """Connect; announce our schemas; raises LogAway with what to do."""

    async def stop(self) -> None:
        """Flush what was appended, then disconnect."""

    def append(
        self, partition: int, key: bytes, values: Sequence[bytes], on_ack: OnAck, on_fail: OnFail
    ) -> None:
        """Queue the values (parts of one record) behind everything queued for the partition.

        ``on_ack(offset of the last value)`` or ``on_fail(error)`` is called once, in order, on the event loop. A failed
        record takes with it what waits behind it under its key; a callback that several of them share is called once.
        """

    def hurry(self, partition: int) -> None:
        """What was appended to the partition so far leaves as soon as its turn comes: somebody waits for it.

        Nothing else changes: order and acknowledgements are those of ``append``.
        """

    def reader(self, partition: int, key: bytes, offset: int, *, every: bool = False) -> Reader:
        """Read the key's records from an offset on: replay, then tail."""

    async def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """The first offset appended at or after a time, None where there is none yet."""

    async def bounds(self, partition: int) -> tuple[int, int]:
        """(first offset held, next offset to be written), asked now."""

    async def learn(self) -> None:
        """Read the schemas topic again: a record came whose schema is not known here. Raises LogAway."""

    async def tell(self, key: bytes, value: bytes) -> None:
        """Append to the control topic; returns when it is acknowledged, raises LogAway."""

    def control(self) -> AsyncIterator[bytes]:
        """Every value of the control topic from its beginning, then as it comes."""

    @property
    def control_read(self) -> bool:
        """Whether control was read to the end that it had at the start."""

    def config(self) -> AsyncIterator[bytes]:
        """Every value of the config topic from its beginning, then as it comes."""

    @property
    def config_read(self) -> bool:
        """Whether config was read to the end that it had at the start."""

    async def claim(self, key: bytes, value: bytes) -> tuple[int, int]:
        """Append to the claims topic; (partition, offset) once it is acknowledged, raises LogAway."""

    def claims(self) -> AsyncIterator[Placed]:
        """Every record of the claims topic from its beginning, then as it comes; of one partition in log order."""

    @property
    def claims_read(self) -> bool:
        """Whether claims was read to the end that it had at the start."""
