"""The store on an event loop: its file is read and written by a thread, so that the loop never waits for it.

Invariants: what is to be kept is written in the order in which it was given, and whoever gave it waits until it is stored;
all that waits when the thread is free goes into one transaction. A writer that is cancelled leaves the order as it is. A
store in memory is used in place: nobody else holds it, and a thread would cost more than it does.
Before: ``store``. After: ``async_shell``.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from tokentrail_client.store import Store, StoreError
from tokentrail_client.tables import Kept

T = TypeVar("T")


class Waiting:
    """Something to keep. ``error``: why it is not stored; None where it is."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.done = False
        self.error: StoreError | None = StoreError("it was not written")


class OffLoop:
    """One store, for the sessions of one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[Waiting] = deque()
        self._turn = threading.Lock()  # a thread that nobody waits for any more is still before the next
        self._writer = anyio.Lock(fast_acquire=True)
        self._threads = anyio.CapacityLimiter(1)  # not the application's, which it may have used up

    async def run(self, work: Callable[[Store], T]) -> T:
        """Do something with the store. Raises StoreError."""
        if self._store.in_memory:
            return work(self._store)
        return await anyio.to_thread.run_sync(work, self._store, limiter=self._threads)

    async def keep(self, kept: Kept) -> None:
        """Store it. Raises StoreError."""
        await self.stored(self.give(kept))

    def give(self, kept: Kept) -> Waiting:
        """Give something to keep; it is stored with what is waited for next."""
        one = Waiting(kept)
        self._waiting.append(one)
        if self._store.in_memory:
            self._write()
        return one

    async def stored(self, one: Waiting) -> None:
        """Wait until it is stored, with all that waits beside it. Raises StoreError."""
        if not one.done:
            async with self._writer:
                if not one.done:  # else the one before has taken it along
                    await anyio.to_thread.run_sync(self._write, limiter=self._threads)
        if one.error is not None:
            raise one.error

    def _write(self) -> None:
        with self._turn:
            batch: list[Waiting] = []
            while self._waiting:
                batch.append(self._waiting.popleft())
            try:
                self._write_all(batch)
            finally:
                for one in batch:
                    one.done = True

    def _write_all(self, batch: list[Waiting]) -> None:
        """Write them as one transaction; each by itself where that fails for what may be the fault of one of them."""
        try:
            self._store.write([one.kept for one in batch])
        except StoreError as error:
            if len(batch) > 1 and not error.held:
                for one in batch:
                    self._write_all([one])
                return
            for one in batch:
                one.error = error
        else:
            for one in batch:
                one.error = None
