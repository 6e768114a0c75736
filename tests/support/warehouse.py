"""A database of its own for one test, with the shipped tables and views."""

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


@contextmanager
def fresh_database(url: str, *, migrated: bool = True) -> Iterator[ClickHouseStore]:
    """A store in a new database at a server, dropped at the end."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    owner = ClickHouseStore(url)
    owner.command(f"CREATE DATABASE {name}")
    store = ClickHouseStore(url, database=name)
    try:
        if migrated:
            migrate.apply(store)
        yield store
    finally:
        store.close()
        owner.command(f"DROP DATABASE {name}")
        owner.close()
