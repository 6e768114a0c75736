"""Where a reader stands in its stream: what is new in what a connection brings. Pure. Before: ``call``. After: ``course``.

An event whose number is not above the last one was handed over already and is left out, whatever an edge sends. A frame
without a number (a ping, an id that is no edge's) is handed on as it comes and moves nothing. The native dialect shows every number, so one that is
left out there was lost on the way: what stands behind it is not taken, but asked for again. Only an error may follow a
range that the log has lost.
"""

from tokentrail_client.endings import NATIVE, Ending, ending_of, is_finish
from tokentrail_client.frames import Frame
from tokentrail_client.states import State

RESENT = "resent"
"""The name of an event that is sent again beside the stream."""
MISSING = "event_missing"


class Position:
    """A reader's position, over all its connections.

    Attributes:
        last_id: the id of the last event that counts as received; None before the first.
        finished: whether the model has said its last word; the protocol's end may still be to come.
        ending: how the stream has ended, None while it goes on.
        resent: the data of events that an edge sent again, until somebody takes them out.
        pause: why the connection is of no more use: the code of an error frame that only asks to come again, or a hole;
            taken by ``paused``.

    """

    def __init__(self, dialect: str) -> None:
        self.last_id: str | None = None
        self.finished = False
        self.resent: list[str] = []
        self.ending: Ending | None = None
        self.pause: str | None = None
        self._dialect = dialect
        self._last_seq: int | None = None

    def fresh(self, frames: list[Frame]) -> tuple[Frame, ...]:
        """The frames to hand over, up to the ending."""
        fresh: list[Frame] = []
        for frame in frames:
            if frame.event == RESENT and frame.id is None and self._dialect == NATIVE:
                self.resent.append(frame.data)
                continue
            seq = frame.seq
            if seq is not None and self._last_seq is not None and seq <= self._last_seq:
                continue
            ending = ending_of(self._dialect, frame)
            if self._skips(seq) and not (ending is not None and ending.error is not None):
                self.pause = MISSING
                break
            if ending is not None and ending.asks_again:
                self.pause = ending.error.code if ending.error else None
                break
            fresh.append(frame)
            self.finished = self.finished or is_finish(self._dialect, frame)
            if seq is not None:
                self.last_id, self._last_seq = frame.id, seq
            if ending is not None:
                self.ending = ending
                break
        return tuple(fresh)

    def _skips(self, seq: int | None) -> bool:
        next_seq = 0 if self._last_seq is None else self._last_seq + 1
        return self._dialect == NATIVE and seq is not None and seq > next_seq

    def paused(self) -> str | None:
        """Why it is to be asked again; told once."""
        pause, self.pause = self.pause, None
        return pause

    @property
    def error(self) -> str | None:
        """The code of the error that ended it."""
        return self.ending.error.code if self.ending is not None and self.ending.error is not None else None

    @property
    def state(self) -> State:
        """Where a session stands that was handed everything up to here."""
        if self.ending is None:
            return State.STREAMING
        return State.COMPLETED if self.ending.terminal else State.CANCELLED
