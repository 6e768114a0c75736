"""Searches of the log for generations that nothing says the place of: one of each however many ask, few of a tenant at once.

An id that is nowhere costs the reading of its whole window, and whoever has a key can make up as many as he likes: they wait
for one another, and nobody of another tenant waits for them. A crowd that asks for one generation has it looked for once.
Before: ``resume``. After: ``find``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from edge.clock import Clock
from edge.log import EventLog
from edge.reading.find import Located, at_hint, by_time
from schemas.codec import Codec
from schemas.cursor import Cursor

AT_ONCE = 16
"""Of one tenant: each asks the broker for a few ranges, so more would only wait there."""


class Places:
    """Where generations lie in the log."""

    def __init__(self, log: EventLog, codec: Codec, clock: Clock, skew_ms: int) -> None:
        self._log, self._codec, self._clock, self._skew_ms = log, codec, clock, skew_ms
        self._searches = Searches(self._look)

    async def locate(
        self, generation_id: str, cursor: Cursor | None = None, tenant: str | None = None
    ) -> Located | None:
        """Where the log has a generation (of a tenant): at the cursor's hint, else in the window of its id's time."""
        if cursor is not None and cursor.offset is not None:
            found = await at_hint(self._log, self._codec, generation_id, cursor)
            if found is not None and tenant in (None, found.event.tenant):
                return found
        if tenant is None:  # the edge itself asks
            return await self._look(generation_id, None)
        return await self._searches.find(generation_id, tenant)

    async def _look(self, generation_id: str, tenant: str | None) -> Located | None:
        now_ms = self._clock.wall_us() // 1000
        return await by_time(self._log, self._codec, generation_id, self._skew_ms, now_ms, tenant)


class Searches:
    """The searches under way; ``look`` does one of them, for a generation of a tenant."""

    def __init__(self, look: Callable[[str, str], Awaitable[Located | None]]) -> None:
        self._look = look
        self._running: dict[tuple[str, str], asyncio.Task[Located | None]] = {}
        self._lines: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def find(self, generation_id: str, tenant: str) -> Located | None:
        """Where it is; None where it is not. Raises what the search does."""
        key = (tenant, generation_id)
        search = self._running.get(key)
        if search is None:
            search = asyncio.get_running_loop().create_task(self._search(generation_id, tenant))
            self._running[key] = search
            search.add_done_callback(lambda done: self._over(key, done))
        return await asyncio.shield(search)

    async def _search(self, generation_id: str, tenant: str) -> Located | None:
        line = self._lines.setdefault(tenant, asyncio.Semaphore(AT_ONCE))
        async with line:
            return await self._look(generation_id, tenant)

    def _over(self, key: tuple[str, str], search: "asyncio.Task[Located | None]") -> None:
        del self._running[key]
        if not search.cancelled():
            search.exception()  # whoever asked has it; where nobody is left it is nobody's
