"""The real row store: ClickHouse over HTTP. The only file here that imports clickhouse_connect.

One store serves one thread at a time; a process makes one per loop. The embedded engine and a server differ by their
URL only. What ClickHouse says of an insert decides the policy: a value that does not fit is ``Refused``; everything
else (away, too many parts, out of memory, a missing table) is ``Unavailable``, which loses nothing and is told loudly by
its caller.

Before: ``loop``. After: ClickHouse. ``RowStore`` and ``SqlStore`` are declared in ``store``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver import exceptions as vendor

from schemas.ids import start_ms
from sinks.store import Refused, Row, RowStore, SqlError, SqlStore, Table, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.settings import ClickHouse
    from sinks.store import Erasure

__all__ = ["ClickHouseStore", "RowStore", "SqlStore", "connect"]

CONTENT_CODES = frozenset(
    {
        6,  # CANNOT_PARSE_TEXT
        26,  # CANNOT_PARSE_QUOTED_STRING
        27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
        38,  # CANNOT_PARSE_DATE
        41,  # CANNOT_PARSE_DATETIME
        53,  # TYPE_MISMATCH
        69,  # ARGUMENT_OUT_OF_BOUND
        70,  # CANNOT_CONVERT_TYPE
        72,  # CANNOT_PARSE_NUMBER
        117,  # INCORRECT_DATA
        131,  # TOO_LARGE_STRING_SIZE
        321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
        376,  # CANNOT_PARSE_UUID
        407,  # DECIMAL_OVERFLOW
        469,  # VIOLATED_CONSTRAINT
    }
)
"""Errors of the rows themselves: the same block is refused tomorrow too."""
BUSY_CODES = frozenset(
    {
        159,  # TIMEOUT_EXCEEDED
        202,  # TOO_MANY_SIMULTANEOUS_QUERIES
        209,  # SOCKET_TIMEOUT
        210,  # NETWORK_ERROR
        241,  # MEMORY_LIMIT_EXCEEDED
        242,  # TABLE_IS_READ_ONLY
        252,  # TOO_MANY_PARTS
        999,  # KEEPER_EXCEPTION
    }
)
"""Errors of the moment: the same statement may be run later."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""Compression pays for a network, not for this machine's own memory."""
CONNECT_S = 5
ANSWER_S = 60
"""An insert that takes longer is repeated under its token."""
SESSION_SETTINGS = {
    "max_partitions_per_insert_block": 0,  # a backlog of months is one block like any other
    "deduplicate_blocks_in_dependent_materialized_views": 1,
}
READS_ONLY = {"readonly": 2}
"""For every question: a statement that changes something is refused by the server, whoever wrote it."""
_ERASE_EVENTS = """
ALTER TABLE events DELETE IN PARTITION {day} WHERE kind != 'forgotten' AND tenant IN {{tenants:Array(String)}}
AND generation_id IN {{ids:Array(UUID)}}
AND has(arrayZip({{tenants:Array(String)}}, {{ids:Array(UUID)}}), (tenant, generation_id)) SETTINGS mutations_sync = 1
"""
_FORGOTTEN = """
SELECT DISTINCT toString(generation_id) AS id FROM events
PREWHERE kind = 'forgotten' WHERE generation_id IN {ids:Array(UUID)}
"""
_ERASE_LETTERS = """
ALTER TABLE dead_letters DELETE WHERE has({keys:Array(String)}, key) SETTINGS mutations_sync = 1
"""
_AROUND = re.compile(r"( \(version [^()]*\))?( \(for url [^()]*\))?$")
FORMATS = {"UUID": "string", "DateTime64": "int", "Tuple": "tuple"}
"""How ``final`` shows values: as rows carry them."""


def connect(settings: ClickHouse, answer_s: int = ANSWER_S) -> ClickHouseStore:
    """Open a store; raises Unavailable while the warehouse is away. ``answer_s``: how long a statement may be silent."""
    return ClickHouseStore(
        settings.url, settings.user, settings.password.get_secret_value(), settings.database, answer_s
    )


