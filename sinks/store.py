"""What a sink asks of a row store, and the ways it can say no.

``Table`` is the identity of a table's rows: its key, and which of two rows with one key stands. The fake
(``memory``) and the real store (``clickhouse``) pass one contract suite (``tests/contract/test_rowstore.py``).

Before: nothing. After: ``rows`` makes the tables' values, ``loop`` inserts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from schemas.errors import TokentrailError, Transient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.topics import Topic

Row = tuple[object, ...]
"""One row, its values in the order of ``Table.columns``."""


class Table(NamedTuple):
    """One table.

    Rows with equal ``key`` are one row: the one with the highest ``version`` stands, among equals the last inserted.
    ``binary`` columns hold bytes and not text.
    """

    name: str
    topic: Topic
    columns: tuple[str, ...]
    key: tuple[str, ...]
    version: str | None = None
    binary: frozenset[str] = frozenset()


class Erasure(NamedTuple):
    """``generations``: (tenant, id) of the forgotten ones; ``suspects``: ids of dead letters that may be of such a one."""

    generations: Sequence[tuple[str, str]] = ()
    suspects: Sequence[str] = ()


class Refused(TokentrailError):
    """The store will never take these rows: at least one of them has a value that does not fit its column."""


class SqlError(Refused):
    """The store does not understand a statement, or may not run it. The message is the store's own."""


class Unavailable(Transient):
    """The store does not take rows at the moment; the same rows may be given again with the same token."""


class RowStore(Protocol):
    """Where rows go. Every call blocks: a shell gives it a thread of its own."""

    def insert(self, table: Table, rows: Sequence[Row], token: str) -> None:
        """Store all rows or none; raises Refused or Unavailable. A token that was stored lately stores nothing."""

    def erase(self, erasure: Erasure) -> None:
        """Take away what is forgotten, for good: rows of events but the ``forgotten`` ones, and dead letters.

        Raises Unavailable; again is the same.
        """

    def final(self, table: Table) -> list[Row]:
        """One row per key, ordered by key: what every shipped view counts."""

    def merge(self, table: Table) -> None:
        """Bring about now what the store does by itself in time: rows with one key become one."""

    def close(self) -> None:
        """Let go of connections."""


class SqlStore(RowStore, Protocol):
    """A row store that speaks SQL. Every statement raises SqlError or Unavailable."""

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """All rows of an answer; ``{name:Type}`` in the text is bound from ``params``."""

    def stream(self, sql: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """The rows of an answer one by one, in constant memory."""

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        """Run one statement that gives no rows."""
