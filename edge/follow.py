"""The one path by which every client reads a generation: live, resumed, on another edge, finished.

First connect is "resume from nothing". A follower delivers what ``schemas.reading`` says, from one of three sources: the
window of a generation that runs here, the log, or the archive. It starts in memory where it can, and goes on from the log
when the window no longer holds what it needs or when emitting from memory is over (lease lost, publish failed); from the
archive it goes on where the log does. Seq decides what is delivered, so changing the source loses and repeats nothing.

Invariants: what it returns was acknowledged by the log; it returns the terminal at most once, and nothing behind it.
Before: ``generation``, ``log`` or ``past``. After: ``emit`` writes it out; ``resume`` decides whether there is a follower at all.
"""

import asyncio
from collections.abc import Callable

from edge.generation import Delivered, Generation
from edge.log import EventLog, LogAway, OffsetGone
from edge.reading.past import Past
from edge.reading.replays import Replays
from edge.reading.slices import Slices
from schemas.codec import Codec
from schemas.errors import TokentrailError
from schemas.events import Kind, LogEvent
from schemas.outcomes import ERRORS
from schemas.reading import Reading, Verdict

READ_EVENTS_MAX = 256
"""So many events at the most are handed out in one go: a replay of thousands leaves the loop to others between."""


class Hole(TokentrailError):
    """An event that is wanted is held nowhere, and no ``error`` terminal closes the hole."""

    code = "resume_expired"

    def __init__(self, first_available_seq: int | None) -> None:
        super().__init__(ERRORS[self.code].meaning)
        self.first_available_seq = first_available_seq


class Erased(Hole):
    """The generation was forgotten on request: nothing of it is said any more."""

    code = "erased"


class LogSilent(TokentrailError):
    """The log takes no records: the readers of this edge are told so, and come back later."""