class ClickHouseStore:
    """Rows in ClickHouse.

    Args:
        url: http(s)://host:port.
        user: who we are there.
        password: its password.
        database: where the tables are.
        answer_s: how long a statement may be silent.
    """

    def __init__(
        self,
        url: str,
        user: str = "default",
        password: str = "",
        database: str = "default",
        answer_s: int = ANSWER_S,
    ) -> None:
        parts = urlsplit(url)
        with _asking():
            self._client = clickhouse_connect.get_client(
                interface=parts.scheme,
                host=parts.hostname,
                port=parts.port,
                username=user,
                password=password,
                database=database,
                settings=SESSION_SETTINGS,
                autogenerate_session_id=False,
                tz_mode="aware",
                compress=parts.hostname not in LOOPBACK,
                connect_timeout=CONNECT_S,
                send_receive_timeout=answer_s,
            )
        self._types: dict[str, list[Any]] = {}

    def insert(self, table: Table, rows: Sequence[Row], token: str) -> None:
        """Store all rows or none, in columns; raises Refused or Unavailable."""
        if not rows:
            return
        with _inserting():
            types = self._types.get(table.name) or self._learn_types(table)
            context = self._client.create_insert_context(
                table.name,
                table.columns,
                column_types=types,
                column_oriented=True,
                settings={"insert_deduplication_token": token},
                data=list(zip(*rows, strict=True)),
            )
            try:
                self._client.data_insert(context)
            finally:  # the context refers to itself, and would hold the batch until the collector comes
                context.data = [()] * len(table.columns)

    def erase(self, erasure: Erasure) -> None:
        """Take away what is forgotten: by mutations that rewrite the parts, so that the text leaves the disk too."""
        gone = [generation_id for _, generation_id in erasure.generations]
        by_day = defaultdict(list)
        for tenant, generation_id in erasure.generations:
            started = datetime.fromtimestamp(start_ms(generation_id) / 1000, UTC)
            by_day[f"{started:%Y%m%d}"].append((tenant, generation_id))
        for day, of_day in by_day.items():  # one mutation each, however many there are
            tenants, ids = (list(names) for names in zip(*of_day, strict=True))
            self.command(_ERASE_EVENTS.format(day=day), {"tenants": tenants, "ids": ids})
        if erasure.suspects:
            found = self.query(_FORGOTTEN, {"ids": list(erasure.suspects)})
            gone += [str(row["id"]) for row in found]
        if gone:
            self.command(_ERASE_LETTERS, {"keys": gone})

    def final(self, table: Table) -> list[Row]:
        """One row per key, ordered by key."""
        columns = ", ".join(f"`{name}`" for name in table.columns)
        with _asking():
            answer = self._client.query(
                f"SELECT {columns} FROM {table.name} FINAL",  # noqa: S608 - names of our own tables
                query_formats=FORMATS,
                column_formats=dict.fromkeys(table.binary, "bytes"),
            )
        key_at = [table.columns.index(name) for name in table.key]
        return sorted((tuple(row) for row in answer.result_rows), key=lambda row: [row[i] for i in key_at])

    def merge(self, table: Table) -> None:
        """OPTIMIZE … FINAL."""
        self.command(f"OPTIMIZE TABLE {table.name} FINAL")

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """All rows of an answer; ``{name:Type}`` in the text is bound from ``params``."""
        return list(self.stream(sql, params))

    def stream(self, sql: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """The rows of an answer one by one, in constant memory. What would change something is refused."""
        with _asking(), self._client.query_rows_stream(sql, dict(params or {}), READS_ONLY) as stream:
            names = stream.source.column_names
            for row in stream:
                yield dict(zip(names, row, strict=True))

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        """Run one statement that gives no rows."""
        with _asking():
            self._client.command(sql, dict(params or {}))

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    def _learn_types(self, table: Table) -> list[Any]:
        context = self._client.create_insert_context(table.name, table.columns, column_oriented=True)
        types = self._types[table.name] = list(context.column_types)
        return types


@contextmanager
def _inserting() -> Iterator[None]:
    """Turn the vendor's errors into ours. Doubt is Unavailable: waiting loses nothing, refusing would."""
    try:
        yield
    except vendor.DataError as error:  # raised on this side, while a column is written
        raise Refused(_short(error)) from error
    except (vendor.Error, OSError) as error:
        if getattr(error, "code", None) in CONTENT_CODES:
            raise Refused(_short(error)) from error
        raise Unavailable(_short(error)) from error


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (vendor.Error, OSError) as error:
        code = getattr(error, "code", None)
        if code is None or code in BUSY_CODES:
            raise Unavailable(_short(error)) from error
        raise SqlError(_short(error)) from error


def _short(error: Exception) -> str:
    """What the server says, without what its client and its HTTP interface put around it."""
    said = str(error).split("\n", 1)[0].rpartition("DB::Exception: ")[2]
    return _AROUND.sub("", said)[:500]
