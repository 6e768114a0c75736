"""The generations of this edge: by id, under one memory budget, with their readers and what other edges say of them.

A generation stays in memory until its terminal plus the grace time, or until the budget takes it: finished ones first,
oldest first, then the older half of running windows (whose readers go on from the log). A generation without any reader,
here or announced on control, for the grace time is cancelled (``on_disconnect: grace``).

Before: ``generation``. After: ``app`` owns it, ``emit`` and ``routes`` use it.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from edge.attempts.stopping import met
from edge.driver import Driver
from edge.generation import Generation, Identity
from edge.log import EventLog
from edge.metrics import Metrics
from edge.reading.decode import said_in
from edge.reading.replays import Replays
from schemas.codec import Codec
from schemas.events import CancelRequested, ClientReader, Kind, ToolStatus
from schemas.lifecycle import State
from schemas.records import ControlKind, ControlRecord
from schemas.settings import Settings

if TYPE_CHECKING:
    from edge.admission.gate import Slot
    from edge.asgi.emit import EventStream

BUDGET_EVERY_S = 0.5
"""At 50 chunks/s and 100 streams the windows grow by about 5 MB in this time: far below any sensible budget."""

ALIAS_WAIT_S = 0.5
"""Far above what control needs from edge to edge; an id that nobody gave out is answered so much later."""


class OnTool(Protocol):
    """Takes a tool's report that another edge was given; ``noted``: the log has it."""

    def __call__(self, generation_id: str, said: ToolStatus, *, noted: bool) -> None:
        """Take it."""


class Entry:
    """A generation with its driver and its timers."""

    def __init__(self, generation: Generation, driver: Driver) -> None:
        self.generation = generation
        self.driver = driver
        self.alone_since_us: int | None = None
        self.attached_us: int | None = None
        self.grace: asyncio.TimerHandle | None = None
        self.finished = False
        self.acks_noted = 0
        self.tools_reported: set[str] = set()
        self.tool_said: ToolStatus | None = None


