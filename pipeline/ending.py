"""The stop of a worker: what was read is settled for ``stop.settle_s``, what is left is said, and the process ends.

Faust's own stop is the first half of it and no more: it waits for ever for an event that is not acknowledged and for a
commit that no broker takes, and its consumer's thread for a minute where the client breaks off its closing. What it
would still close the kernel closes as well. A crash of Faust comes through here, too, and ends with another code.

Before: ``app``. After: the end of the process.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from schemas.settings import Settings
from schemas.stopping import Deadline, leave

EXIT_HALTED = 70
"""A bug, or a library's crash: what was read is read again."""

log = structlog.get_logger(__name__)


class Part:
    """One reader of the worker, as its stop sees it.

    Args:
        name: as the log calls it.
        stop: asks it to stop; it does not wait.
        settled: returns when nothing of what it read can be settled any more, or all of it is.
        left: what it leaves to the next start, in words; None where nothing.
    """

    def __init__(
        self,
        name: str,
        stop: Callable[[], None],
        settled: Callable[[], Coroutine[Any, Any, object]],
        left: Callable[[], str | None],
    ) -> None:
        self.name = name
        self.stop = stop
        self.settled = settled
        self.left = left


class Ending:
    """The one stop of a process.

    Args:
        settings: how long it may take.
        begun: whether anything has been read; before that there is nothing to settle.
        parts: who reads.
        leave: ends the process with an exit code.
    """

    def __init__(
        self,
        settings: Settings,
        begun: Callable[[], bool],
        parts: Sequence[Part],
        leave: Callable[[int], object] = leave,
    ) -> None:
        self._settle_s = settings.stop.settle_s
        self._begun = begun
        self._parts = parts
        self._leave = leave
        self._deadline = Deadline(settings.worker_stop_s, _tell_cut)
        self._asked = False

    def ask(self) -> None:
        """A signal came. Only the first one counts."""
        if self._deadline.begin():
            self._asked = True
            log.info("stopping", limit_s=self._settle_s)

    async def settle(self) -> None:
        """Settle what can be, say what cannot, and leave; returns only where ``leave`` does."""
        self._deadline.begin()  # also where nobody asked: Faust crashed
        for part in self._parts:
            part.stop()
        if not self._begun():
            log.info("stopped before anything was read")
            self._leave(0 if self._asked else EXIT_HALTED)
            return
        waits = [asyncio.ensure_future(part.settled()) for part in self._parts]
        await asyncio.wait(waits, timeout=self._settle_s)
        left = self._left()
        if left:
            log.warning("stopped with something left: the next start reads it again", **left)
        else:
            log.info("stopped, everything that was read is settled and committed")
        self._leave(0 if self._asked else EXIT_HALTED)

    def _left(self) -> dict[str, str]:
        return {part.name: left for part in self._parts if (left := part.left()) is not None}


def _tell_cut() -> None:
    log.critical("the stop took too long, ending without it; the next start reads again what is left")