class Follower:
    """One reader of one generation.

    Args:
        log: where the generation is.
        codec: the process's.
        generation_id: which one.
        partition: where it lies.
        next_seq: the first seq that is wanted.
        offset: where reading the log would begin.
        local: the generation's memory where it runs here.
        past: the archive's part, which is read before the log.
        forgotten: whether the generation was forgotten meanwhile; asked before anything is handed on from elsewhere.
        replays: what this edge's readers share of the log; None: nothing.

    Attributes:
        seen_seq: the highest seq that reading came across, wanted or not; -1 for none.
        jumped: whether an ``error`` terminal was taken over a range that is missing where it was read.

    """

    def __init__(
        self,
        log: EventLog,
        codec: Codec,
        generation_id: str,
        partition: int,
        next_seq: int,
        offset: int,
        local: Generation | None,
        past: Past | None = None,
        forgotten: Callable[[], bool] = lambda: False,
        replays: Replays | None = None,
    ) -> None:
        self.generation_id = generation_id
        self._partition = partition
        self._offset = offset
        self._position = offset
        self._local = local
        self._past = past
        self._forgotten = forgotten
        self._replays = replays or Replays(0)
        self._of_log = Slices(log, codec, generation_id, partition, self._replays)
        self._ready: list[Delivered] = []
        self._seen_above: int | None = None
        self._first_seen: int | None = None
        self._wanted = next_seq
        self.seen_seq = -1
        self.jumped = False
        self._hole: Hole | None = None
        self.reading = Reading(next_seq)
        self.caught_up = False
        self.met_end = asyncio.Event()  # set once nothing more was there

    @property
    def ended(self) -> bool:
        """Whether the terminal was read and everything before it was handed out."""
        return self.reading.ended and not self._ready and self._hole is None

    @property
    def partition(self) -> int:
        """The partition that the generation lies in."""
        return self._partition

    @property
    def position(self) -> int:
        """The next offset that reading the log would look at."""
        return self._position

    @property
    def remote(self) -> bool:
        """Whether it reads from the log."""
        return self._past is None and (self._local is None or self._local.on_log)

    @property
    def begins_behind(self) -> int | None:
        """The first seq that was come across, where that lies behind the wanted one: what was before it is gone.

        None too for a hole behind something that is held: its writer may still be about to end it with an ``error``.
        """
        waits = self.caught_up and not (self._ready or self.ended)
        return self._first_seen if waits and self.begins_late else None

    @property
    def begins_late(self) -> bool:
        """Whether the first event that was come across lies behind the first one that was wanted."""
        return self._first_seen is not None and self._first_seen > self._wanted

    async def read(self) -> list[Delivered]:
        """The next events; none only where the generation ended before what was wanted.

        Raises Hole (behind everything that lies before it), LogSilent, OffsetGone. Call it only while not ``ended``.
        """
        if self._ready and self._forgotten():
            self._erase()  # it was ready before, while the client took nothing
        while not (self._ready or self.reading.ended):
            await self._more()
        if self._hole is not None and not self._ready:
            raise self._hole
        if len(self._ready) <= READ_EVENTS_MAX:
            ready, self._ready = self._ready, []
        else:
            ready, self._ready = self._ready[:READ_EVENTS_MAX], self._ready[READ_EVENTS_MAX:]
        return ready

    async def opening(self) -> LogEvent | None:
        """Wait for the first event behind message_start, and leave it to ``read``; None where reading ends without one.

        Only for a reader from nothing. Raises Hole, LogSilent, OffsetGone.
        """
        while not (len(self._ready) > 1 or self.reading.ended):
            await self._more()
        if self._hole is not None:
            raise self._hole
        return self._ready[1].event if len(self._ready) > 1 else None

    async def preload(self, events_max: int) -> None:
        """Read what the log already has (bounded), so that a hole is found before the response head."""
        while not (self.caught_up or self.reading.ended or len(self._ready) >= events_max):
            await self._more()
        if self._hole is not None:
            raise self._hole

    def skip_to(self, seq: int) -> None:
        """Drop what is ready up to and with a seq."""
        self._ready = [delivered for delivered in self._ready if (delivered.event.seq or 0) > seq]

    def close(self) -> None:
        """Stop reading; idempotent."""
        self._of_log.close()

    async def _more(self) -> None:
        local = self._local
        if self._past is not None:
            await self._from_past(self._past)
            return
        if local is None or local.on_log:
            await self._from_log()
            return
        if local.erased:
            self._erase()
            return
        found = local.since(self.reading.next_seq)
        if found is None:
            self._local = None
        elif found:
            for delivered in found:
                self._judge(delivered)
        elif local.terminal is not None:
            self._judge(local.terminal)
        else:
            self._look(at_end=True)
            if local.log_away:
                raise LogSilent("the log takes no records at the moment")
            await local.news()

    async def _from_past(self, past: Past) -> None:
        try:
            page = await past.page()
            if self._forgotten():
                self._erase()
                return
            if page is not None:
                for delivered in page:
                    self._judge(delivered)
                return
            goes_on_at = await past.goes_on_at()
        except LogAway as away:
            raise LogSilent(str(away)) from away
        self._past = None
        if goes_on_at is not None:
            self._offset = self._position = goes_on_at
        elif not self.reading.ended:
            self.reading.ended = True
            self._hole = Hole(past.found.first_seq if self._seen_above is None else self._seen_above)

    async def _from_log(self) -> None:
        if self._local is not None and self._local.log_away:
            raise LogSilent("the log takes no records at the moment")
        try:
            found = await self._of_log.take(self._offset)
        except LogAway as away:
            raise LogSilent(str(away)) from away
        if self._forgotten():
            self._erase()
            return
        for delivered in found:
            self._judge(delivered)
        if (progress := self._of_log.progress) is not None:
            self._look(at_end=progress.caught_up)
            self._position = progress.position

    def _look(self, *, at_end: bool) -> None:
        self.caught_up = at_end
        if at_end:
            self.met_end.set()

    def _erase(self) -> None:
        """What is ready is not handed out either, and nothing is held for others."""
        self._replays.forget(self.generation_id)
        self._ready.clear()
        self.reading.ended = True
        self._hole = Erased(None)

    def _judge(self, delivered: Delivered) -> None:
        event = delivered.event
        if event.kind is Kind.FORGOTTEN:
            self._erase()
            return
        if self.reading.ended:
            return  # an edge that slept writes behind the terminal: that is nothing to anybody
        if event.seq is not None and event.seq > self.seen_seq:
            self.seen_seq = event.seq
            self._first_seen = event.seq if self._first_seen is None else self._first_seen
        wanted = self.reading.next_seq
        verdict = self.reading.offer(event)
        if verdict is Verdict.DELIVER and event.seq == self._wanted - 1:
            return  # the reader's own cursor is this terminal: it has it, and nothing follows
        if verdict is Verdict.DELIVER:
            self.jumped = self.jumped or (event.seq or 0) > wanted
            self._ready.append(delivered)
            self._offset = delivered.offset + 1
        elif verdict is Verdict.GAP:
            self._hole = Hole(event.seq if self._seen_above is None else self._seen_above)
        elif event.seq is not None and event.seq > self.reading.next_seq and self._seen_above is None:
            self._seen_above = event.seq


__all__ = ["Erased", "Follower", "Hole", "LogSilent", "OffsetGone"]