class Registry:
    """All of them."""

    def __init__(self, settings: Settings, metrics: Metrics, now_us: Callable[[], int]) -> None:
        self._settings = settings
        self._metrics = metrics
        self._now_us = now_us
        self._entries: dict[str, Entry] = {}
        self._running = 0
        self.replays = Replays(settings.limit.window_bytes)
        self.streams: dict[tuple[str, str], EventStream] = {}  # what can be acknowledged: generation, reader
        self._aliases: OrderedDict[tuple[str | None, str], str] = OrderedDict()  # (tenant, id) → generation
        self.on_tool: OnTool = _nobody
        self._alias_news: dict[tuple[str | None, str], asyncio.Event] = {}

    def __len__(self) -> int:
        return self._running

    @property
    def full(self) -> bool:
        """Whether as many run as may; one whose terminal is on its way to the log has given its slot back already."""
        most = self._settings.limit.generations
        if self._running < most:
            return False
        return sum(entry.generation.state is not State.FINALIZED for entry in self.running()) >= most

    def log_lag_ms(self) -> float:
        """How long the oldest record that is not acknowledged has waited, of all that runs here."""
        sent = [entry.driver.recorder.oldest_unacked_us for entry in self.running()]
        return max((self._now_us() - at_us for at_us in sent if at_us is not None), default=0) / 1000

    def unacked_share(self) -> int:
        """How many bytes of one generation may wait for the log: one more share does not make the whole larger.

        What all of them have waiting is what each one's next record waits behind.
        """
        limit = self._settings.limit
        return min(limit.unacked_bytes, limit.unacked_total_bytes // max(1, self._running))

    def add(self, generation: Generation, driver: Driver, slot: "Slot | None" = None) -> Entry:
        """A generation begins."""
        entry = Entry(generation, driver)
        if slot is not None:
            driver.holdings.slot = slot
        self._entries[generation.id] = entry
        self._running += 1
        self._metrics.active.inc()
        return entry

    def get(self, generation_id: str) -> Generation | None:
        """The memory of a generation that runs or ran lately here."""
        entry = self._entries.get(generation_id)
        return None if entry is None else entry.generation

    def entry(self, generation_id: str) -> Entry | None:
        """The same with its driver."""
        return self._entries.get(generation_id)

    def alias(self, record: ControlRecord) -> None:
        """A provider's id of an answer, and the generation that it is; the oldest are forgotten above the limit."""
        if record.alias is None:
            return
        key = (record.tenant, record.alias)
        self._aliases.pop(key, None)
        self._aliases[key] = record.generation_id
        if len(self._aliases) > self._settings.limit.aliases_max:
            self._aliases.popitem(last=False)
        if key in self._alias_news:
            self._alias_news[key].set()

    def named(self, identity: Identity, upstream_id: str, edge_id: str, wall_us: int) -> ControlRecord:
        """A provider's id of an answer of this edge is known here from now on; what tells the other edges."""
        record = ControlRecord(
            generation_id=identity.generation_id,
            kind=ControlKind.ALIAS,
            edge_id=edge_id,
            wall_us=wall_us,
            tenant=identity.tenant,
            alias=upstream_id,
        )
        self.alias(record)
        return record

    async def aliased(self, upstream_id: str, tenant: str) -> str | None:
        """The generation of a tenant that has a provider's id; None for an unknown one and for another tenant's alike.

        What another edge tells comes a moment after its client has it: an unknown id is waited for so long.
        """
        key = (tenant, upstream_id)
        if key not in self._aliases:
            news = self._alias_news.setdefault(key, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ALIAS_WAIT_S):
                    await news.wait()
            self._alias_news.pop(key, None)
        return self._aliases.get(key)

    def newest(self) -> list[Entry]:
        """What runs or ran lately here, the newest first."""
        return list(reversed(self._entries.values()))

    def running(self) -> list[Entry]:
        """What has no terminal yet."""
        return [entry for entry in self._entries.values() if not entry.finished]

    def finish(self, entry: Entry) -> None:
        """The driver is done; the window is kept for the grace time."""
        entry.finished = True
        self._running -= 1
        self._metrics.active.dec()
        entry.driver.holdings.release()
        if entry.grace is not None:
            entry.grace.cancel()
        keep_s = self._settings.disconnect.grace_s
        asyncio.get_running_loop().call_later(keep_s, self._drop, entry)

    def attach(self, generation: Generation, reader: ClientReader) -> None:
        """A local reader came; the log is told while the generation runs."""
        generation.readers += 1
        self._metrics.readers.inc()
        entry = self._entries.get(generation.id)
        if entry is None or entry.finished:
            return
        entry.driver.note_reader(Kind.CLIENT_ATTACHED, reader)
        if entry.grace is not None:
            entry.grace.cancel()
            entry.grace = None

    def acked(self, generation_id: str, reader: ClientReader) -> None:
        """A reader says what it has; the log is told while the generation runs here."""
        entry = self._entries.get(generation_id)
        if entry is not None and not entry.finished and entry.acks_noted < self._settings.limit.acks_noted:
            entry.acks_noted += 1
            entry.driver.note_reader(Kind.CLIENT_ACK, reader)

    def detach(self, generation: Generation, reader: ClientReader) -> None:
        """A local reader left."""
        generation.readers -= 1
        self._metrics.readers.dec()
        entry = self._entries.get(generation.id)
        if entry is None or entry.finished:
            return
        entry.driver.note_reader(Kind.CLIENT_DETACHED, reader)
        if generation.readers or generation.on_disconnect == "continue":
            return
        entry.alone_since_us = self._now_us()
        self._grace_over(entry)

    def await_reader(self, entry: Entry) -> None:
        """Nobody reads it yet, and somebody is told of it now: who does not come within the grace time is gone."""
        if entry.generation.on_disconnect != "continue" and not entry.generation.readers:
            entry.alone_since_us = self._now_us()
            self._arm_grace(entry, self._settings.disconnect.grace_s)

    def cancel(self, generation_id: str, cancel: CancelRequested) -> bool:
        """Cancel a generation that runs here; whether there was one."""
        entry = self._entries.get(generation_id)
        if entry is None or entry.finished:
            return False
        generation = entry.generation
        at_us = self._now_us() - generation.accepted_us
        entry.driver.request_cancel(met(cancel, generation, at_us, entry.driver.tokens_seen, entry.tool_said))
        return True

    def erase(self, generation_id: str) -> None:
        """A generation is forgotten on request: its readers here get nothing more of it, and it ends if it runs."""
        self.replays.forget(generation_id)
        entry = self._entries.get(generation_id)
        if entry is not None:
            entry.generation.erase()
            wish = CancelRequested(mode="hard", reason="policy_violation", source="forget")
            self.cancel(generation_id, wish)

    def keep_budget(self) -> None:
        """Bring the windows below ``limit.window_bytes``; what they leave of it is for replays of the log."""
        total = sum(entry.generation.window_bytes for entry in self._entries.values())
        limit = self._settings.limit.window_bytes
        for entry in [e for e in self._entries.values() if e.finished]:
            if total <= limit:
                break
            total -= entry.generation.window_bytes
            self._drop(entry)
        while total > limit:
            largest = max(self._entries.values(), key=lambda e: e.generation.window_bytes)
            if not (freed := largest.generation.shrink()):
                break
            total -= freed
        self.replays.keep_within(limit - total, self._now_us())
        self._metrics.window_bytes.set(total + self.replays.bytes)

    def _drop(self, entry: Entry) -> None:
        """Forget a finished generation; its readers here go on from the log."""
        if self._entries.pop(entry.generation.id, None) is not None:
            entry.generation.release()

    async def keep_budget_always(self) -> None:
        """Keep the budget; runs until cancelled."""
        while True:
            self.keep_budget()
            await asyncio.sleep(BUDGET_EVERY_S)

    async def follow_control(self, event_log: EventLog, codec: Codec) -> None:
        """Do what control says of generations that run here; runs until cancelled."""
        async for value in event_log.control():
            record = await said_in(event_log, codec, value, ControlRecord)
            if record is None:
                continue
            if record.kind is ControlKind.CANCEL and record.cancel is not None:
                self.cancel(record.generation_id, record.cancel)
            elif record.kind is ControlKind.ALIAS:
                self.alias(record)
            elif record.kind is ControlKind.TOOL and record.tool_status is not None:
                self.on_tool(record.generation_id, record.tool_status, noted=record.noted)
            elif (entry := self._entries.get(record.generation_id)) and record.kind is ControlKind.ATTACHED:
                entry.attached_us = self._now_us()

    def _arm_grace(self, entry: Entry, delay_s: float) -> None:
        entry.grace = asyncio.get_running_loop().call_later(delay_s, self._grace_over, entry)

    def _grace_over(self, entry: Entry) -> None:
        entry.grace = None
        if entry.finished or entry.generation.readers:
            return
        # `cancel` waits for nobody who may come, but a reader on another edge is one
        alone_us = entry.alone_since_us if entry.generation.on_disconnect == "grace" else None
        read_us = max((at for at in (alone_us, entry.attached_us) if at is not None), default=None)
        grace_us = self._settings.disconnect.grace_s * 1e6
        left_us = 0 if read_us is None else read_us + grace_us - self._now_us()
        if left_us > 0:
            self._arm_grace(entry, left_us / 1e6)
        else:
            gone = CancelRequested(mode="hard", reason="client_disconnect", source="edge")
            self.cancel(entry.generation.id, gone)


def _nobody(generation_id: str, said: ToolStatus, *, noted: bool) -> None:
    """Nobody here takes tools' reports."""
    del generation_id, said, noted
