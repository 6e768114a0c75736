"""What the log gives one follower, decoded slice by slice.

A range may hold thousands of events of a generation. They are decoded in slices, and between two of them the loop has its
turn: what was written leaves for the client, the others are served, and the range behind is asked for before this one is
worked on, so that the log's answer is there when it is wanted. Nothing is judged here. Before: ``log``, ``replays``. After:
``follow``.
"""

import asyncio
from collections import deque

from edge.generation import Delivered
from edge.log import EventLog, Progress, Raw, Reader
from edge.reading.replays import Replays
from schemas.codec import Codec
from schemas.parts import Joiner

SLICE_EVENTS_MAX = 64
"""So many records are decoded before the first of them is handed out: a resume's first event need not wait for all."""
ASK_TURNS = 2
"""Turns of the loop until the reading pass has asked for the range behind the one that was taken."""


class Slices:
    """One reader's events, in log order.

    Args:
        log: where they are.
        codec: the process's.
        generation_id: whose they are.
        partition: where it lies.
        replays: what this edge's readers share of the log.

    """

    def __init__(
        self, log: EventLog, codec: Codec, generation_id: str, partition: int, replays: Replays
    ) -> None:
        self._log = log
        self._codec = codec
        self._generation_id = generation_id
        self._partition = partition
        self._replays = replays
        self._joiner = Joiner(codec)
        self._reader: Reader | None = None
        self._undecoded: deque[Raw] = deque()
        self._progress: Progress | None = None

    @property
    def progress(self) -> Progress | None:
        """How far the reading has come, once all of that is decoded."""
        return None if self._undecoded else self._progress

    async def take(self, offset: int) -> list[Delivered]:
        """The next events; none where what was read holds none. ``offset``: where reading begins, the first time.

        Raises OffsetGone, LogAway.
        """
        if self._reader is None:
            self._reader = self._log.reader(self._partition, self._generation_id.encode(), offset)
        if self._undecoded:
            await asyncio.sleep(0)
        else:
            self._progress = await self._reader.read()
            self._undecoded.extend(self._progress.records)
            for _ in range(0 if self._progress.caught_up else ASK_TURNS):
                await asyncio.sleep(0)
        found = []
        for _ in range(min(SLICE_EVENTS_MAX, len(self._undecoded))):
            raw = self._undecoded.popleft()
            event = self._replays.find(self._generation_id, raw)
            if event is None:
                event = await self._replays.decoded(
                    self._log, self._codec, self._joiner, self._partition, raw
                )
            if event is not None:
                found.append(event)
        return found

    def close(self) -> None:
        """Stop reading; idempotent."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
