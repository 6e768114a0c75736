"""One generation's memory on its own edge: state, the window of acknowledged events, its readers.

The window holds what the log has acknowledged, in seq order, until terminal plus grace or until the byte budget takes
its older end; a reader that needs what is gone reads the log. ``on_log`` says that emitting from memory is over for
good (lease lost, publish failed): readers go on from the log. Single-threaded: everything runs on the event loop.

Before: ``lease``. After: ``recorder`` fills it, ``follow`` reads it.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from edge.driving.wishes import NO_WISHES
from schemas.events import LogEvent, MessageStart
from schemas.lifecycle import STAGES, Signal, State, move

if TYPE_CHECKING:
    from schemas.payloads import ProviderError
    from schemas.reading import Reading


SINCE_EVENTS_MAX = 256
SINCE_BYTES_MAX = 1 << 20
"""What one reader takes out of the window at a time: a slow one holds no more of it when the window has let it go."""


class Delivered:
    """A numbered event with where it lies in the log (the last part's offset). Frames are rendered once a dialect."""

    __slots__ = ("event", "frames", "offset", "partition")

    def __init__(self, event: LogEvent, partition: int, offset: int) -> None:
        self.event = event
        self.partition = partition
        self.offset = offset
        self.frames: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return 600 + 2 * len(self.event.raw or "")


class Head(NamedTuple):
    """What the response head will be: a stream, or a failure with its own status."""

    ok: bool
    status: int = 200
    body: bytes = b""
    code: str | None = None
    retry_after_ms: int | None = None


class Identity(NamedTuple):
    """What never changes of a generation."""

    generation_id: str
    tenant: str
    key_id: str
    dialect: str
    partition: int
    secret: bytes
    start: MessageStart


class Follows(NamedTuple):
    """What a generation goes on from, as its attempt_start says it."""

    previous_request_id: str
    previous_output_hash: str
    continuation_point: int | None = None


class Generation:
    """A generation that runs, or ran lately, on this edge."""

    def __init__(self, identity: Identity, accepted_us: int, wall_us: int, on_disconnect: str) -> None:
        self.identity = identity
        self.accepted_us = accepted_us
        self.accepted_wall_us = wall_us
        self.on_disconnect = on_disconnect
        self.state = State.ACCEPTED
        self.window: deque[Delivered] = deque()
        self.window_first_seq = 0
        self.window_bytes = 0
        self.start_offset: int | None = None
        self.terminal: Delivered | None = None
        self.on_log = False
        self.log_away = False
        self.erased = False
        self.readers = 0
        self.reading: dict[str, Reading] = {}  # where each reader of this edge stands
        self.left_because: str | None = None  # why the last reader that left had gone
        self._left_seq = -1
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.head: asyncio.Future[Head] = self._loop.create_future()
        self.provider_error: ProviderError | None = None
        self.first_emit_us: int | None = None
        self.admission_us: int | None = (
            None  # how long it waited to be admitted; None where nothing is limited
        )
        self.wishes = NO_WISHES
        self.follows: Follows | None = None
        self.changed_inputs: tuple[str, ...] = ()  # of the latest attempt: what is not as the client sent it
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def id(self) -> str:
        """The generation id."""
        return self.identity.generation_id

    @property
    def stage(self) -> str:
        """Where it stands, as heartbeats say it."""
        return STAGES[self.state].value

    @property
    def sent_seq(self) -> int | None:
        """The last seq that any reader of this edge was sent; None for none."""
        found = max(self._left_seq, *(reading.next_seq - 1 for reading in self.reading.values()), -1)
        return found if found >= 0 else None

    def left(self, reader_id: str, because: str) -> None:
        """A reader of this edge is gone."""
        reading = self.reading.pop(reader_id, None)
        if reading is not None:
            self._left_seq = max(self._left_seq, reading.next_seq - 1)
        self.left_because = because

    def signal(self, signal: Signal) -> None:
        """Move the state; IllegalMove where the table has no such move."""
        self.state = move(self.state, signal)

    def add(self, delivered: Delivered) -> None:
        """Take the next acknowledged event into the window and wake the readers."""
        self.window.append(delivered)
        self.window_bytes += delivered.size
        if delivered.event.is_terminal:
            self.terminal = delivered
            self.ended.set()
        self.wake()

    def shrink(self) -> int:
        """Give up the window's older half; the bytes that were freed."""
        freed = 0
        for _ in range(max(1, len(self.window) // 2) if self.window else 0):
            freed += self.window.popleft().size
            self.window_first_seq += 1
        self.window_bytes -= freed
        return freed

    def release(self) -> None:
        """Give up the whole window, which is out of the budget's sight from now on: a slow reader would keep it at will."""
        self.window_first_seq += len(self.window)
        self.window.clear()
        self.window_bytes = 0
        self.wake()

    def since(self, seq: int) -> list[Delivered] | None:
        """The next events from a seq on, so many as one reader may hold; None where the window no longer holds it."""
        index = seq - self.window_first_seq
        if index < 0:
            return None
        window = self.window
        if index + 1 == len(window):
            return [window[-1]]
        found, held_bytes = [], 0
        for i in range(index, min(len(window), index + SINCE_EVENTS_MAX)):
            found.append(window[i])
            held_bytes += window[i].size
            if held_bytes >= SINCE_BYTES_MAX:
                break
        return found

    def leave_memory(self) -> None:
        """From now on readers follow the log, for good."""
        self.on_log = True
        self.wake()

    def erase(self) -> None:
        """It is forgotten on request: readers are given nothing more of it."""
        self.erased = True
        self.wake()

    def wake(self) -> None:
        """Let every waiting reader look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def over(self) -> None:
        """Wait until the log has the terminal, or takes no records."""
        while not (self.ended.is_set() or self.log_away):
            await self.news()

    async def news(self) -> None:
        """Wait until something changed."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter
