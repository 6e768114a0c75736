"""Everything the log holds of one generation, trace records included, up to now.

For the answers that are about a generation rather than of it: its state, its finished body. Before: ``find``. After:
``routes``, ``result``.
"""

from edge.decode import whole_event
from edge.find import Located
from edge.log import EventLog, OffsetGone
from schemas.codec import Codec
from schemas.events import Kind, LogEvent
from schemas.parts import Joiner
from schemas.reading import Reading, Verdict


class History:
    """The records of a generation in log order; ``delivered`` are those that a reader gets."""

    def __init__(self) -> None:
        self.records: list[LogEvent] = []
        self.delivered: list[LogEvent] = []
        self.complete = True

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

    def answer(self) -> list[LogEvent]:
        """What the finished body is assembled from: the delivered events, and usage records kept from the client."""
        return [*self.delivered, *(r for r in self.records if r.kind is Kind.USAGE)]


async def read_history(log: EventLog, codec: Codec, located: Located) -> History:
    """Read from the generation's first record to the end that the log has now."""
    history, reading, joiner = History(), Reading(0), Joiner(codec)
    reader = log.reader(located.partition, located.event.generation_id.encode(), located.offset)
    try:
        caught_up = False
        while not caught_up:
            progress = await reader.read()
            caught_up = progress.caught_up
            for raw in progress.records:
                event = await whole_event(log, codec, joiner, raw.value, raw.offset)
                if event is not None:
                    history.records.append(event)
                    verdict = reading.offer(event)
                    if verdict is Verdict.DELIVER:
                        history.delivered.append(event)
                    elif verdict is Verdict.GAP:
                        history.complete = False
    except OffsetGone:
        history.complete = False
    finally:
        reader.close()
    return history
