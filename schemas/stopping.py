"""How a process of ours ends: within a time that is known before, whatever it waits for.

That is part of what it promises to whoever runs it. A stop settles (what was read or begun is finished, acknowledged,
committed: ``stop.settle_s``; at an edge ``edge.drain_s`` and ``log.delivery_s``), then it closes (clients leave:
``stop.close_s``). What is not settled by then is said in the log and left: it was not committed, so the next start reads
it again. A second signal changes nothing. ``Deadline`` is for what no order of a stop can foresee: a library that waits
for ever, an event loop that stands still. Whoever supervises waits ``MARGIN_S`` longer than the deadline.

Exit codes: 0 where it ended as it was asked to, also where something is left for the next start; ``EXIT_CUT`` where the
deadline ended it. The one module of the contract that knows threads and tasks. Before: a signal. After: each process.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

EXIT_CUT = 75
"""sysexits' EX_TEMPFAIL: started again, it goes on where its commits stand."""
MARGIN_S = 2.0
"""What a busy machine may take for the steps of a stop that wait for nothing."""
LAST_WORDS_S = 5
"""After the drain time an edge's readers are given their terminals; who has not taken them by then is cut off."""

T = TypeVar("T")


SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_signal(act: Callable[[], None]) -> None:
    """Have the running loop act on the first signal. Later ones are for nothing, to the very end of the process.

    A handler of the loop would end with it, and Python's with Python: a second signal then kills what stopped in order.
    """
    loop = asyncio.get_running_loop()

    def heard(*_: object) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if not loop.is_closed():
            loop.call_soon_threadsafe(act)

    for number in SIGNALS:
        signal.signal(number, heard)


class Deadline:
    """Ends the process when a stop has taken too long.

    Args:
        limit_s: from ``begin`` on.
        tell: called once before the end, in a thread of its own: says that it comes, and what is left.
        leave: ends the process with an exit code.
    """

    def __init__(
        self, limit_s: float, tell: Callable[[], None], leave: Callable[[int], object] = os._exit
    ) -> None:
        self._limit_s = limit_s
        self._tell = tell
        self._leave = leave
        self._timer: threading.Timer | None = None

    def begin(self) -> bool:
        """A stop was asked for. True for the first call; later ones change nothing."""
        if self._timer is not None:
            return False
        self._timer = threading.Timer(self._limit_s, self._end)
        self._timer.daemon = True  # it keeps nobody alive who ends in time
        self._timer.start()
        return True

    def _end(self) -> None:
        try:
            self._tell()
        finally:
            self._leave(EXIT_CUT)


def leave(code: int) -> NoReturn:
    """End the process now, everything being said and settled, or meant to be read again.

    Python's own end can take seconds (it collects what an outage has left behind), joins threads that wait for a server,
    hears no deadline, and lets a second signal kill what has stopped in order.
    """
    with suppress(OSError, ValueError):  # a full disk, a reader that has left
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


async def closed(closing: Coroutine[object, object, object], limit_s: float) -> str | None:
    """Run a client's own closing for so long; None where it closed, else in words what became of it.

    In a task of its own: such a closing may never end, keep a cancellation to itself, or (aiokafka 0.14, while a fetch
    waits for its next try) hand a cancellation that nobody asked for to whoever awaits it.
    """
    task = asyncio.ensure_future(closing)
    try:
        await asyncio.wait({task}, timeout=limit_s)
    finally:
        task.cancel()  # nothing where it is done
        task.add_done_callback(_heard)
    if not task.done():
        return f"not closed within {limit_s:g} s"
    if task.cancelled():
        return "its closing was cancelled half-way"
    error = task.exception()
    return None if error is None else repr(error)


async def client_closed(
    client: Any, limit_s: float, connections_s: float, tell: Callable[[str], object]
) -> None:
    """Stop a consumer or a producer. One that does not stop in time, or breaks off, loses its connections all the same.

    ``tell``: called with what became of it, before its connections are closed; not called where it stopped.
    """
    trouble = await closed(client.stop(), limit_s)
    if trouble is None:
        return
    tell(trouble)
    connections = client.client if hasattr(client, "client") else client._client  # noqa: SLF001 - a consumer has no public one
    await closed(connections.close(), connections_s)


async def to_the_end(work: Coroutine[object, object, T]) -> T:
    """What the work gives or raises. A cancellation that nobody asked of this task is an error, and no quiet end.

    A client's own can come out of a call to it (see ``closed``); a task group would go on without the task.
    """
    try:
        return await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("cancelled, and nobody of ours has asked for it") from None


async def in_thread(call: Callable[[], T]) -> T:
    """What a blocking call gives or raises, off the event loop.

    Whoever is cancelled meanwhile leaves it running, and so does the end of the process: a pool's threads would be joined.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is awaited
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name="call").start()
    return await asyncio.wrap_future(answer)


def _heard(task: asyncio.Future[object]) -> None:
    """What an abandoned closing comes to is nobody's."""
    if not task.cancelled():
        task.exception()
