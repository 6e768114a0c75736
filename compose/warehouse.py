"""ClickHouse as compose uses it: migrations, questions, exports, by way of ``sinks``, which owns the vendor.

Invariant: nobody answering, or a refused statement, is a ``WarehouseError`` with what to do. Blocking calls: a shell
with an event loop gives them a thread. Before this file: ``run``, ``commands``. After it: ``sinks``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from schemas.errors import TokentrailError
from schemas.settings import ClickHouse
from sinks import migrate as migrations
from sinks.clickhouse import ANSWER_S, ClickHouseStore, connect
from sinks.store import Refused, Unavailable

Row = dict[str, Any]
_READONLY = 164  # ClickHouse's own number for a statement that may only be asked


class WarehouseError(TokentrailError):
    """ClickHouse cannot be asked, or refuses the statement."""


@contextmanager
def warehouse(settings: ClickHouse, answer_s: int = ANSWER_S) -> Iterator[ClickHouseStore]:
    """An open store, with its errors in words for people. ``answer_s``: how long a statement may be silent."""
    try:
        store = connect(settings, answer_s)
        try:
            yield store
        finally:
            store.close()
    except Refused as error:
        raise WarehouseError(f"ClickHouse refuses this: {error}") from error
    except Unavailable as error:
        if getattr(error.__cause__, "code", None):  # it answered: a statement that it does not take
            raise WarehouseError(f"ClickHouse refuses this: {error}") from error
        raise WarehouseError(
            f"No ClickHouse answers at {settings.url} ({error}). Start one with `tokentrail up`, or point "
            "TOKENTRAIL_CLICKHOUSE__URL at a running one."
        ) from error


def migrate(settings: ClickHouse) -> list[str]:
    """Apply the migrations that are missing; their names."""
    with warehouse(settings) as store:
        return migrations.apply(store)


def pending_migrations(settings: ClickHouse) -> list[str]:
    """The shipped migrations that were not applied yet."""
    with warehouse(settings) as store:
        if not store.query(
            "SELECT 1 AS one FROM system.tables WHERE database = currentDatabase() AND name = 'schema_migrations'"
        ):
            return [migration.name for migration in migrations.shipped()]
        applied = {row["number"] for row in store.query("SELECT number FROM schema_migrations FINAL")}
    return [migration.name for migration in migrations.shipped() if migration.number not in applied]


def version_of(settings: ClickHouse) -> str:
    """The server's own version."""
    return str(query(settings, "SELECT version() AS version")[0]["version"])


def query(settings: ClickHouse, sql: str, params: Mapping[str, Any] | None = None) -> list[Row]:
    """All rows of one question; ``{name:Type}`` in it is bound from ``params``. What would change something is refused."""
    with warehouse(settings) as store:
        try:
            return store.query(sql, params)
        except Refused as error:
            if getattr(error.__cause__, "code", None) != _READONLY:
                raise
            raise WarehouseError(
                "This would change something, and a question does not. `tokentrail sql --write` runs such a statement."
            ) from error


def change(settings: ClickHouse, sql: str) -> None:
    """Run one statement that changes something."""
    with warehouse(settings) as store:
        store.command(sql)
