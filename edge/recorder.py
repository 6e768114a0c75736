"""Numbers, encodes and appends the records of one generation, and takes their acknowledgements.

Publish before emit is written here: an event enters the window only in ``_acked``. Only this edge numbers events, and a
record is handed to the log once. If an append fails, nothing behind it is emitted (``failed``): what follows are the
attempt's end and the terminal, with the next unassigned seq, which readers take from the log.

Before: ``generation``. After: ``driver``.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from edge.clock import Clock
from edge.generation import Delivered, Generation
from edge.lease import Lease
from edge.log import EventLog
from schemas.codec import Codec
from schemas.digest import ContentDigest
from schemas.events import Kind, LogEvent
from schemas.lifecycle import Signal, State
from schemas.parts import cut

LEASE_LOST = "lease_lost"
LOG_UNAVAILABLE = "log_unavailable"
MEASURED_EVERY = 16
"""Of the numbered events one in so many is measured: a histogram costs more than all else that an acknowledgement does."""


class Recorder:
    """The writer of one generation.

    Args:
        generation: whose records these are.
        log: where they go.
        codec: the process's.
        clock: the process's.
        edge_id: stands on every record.
        half_orphan_us: the lease's bound.
        on_failed: told once when the log refused a record, or when the lease was lost.

    """

    def __init__(
        self,
        generation: Generation,
        log: EventLog,
        codec: Codec,
        clock: Clock,
        edge_id: str,
        half_orphan_us: int,
        on_failed: Callable[[str], None],
    ) -> None:
        self._generation = generation
        self._log = log
        self._codec = codec
        self._clock = clock
        self._lease = Lease(half_orphan_us, clock.now_us())
        self._on_failed = on_failed
        self._key = generation.id.encode()
        identity = generation.identity
        self._partition = identity.partition
        self._constant: dict[str, Any] = {
            "generation_id": identity.generation_id,
            "tenant": identity.tenant,
            "key_id": identity.key_id,
            "dialect": identity.dialect,
            "edge_id": edge_id,
        }
        self._sent_us: deque[int] = deque()
        self._settled: list[asyncio.Future[None]] = []
        self.next_seq = 0
        self.unacked_bytes = 0
        self.failed = False
        self.digest = ContentDigest()
        self.tokens_acked = 0
        self._tokens_sent = 0
        self.ends_acked: set[int] = set()
        self._drained: asyncio.Future[None] | None = None
        self.published: Callable[[float], None] = _nobody

    @property
    def oldest_unacked_us(self) -> int | None:
        """When the record was sent that has waited longest for its acknowledgement (they come in order)."""
        return self._sent_us[0] if self._sent_us else None

    @property
    def tokens_delivered(self) -> int:
        """Tokens that the log has acknowledged once it acknowledges what is appended next, which lies behind them."""
        return self.tokens_acked if self.failed else self._tokens_sent

    @property
    def unacked(self) -> int:
        """How many records are not acknowledged yet."""
        return len(self._sent_us)

    def sent_late(self, first: int) -> None:
        """The unacknowledged records from this one on were captured long ago and sent just now: no outage of the log."""
        now_us = self._clock.now_us()
        for i in range(first, len(self._sent_us)):
            self._sent_us[i] = now_us

    def elapsed_us(self) -> int:
        """Microseconds since the request was accepted."""
        return self._clock.now_us() - self._generation.accepted_us

    def numbered(self, kind: Kind, elapsed_us: int, **fields: Any) -> LogEvent:
        """Append the next numbered record."""
        wall_us = self._generation.accepted_wall_us + elapsed_us
        event = LogEvent(
            kind=kind, seq=self.next_seq, wall_us=wall_us, elapsed_us=elapsed_us, **self._constant, **fields
        )
        self.next_seq += 1
        if event.canonical:
            self.digest.update(event.canonical)
            self._tokens_sent += sum(part.tokens_estimate or 0 for part in event.canonical)
        self._append(event, elapsed_us)
        return event

    def trace(self, kind: Kind, **fields: Any) -> LogEvent:
        """Append a trace record: it has no seq and is not sent to clients."""
        after = self.next_seq - 1 if self.next_seq else None
        elapsed_us = self.elapsed_us()
        wall_us = self._generation.accepted_wall_us + elapsed_us
        event = LogEvent(
            kind=kind, after_seq=after, wall_us=wall_us, elapsed_us=elapsed_us, **self._constant, **fields
        )
        self._append(event, elapsed_us)
        return event

    async def settled(self, timeout_s: float) -> bool:
        """Wait until everything appended so far has settled; whether all of it was acknowledged in time."""
        if self._sent_us and not self.failed:
            self.hurry()
            settled = asyncio.get_running_loop().create_future()
            self._settled.append(settled)
            try:
                async with asyncio.timeout(timeout_s):
                    await settled
            except TimeoutError:
                return False
        return not self.failed

    def hurry(self) -> None:
        """Somebody waits for what was appended so far: it is not kept back to share a request with others."""
        self._log.hurry(self._partition)

    async def below(self, limit_bytes: int) -> None:
        """Wait until fewer bytes are unacknowledged (or the log failed)."""
        while self.unacked_bytes > limit_bytes and not self.failed:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _append(self, event: LogEvent, elapsed_us: int) -> None:
        """Hand a record to the log; as its sending counts when it was captured, which errs on the lease's safe side."""
        values = cut(self._codec, event)
        size = len(values[0]) if len(values) == 1 else sum(map(len, values))
        sent_us = self._generation.accepted_us + elapsed_us
        self._sent_us.append(sent_us)
        self.unacked_bytes += size
        self._log.append(
            self._partition,
            self._key,
            values,
            lambda offset: self._acked(event, size, sent_us, offset),
            self._refused,
        )

    def _acked(self, event: LogEvent, size: int, sent_us: int, offset: int) -> None:
        """The one place where an event becomes visible."""
        now_us = self._clock.now_us()
        if event.seq is not None and not event.seq % MEASURED_EVERY and self._sent_us:
            self.published((now_us - self._sent_us[0]) / 1000)
        self._settle(size)
        generation = self._generation
        generation.log_away = False
        may_emit = self._lease.acked(sent_us, now_us) and not self.failed
        if not may_emit and not generation.on_log:
            generation.leave_memory()
            self._on_failed(LEASE_LOST)
        if event.kind is Kind.MESSAGE_START:
            generation.start_offset = offset
        elif event.canonical:
            for part in event.canonical:
                self.tokens_acked += part.tokens_estimate or 0
            if generation.state is State.DECODE and event.has_content:
                generation.signal(Signal.CONTENT_ACKED)
        elif event.kind is Kind.ATTEMPT_END:
            self.ends_acked.add(event.attempt)
        if event.seq is not None and not generation.on_log:
            generation.add(Delivered(event, self._partition, offset))

    def _refused(self, error: Exception) -> None:
        del error  # the log layer has said why; here only the consequence counts
        self._sent_us.clear()
        self.unacked_bytes = 0
        first = not self.failed
        self.failed = True
        self._all_settled()
        self._release(self._drained)
        if first:
            self._generation.leave_memory()
            self._on_failed(LOG_UNAVAILABLE)

    def _settle(self, size: int) -> None:
        if self._sent_us:
            self._sent_us.popleft()
        self.unacked_bytes = max(0, self.unacked_bytes - size)
        if self._settled and not self._sent_us:
            self._all_settled()
        if self._drained is not None:
            self._release(self._drained)

    def _all_settled(self) -> None:
        waiting, self._settled = self._settled, []
        for settled in waiting:
            self._release(settled)

    @staticmethod
    def _release(future: "asyncio.Future[None] | None") -> None:
        if future is not None and not future.done():
            future.set_result(None)


def _nobody(latency_ms: float) -> None:
    """Nobody measures."""
    del latency_ms
