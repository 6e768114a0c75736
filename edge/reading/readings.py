"""Whose turn it is to have a whole history read: one request is cheap to send, and may cost the reading of megabytes.

An id that is nowhere costs as much: a minute of its partition is read for it, so it stands in the line as well.

One reading of a generation at a time, ``limit.histories`` of a tenant; the others wait in the order in which they came,
and what is above ``limit.histories_waiting`` is refused. Each tenant has a line of its own, so nobody waits behind a
stranger, nor learns by waiting that a stranger's generation is there. An archive that
does not answer is waited for outside of it. Before: ``resume``. After: ``history`` reads.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from schemas.errors import TokentrailError
from schemas.limits import Limit


class Crowded(TokentrailError):
    """So many of a tenant's requests wait for a history that one more is refused."""


class _Line:
    """One tenant's requests."""

    def __init__(self, at_once: int) -> None:
        self.asking = 0
        self.at_once = asyncio.Semaphore(at_once)
        self.of_generation: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


class Readings:
    """The lines; one lives while somebody stands in it."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._lines: WeakValueDictionary[str, _Line] = WeakValueDictionary()

    def asking(self, tenant: str) -> int:
        """How many of a tenant's requests read or wait."""
        line = self._lines.get(tenant)
        return 0 if line is None else line.asking

    @asynccontextmanager
    async def turn(self, tenant: str, generation_id: str) -> AsyncIterator[None]:
        """Wait for one's turn, and keep it within the block. Raises Crowded."""
        line = self._lines.setdefault(tenant, _Line(self._limit.histories))
        if line.asking >= self._limit.histories + self._limit.histories_waiting:
            raise Crowded(
                f"{self._limit.histories_waiting} requests wait for a whole generation already "
                "(limit.histories_waiting)"
            )
        line.asking += 1
        try:
            own = line.of_generation.setdefault(generation_id, asyncio.Lock())
            async with (
                own,
                line.at_once,
            ):  # in this order: who waits for one generation keeps nobody from another
                yield
        finally:
            line.asking -= 1
