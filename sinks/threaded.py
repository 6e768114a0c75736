"""The warehouse's calls off the event loop, in threads that nobody has to wait for.

A call to a warehouse that froze ends with its time-out, a minute later. Whatever such an insert still does when the
process ends is done again by the next start, under the same keys.

Before: ``app``. After: ``clickhouse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.stopping import in_thread
from sinks.clickhouse import ClickHouseStore, connect
from sinks.store import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.settings import Settings
    from sinks.store import Erasure, Row, Table


class ThreadedStore:
    """A store of its own for one loop, off the event loop. Connected at the first insert, and again after a failure."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store: ClickHouseStore | None = None

    async def insert(self, table: Table, rows: Sequence[Row], token: str) -> None:
        """Store all rows or none; raises Refused or Unavailable."""
        await in_thread(lambda: self._do(lambda store: store.insert(table, rows, token)))

    async def erase(self, erasure: Erasure) -> None:
        """Erase what is forgotten; raises Unavailable."""
        await in_thread(lambda: self._do(lambda store: store.erase(erasure)))

    def _do(self, act: Callable[[ClickHouseStore], None]) -> None:
        store = self._store or connect(self._settings.clickhouse)
        self._store = None
        try:
            act(store)
        except Unavailable:
            store.close()
            raise
        self._store = store

    async def close(self) -> None:
        """Let go of connections."""
        if self._store is not None:
            await in_thread(self._store.close)
