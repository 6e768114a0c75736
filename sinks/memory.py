"""A row store in memory, with the semantics that the tables rely on. For tests and for reading: this is what we assume.

An insert is whole or not at all; a token that was stored lately stores nothing; rows with one key are one row after a
merge and in ``final``. Before: ``loop``. After: nothing. The same contract suite holds ``clickhouse`` to it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from schemas.events import Kind
from sinks.rows import DEAD_LETTERS, EVENTS
from sinks.store import Refused, Row, Table, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sinks.store import Erasure

_KIND, _TENANT, _ID = (EVENTS.columns.index(name) for name in ("kind", "tenant", "generation_id"))
_KEY = DEAD_LETTERS.columns.index("key")

TOKENS = 1000
"""``non_replicated_deduplication_window`` of the tables."""


class MemoryStore:
    """Rows in lists.

    Args:
        accepts: whether a row fits its table; a block with one that does not is refused whole.
    """

    def __init__(self, accepts: Callable[[Row], bool] = lambda _: True) -> None:
        self._accepts = accepts
        self._rows: dict[str, list[Row]] = {}
        self._tokens: dict[str, deque[str]] = {}
        self.away = False
        self.inserts = 0

    def insert(self, table: Table, rows: Sequence[Row], token: str) -> None:
        """Store all rows or none."""
        if self.away:
            raise Unavailable("told to be away")
        for row in rows:
            if len(row) != len(table.columns) or not self._accepts(row):
                raise Refused(f"does not fit {table.name}: {row!r}")
        self.inserts += 1
        tokens = self._tokens.setdefault(table.name, deque(maxlen=TOKENS))
        if token in tokens:
            return
        tokens.append(token)
        self._rows.setdefault(table.name, []).extend(rows)

    def erase(self, erasure: Erasure) -> None:
        """Take away what is forgotten."""
        if self.away:
            raise Unavailable("told to be away")
        gone = {generation_id for _, generation_id in erasure.generations}
        gone |= {i for i in erasure.suspects if any(i == r[_ID] for r in self._forgotten())}
        events, letters = self._rows.get(EVENTS.name, []), self._rows.get(DEAD_LETTERS.name, [])
        events[:] = [
            r for r in events if (r[_TENANT], r[_ID]) not in erasure.generations or r[_KIND] == Kind.FORGOTTEN
        ]
        letters[:] = [r for r in letters if r[_KEY] not in {i.encode() for i in gone}]

    def _forgotten(self) -> list[Row]:
        return [r for r in self._rows.get(EVENTS.name, []) if r[_KIND] == Kind.FORGOTTEN]

    def final(self, table: Table) -> list[Row]:
        """One row per key, ordered by key."""
        key_at = [table.columns.index(name) for name in table.key]
        version_at = table.columns.index(table.version) if table.version else None
        standing: dict[tuple[Any, ...], Row] = {}
        for row in self._rows.get(table.name, []):
            key = tuple(row[i] for i in key_at)
            held = standing.get(key)
            if held is None or version_at is None or _version(row, version_at) >= _version(held, version_at):
                standing[key] = row
        return [standing[key] for key in sorted(standing)]

    def merge(self, table: Table) -> None:
        """Keep only what ``final`` shows."""
        self._rows[table.name] = self.final(table)

    def close(self) -> None:
        """Nothing to let go of."""


def _version(row: Row, at: int) -> Any:
    return row[at]
