"""Everything that is held of one generation, trace records included, up to now.

For the answers that are about a generation rather than of it: its state, its finished body. Before: ``find``, ``past``.
After: ``routes``, ``result``.
"""

import asyncio

from edge.log import EventLog, OffsetGone
from edge.reading.decode import whole_event
from edge.reading.find import Located
from edge.reading.past import Past
from schemas.codec import Codec
from schemas.events import Kind, LogEvent
from schemas.parts import Joiner
from schemas.reading import Reading, Verdict

TURN_RECORDS = 64
"""So many are taken at a time, a few milliseconds; then the event loop serves the streams."""


class History:
    """The records of a generation in log order; ``delivered`` are those that a reader gets."""

    def __init__(self) -> None:
        self.records: list[LogEvent] = []
        self.delivered: list[LogEvent] = []
        self.complete = True
        self.erased = False
        self._jumped = False
        self._reading = Reading(0)

    @property
    def terminal(self) -> LogEvent | None:
        """The terminal that every reader gets, if there is one yet."""
        last = self.delivered[-1] if self.delivered else None
        return last if last is not None and last.is_terminal else None

    @property
    def start(self) -> LogEvent | None:
        """message_start."""
        first = self.delivered[0] if self.delivered else None
        return first if first is not None and first.kind is Kind.MESSAGE_START else None

    @property
    def whole(self) -> bool:
        """Whether nothing before its end is missing, or it is known to be forgotten."""
        return self.erased or (self.start is not None and self.complete and not self._jumped)

    def take(self, event: LogEvent) -> None:
        """The next record in log order."""
        self.records.append(event)
        self.erased = self.erased or event.kind is Kind.FORGOTTEN
        wanted = self._reading.next_seq
        verdict = self._reading.offer(event)
        if verdict is Verdict.DELIVER:
            self._jumped = self._jumped or (event.seq or 0) > wanted
            self.delivered.append(event)
        elif verdict is Verdict.GAP:
            self.complete = False

    def answer(self) -> list[LogEvent]:
        """What the finished body is assembled from: the delivered events, and usage records kept from the client."""
        return [*self.delivered, *(r for r in self.records if r.kind is Kind.USAGE)]


async def read_history(log: EventLog, codec: Codec, located: Located) -> History:
    """Read from the generation's first record to the end that the log has now. Raises LogAway."""
    history = History()
    where = located.event.generation_id, located.partition, located.offset
    await _read_on(log, codec, *where, history)
    return history


async def read_past(past: Past, log: EventLog, codec: Codec) -> History:
    """Read what the archive holds, and the log where that goes on. Raises LogAway."""
    history = History()
    async for event in past.events():
        history.take(event)
        await _give_way(history)
    offset = await past.goes_on_at()
    if offset is not None:
        await _read_on(log, codec, past.found.generation_id, past.found.partition, offset, history)
    elif history.terminal is None:
        history.complete = False
    return history


async def _read_on(
    log: EventLog, codec: Codec, generation_id: str, partition: int, offset: int, history: History
) -> None:
    joiner = Joiner(codec)
    reader = log.reader(partition, generation_id.encode(), offset)
    try:
        caught_up = False
        while not caught_up:
            progress = await reader.read()
            caught_up = progress.caught_up
            for raw in progress.records:
                event = await whole_event(log, codec, joiner, raw.value, raw.offset)
                if event is not None:
                    history.take(event)
                    await _give_way(history)
    except OffsetGone:
        history.complete = False
    finally:
        reader.close()


async def _give_way(history: History) -> None:
    if len(history.records) % TURN_RECORDS == 0:
        await asyncio.sleep(0)
