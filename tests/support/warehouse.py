"""A database for one test, with the shipped tables and views: made for it, or used before and empty again."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sinks import migrate
from sinks.clickhouse import ClickHouseStore

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count(1)
_idle: dict[str, list[str]] = {}
"""Names of empty databases by server."""
_SHAPE = "SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase() ORDER BY name"
_FILLED = """
SELECT name FROM system.tables
WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name != 'schema_migrations'
"""


@contextmanager
def fresh_database(url: str, *, migrated: bool = True) -> Iterator[ClickHouseStore]:
    """A store in a new database at a server, dropped at the end."""
    name = _made(url)
    store = ClickHouseStore(url, database=name)
    try:
        if migrated:
            migrate.apply(store)
        yield store
    finally:
        store.close()
        _drop(url, name)


@contextmanager
def empty_database(url: str) -> Iterator[ClickHouseStore]:
    """A store in a database with the shipped tables, all empty; for tests that put in rows and change nothing else.

    To migrate takes 100 times as long as to empty: afterwards the next one is given it, unless its shape was changed.
    `drop_idle` ends it. (An emptied table has also forgotten the tokens of its blocks.)
    """
    idle = _idle.setdefault(url, [])
    name = idle.pop() if idle else _made(url)
    store = ClickHouseStore(url, database=name)
    reusable = False
    try:
        migrate.apply(store)
        shape = store.query(_SHAPE)
        yield store
        for table in store.query(_FILLED):
            store.command(f"TRUNCATE TABLE {table['name']}")
        reusable = store.query(_SHAPE) == shape
    finally:
        store.close()
        if reusable:
            idle.append(name)
        else:
            _drop(url, name)


def drop_idle(url: str) -> None:
    """Drop what `empty_database` kept at a server."""
    for name in _idle.pop(url, []):
        _drop(url, name)


def _made(url: str) -> str:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _command(url, f"CREATE DATABASE {name}")
    return name


def _drop(url: str, name: str) -> None:
    _command(url, f"DROP DATABASE {name}")


def _command(url: str, sql: str) -> None:
    owner = ClickHouseStore(url)
    owner.command(sql)
    owner.close()
