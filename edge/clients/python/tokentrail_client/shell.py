"""Does what a course asks, blocking: connections, waiting, the store.

The order of the steps is the course's: it asks to keep before it gives. Here each step is only done. Before: ``vendor``.
After: ``async_shell`` is the same on an event loop; ``transport`` and ``sessions`` hand on what comes up.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from tokentrail_client.call import TOO_LARGE, Stopped
from tokentrail_client.course import Course
from tokentrail_client.effects import (
    Answer,
    Ask,
    Foreign,
    Give,
    Head,
    Keep,
    Lost,
    Opened,
    Read,
    ReadAll,
    Repair,
    Tell,
    Wait,
)
from tokentrail_client.store import Store, StoreError
from tokentrail_client.tables import Kept
from tokentrail_client.vendor import Flavour

TOLD_BYTES_MAX = 1 << 16
"""What an edge says to an acknowledgement: a few ranges."""
Up = Opened | Give | Answer | Foreign
Timeout = Mapping[str, float | None] | None


class Base:
    """What both shells have: the course's steps, and where they are kept.

    Args:
        course: decides.
        flavour: the HTTP library.
        journal: whether events are kept with their positions.
        timeout: the caller's own time-outs of a request.
        cancels: whether a generation that the application leaves is cancelled.

    """

    def __init__(
        self,
        course: Course,
        flavour: Flavour,
        *,
        journal: bool = False,
        timeout: Timeout = None,
        cancels: bool = False,
    ) -> None:
        self.course = course
        self.response: Any = None
        self._flavour = flavour
        self._journal = journal
        self._timeout = timeout
        self._cancels = cancels
        self._steps = course.run()
        self._told: Any = None
        self._over = False

    def let_go(self) -> Any:
        """The response of a stream that is not ours to keep whole; whoever takes it closes it."""
        response, self.response = self.response, None
        return response

    def _heard(self, response: Any) -> Head | Lost:
        """An answer's head; Lost where its body is packed so that a few bytes could become any number."""
        head = self._flavour.head(response)
        if head.is_readable:
            return head
        packed = head.headers["content-encoding"]
        return Lost(Stopped("not_an_edge", f"what answers here packs its answers, unasked: {packed}"))

    def _kept(self, keep: Keep) -> Kept:
        session, journal = self.course.call.session, self._journal
        return Kept(session, keep.state, keep.generation_id, keep.last_id, keep.reason, keep.frames, journal)

    def _not_stored(self, error: StoreError) -> None:
        """What cannot be kept is not handed over: the session ends here, its generation does not."""
        self._steps.throw(Stopped("store_failed", str(error)))

    def _finish(self) -> tuple[Kept | None, Any]:
        """Close the course, once: how it ended, which is to be stored, and the request that is left to send, if any."""
        if self._over:
            return None, None
        self._over = True
        self._steps.close()
        course = self.course
        ask = course.cancel() if self._cancels else None
        request = ask and self._flavour.request(ask, dict.fromkeys(("connect", "write", "pool"), ask.read_s))
        return self._kept(Keep(course.state, course.generation_id, reason=course.reason)), request


class Shell(Base):
    """The blocking one.

    Args:
        course, flavour, more: see Base.
        send: sends one request of the flavour and gives its unread response.
        store: where positions are kept, None for nowhere.

    """

    def __init__(
        self, course: Course, flavour: Flavour, send: Callable[[Any], Any], store: Store | None, **more: Any
    ) -> None:
        super().__init__(course, flavour, **more)
        self._store = store
        self._send = send
        self._chunks: Iterator[bytes] | None = None
        self._closed = threading.Event()

    def step(self) -> Up | None:
        """The next that goes up; None at the end. Raises Stopped, or a connection's error."""
        if self._over:
            return None
        try:
            while True:
                effect = self._steps.send(self._told)
                self._told = None
                if isinstance(effect, Opened | Give | Answer | Foreign):
                    return effect
                try:
                    self._told = self._do(effect)
                except StoreError as error:
                    self._not_stored(error)
        except StopIteration:
            self.close()
            return None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave: an abort, where the terminal was not handed over yet."""
        self._closed.set()
        ended = request = None
        try:
            ended, request = self._finish()
        finally:
            self._leave()
        if ended is not None and self._store is not None:
            with suppress(StoreError):  # what was handed over is kept; this only says how it ended
                self._store.write([ended])
        if request is not None:
            with suppress(*self._flavour.lost):  # the grace time ends what this did not reach
                self._send(request).close()

    def _do(self, effect: Ask | Tell | Read | ReadAll | Wait | Keep | Repair) -> Any:
        match effect:
            case Ask():
                return self._ask(effect)
            case Tell(ask):
                return self._tell(ask)
            case Read():
                return self._read()
            case ReadAll():
                return self._read_all(effect)
            case Wait(seconds):
                self._closed.wait(seconds)
            case Keep() if self._store is not None:
                self._store.write([self._kept(effect)])
            case Repair(seq, event, data) if self._store is not None:
                self._store.repair(self.course.call.session, seq, event, data)
        return None

    def _ask(self, ask: Ask) -> Head | Lost:
        self._leave()
        try:
            self.response = self._send(self._flavour.request(ask, self._timeout))
        except self._flavour.lost as error:
            return Lost(error)
        return self._heard(self.response)

    def _tell(self, ask: Ask) -> tuple[int, bytes] | Lost:
        body = Body(ReadAll(TOLD_BYTES_MAX, ask.read_s))
        try:
            response = self._send(self._flavour.request(ask))
            try:
                for part in response.iter_bytes():
                    if (lost := body.take(part)) is not None:
                        return lost
            finally:
                response.close()
        except self._flavour.lost as error:
            return Lost(error)
        return response.status_code, body.whole

    def _read(self) -> bytes | Lost | None:
        try:
            if self._chunks is None:
                self._chunks = self.response.iter_bytes()
            return next(self._chunks, None)
        except self._flavour.lost as error:
            return Lost(error)

    def _read_all(self, bounds: ReadAll) -> bytes | Lost:
        body = Body(bounds)
        while (part := self._read()) is not None:
            lost = part if isinstance(part, Lost) else body.take(part)
            if lost is not None:
                return lost
        return body.whole

    def _leave(self) -> None:
        response, self.response, self._chunks = self.response, None, None
        if response is not None:
            with suppress(*self._flavour.lost):  # it is closed, whatever the other side says to that
                response.close()


class Body:
    """A body on its way, within bounds. Its reads are bounded one by one as well, so that none outlasts them for long."""

    def __init__(self, bounds: ReadAll) -> None:
        self._bounds = bounds
        self._until_s = time.monotonic() + bounds.within_s
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, part: bytes) -> Lost | None:
        """One part more; Lost beyond a bound."""
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._bounds.bytes_max:
            return Lost(Stopped(TOO_LARGE, f"the body is above {self._bounds.bytes_max} bytes"))
        if time.monotonic() > self._until_s:
            said = f"no end of the body within {self._bounds.within_s:g} s"
            return Lost(Stopped("read_timeout", said, timed_out=True))
        return None

    @property
    def whole(self) -> bytes:
        """What came."""
        return b"".join(self._parts)


def told(flavour: Flavour, error: Stopped) -> Exception:
    """A stop as the error that an SDK understands."""
    return flavour.stopped(str(error), timed_out=error.timed_out)
