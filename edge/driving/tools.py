"""What becomes of an answer's tool calls: their callers report it, from any edge, and silence is put on record.

A report is a ``tool_status`` trace record: it has no seq, no client is sent it, and it never ends anything. The edge
whose generation runs writes it, told by control where the report came to another one; of a generation that has ended the
edge that got the report does. Where an answer ended in tool calls, its edge waits ``timeout.tool_s`` for a report of
each, then writes ``timeout``. A committed side effect, or an action that somebody approved, forbids every automatic
retry from then on. Before: ``routes.tools``, ``registry`` (control). After: ``recorder``, the log.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import structlog

from edge.log import LogAway
from edge.reading.presented import Refusal
from schemas.events import Kind, LogEvent, PartType, ToolStatus
from schemas.lifecycle import State
from schemas.partition import partition_of
from schemas.parts import cut
from schemas.records import ControlKind, ControlRecord
from schemas.settings import ApiKey

if TYPE_CHECKING:
    from edge.generation import Generation
    from edge.reading.history import History
    from edge.registry import Entry
    from edge.service import EdgeService

log = structlog.get_logger()

AWAITED_MAX = 20_000
"""Tool calls whose report is awaited, about 2 KiB each; the oldest are no longer."""
TIMEOUT = "timeout"


class Whose(NamedTuple):
    """What stands on every record of a generation that has ended, and behind which seq the next one lies."""

    generation_id: str
    tenant: str
    key_id: str
    dialect: str
    partition: int
    accepted_us: int | None  # None: another edge's
    after_seq: int | None


class Tools:
    """The reports of one edge."""

    def __init__(self, service: "EdgeService") -> None:
        self._service = service
        self._awaited: OrderedDict[tuple[str, str], asyncio.TimerHandle] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        service.registry.on_tool = self.heard

    @property
    def awaited(self) -> int:
        """How many tool calls a report is awaited of."""
        return len(self._awaited)

    async def report(self, caller: ApiKey, generation_id: str, said: ToolStatus) -> Refusal | bool:
        """Put a report on record; False: the edge that runs the generation was told to. Raises LogAway."""
        service = self._service
        history = await service.desk.history(caller, generation_id)
        if isinstance(history, Refusal):
            return history
        if said.tool_call_id not in _ids_in(history.delivered):
            return Refusal(404, "not_found")
        entry = service.registry.entry(generation_id)
        if entry is not None and entry.generation.state is not State.FINALIZED:
            self.heard(generation_id, said, noted=False)
            if not await entry.driver.recorder.settled(service.settings.log.start_ack_s):
                raise LogAway("the log did not take the report in time")
            return True
        whose = None if entry is None else _ended_here(entry)
        if whose is None and history.terminal is not None:
            whose = _whose(history, service.log.partitions)
        if whose is not None:
            await self._append(whose, said)
            self.heard(generation_id, said, noted=True)
        await self._tell(generation_id, said, noted=whose is not None)
        return whose is not None

    def heard(self, generation_id: str, said: ToolStatus, *, noted: bool) -> None:
        """A report, from here or by control; ``noted``: the log has it already."""
        timer = self._awaited.pop((generation_id, said.tool_call_id), None)
        if timer is not None:
            timer.cancel()
        entry = self._service.registry.entry(generation_id)
        if entry is None:
            return
        entry.tools_reported.add(said.tool_call_id)
        entry.tool_said = said
        if entry.generation.state is State.FINALIZED:
            if not noted:  # it ended while the report was on its way
                self._spawn(_ended_here(entry), said)
            return
        if not noted and not entry.driver.recorder.failed:
            entry.driver.recorder.trace(Kind.TOOL_STATUS, tool_status=said)
        if said.side_effect_committed or said.approved_by is not None:
            entry.driver.forbid_retries()

    def ended(self, generation: "Generation", reported: set[str]) -> None:
        """A generation of this edge has its terminal: from now on a report of each of its tool calls is awaited."""
        terminal = generation.terminal
        end = None if terminal is None else terminal.event.message_end
        if terminal is None or end is None or end.finish_reason != "tool_call":
            return
        whose = _of(generation, terminal.event.seq)
        loop, wait_s = asyncio.get_running_loop(), self._service.settings.timeout.tool_s
        ids = _ids_in(delivered.event for delivered in generation.window)
        for tool_call_id in sorted(ids - reported):
            key = (generation.id, tool_call_id)
            self._awaited[key] = loop.call_later(wait_s, self._silent, whose, tool_call_id)
            if len(self._awaited) > AWAITED_MAX:
                self._awaited.popitem(last=False)[1].cancel()

    def _silent(self, whose: Whose, tool_call_id: str) -> None:
        """Nobody has reported in time."""
        self._awaited.pop((whose.generation_id, tool_call_id), None)
        if self._service.stopping:
            return
        said = ToolStatus(tool_call_id=tool_call_id, status=TIMEOUT)
        self._spawn(whose, said)

    def _spawn(self, whose: Whose, said: ToolStatus) -> None:
        task = asyncio.get_running_loop().create_task(self._say(whose, said))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _say(self, whose: Whose, said: ToolStatus) -> None:
        try:
            await self._append(whose, said)
        except LogAway as away:
            log.warning("what became of a tool is not on record", call=said.tool_call_id, error=str(away))

    async def _append(self, whose: Whose, said: ToolStatus) -> None:
        """Write a record behind a generation's end; returns when it is acknowledged, raises LogAway."""
        service, clock = self._service, self._service.clock
        event = LogEvent(
            generation_id=whose.generation_id,
            tenant=whose.tenant,
            key_id=whose.key_id,
            dialect=whose.dialect,
            edge_id=service.settings.edge.id,
            kind=Kind.TOOL_STATUS,
            wall_us=clock.wall_us(),
            elapsed_us=None if whose.accepted_us is None else clock.now_us() - whose.accepted_us,
            after_seq=whose.after_seq,
            tool_status=said,
        )
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def acked(offset: int) -> None:
            del offset
            if not written.done():
                written.set_result(None)

        def refused(error: Exception) -> None:
            if not written.done():
                written.set_exception(LogAway(str(error)))

        values = cut(service.codec, event)
        service.log.append(whose.partition, whose.generation_id.encode(), values, acked, refused)
        service.log.hurry(whose.partition)
        await written

    async def _tell(self, generation_id: str, said: ToolStatus, *, noted: bool) -> None:
        service = self._service
        record = ControlRecord(
            generation_id=generation_id,
            kind=ControlKind.TOOL,
            edge_id=service.settings.edge.id,
            wall_us=service.clock.wall_us(),
            tool_status=said,
            noted=noted,
        )
        await service.log.tell(generation_id.encode(), service.codec.encode(record))


def _ids_in(events: Iterable[LogEvent]) -> set[str]:
    """The ids of the tool calls in some events."""
    parts = (part for event in events for part in event.canonical if part.type is PartType.TOOL_CALL)
    return {part.tool_call_id for part in parts if part.tool_call_id is not None}


def _of(generation: "Generation", after_seq: int | None) -> Whose:
    identity = generation.identity
    return Whose(
        identity.generation_id,
        identity.tenant,
        identity.key_id,
        identity.dialect,
        identity.partition,
        generation.accepted_us,
        after_seq,
    )


def _ended_here(entry: "Entry") -> Whose:
    return _of(entry.generation, entry.driver.recorder.next_seq - 1)


def _whose(history: "History", partitions: int) -> Whose:
    first = history.records[0]
    return Whose(
        first.generation_id,
        first.tenant,
        first.key_id,
        first.dialect,
        partition=partition_of(first.generation_id.encode(), partitions),
        accepted_us=None,
        after_seq=history.delivered[-1].seq,
    )
