"""Owns the ClickHouse engine of this process: the only file that imports chdb.

Purpose: open one data directory, hand out connections to it, and translate chdb's errors. Invariants: one process =
one directory (the engine refuses more); a `Link` is used by one request at a time; what a request sets on a link that
outlives it is undone by the next one (`Link.settle`); the engine's user cannot reach the host's files, programs or
network: source grants revoked, dangerous settings constant, the rest refused by ``guard``.

Before it in the flow: ``execution`` (which decides what to run). After it: the engine's own C++.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

from chdb import _chdb
from chdb.state.sqlitelike import Connection

from compose.embedded.clickhouse import errors
from compose.embedded.clickhouse.errors import QueryError
from compose.embedded.clickhouse.guard import MAIN_DATABASE

# Settings that would make the engine read or write a file, call out, or read SQL with another grammar.
_CONSTANT_SETTINGS = {
    "dialect": "clickhouse",
    "polyglot_dialect": "",
    "enable_json_ast_dialect": "0",
    "enable_trino_dialect": "0",
    "allow_experimental_kusto_dialect": "0",
    "allow_experimental_polyglot_dialect": "0",
    "allow_experimental_prql_dialect": "0",
    "allow_experimental_eval_table_function": "0",
    "allow_introspection_functions": "0",
    "additional_result_filter": "",
    "additional_table_filters": "{}",
    "parallel_replicas_custom_key": "",
    "allow_python_table_function": "0",
    "format_avro_schema_registry_url": "",
    "format_schema": "",
    "format_template_row": "",
    "format_template_resultset": "",
    "input_format_record_errors_file_path": "",
    "output_format_schema": "",
    "rename_files_after_processing": "",
}
# `bogus` is a syntax error on a server; the local engine would read it as `SELECT bogus`.
_PROFILE = {"implicit_select": "0", "log_queries": "0"}
_GRANTS = (
    "GRANT ALL ON *.*",
    "REVOKE SOURCES ON *.*",
    "REVOKE TABLE ENGINE ON *",
    "GRANT TABLE ENGINE ON Memory",
    "GRANT TABLE ENGINE ON MergeTree",
    "REVOKE BACKUP ON *.*",
    "REVOKE CREATE DICTIONARY ON *.*",  # a dictionary's source may be a shell command
    "REVOKE CREATE FUNCTION ON *.*",
    "REVOKE NAMED COLLECTION ADMIN ON *",
    "REVOKE SYSTEM SHUTDOWN ON *.*",
)
_ERROR = re.compile(r"Code: (\d+)\.")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Memory in bytes: of the whole engine, of one query, and of the cache of index marks."""

    server_memory_bytes: int
    query_memory_bytes: int
    mark_cache_bytes: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Counts:
    """What a statement read and wrote, as ``X-ClickHouse-Summary`` reports it."""

    read_rows: int = 0
    read_bytes: int = 0
    written_rows: int = 0
    written_bytes: int = 0
    result_rows: int = 0

    def plus(self, more: "Counts") -> "Counts":
        """Return the sum: each block of a stream counts only what it added."""
        return Counts(
            self.read_rows + more.read_rows,
            self.read_bytes + more.read_bytes,
            self.written_rows + more.written_rows,
            self.written_bytes + more.written_bytes,
            self.result_rows + more.result_rows,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many statements the engine sees (0: it cannot parse), and whether they only read."""

    statements: int
    reads_only: bool


class Engine:
    """The open data directory. ``close`` flushes it; afterwards no link works."""

    def __init__(self, folder: Path, limits: EngineLimits) -> None:
        """Open ``folder`` (created where missing) and its database; raise `QueryError` where the engine cannot."""
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "engine"
        users, config = folder / "users.xml", folder / "config.xml"
        users.write_text(_users_xml(limits))
        config.write_text(_config_xml(users, limits))
        self._address = f"{data}?config-file={config}"
        # The signals of this process belong to the HTTP server, which stops in order.
        _chdb.set_signal_handlers_enabled(0)  # type: ignore[attr-defined]
        # Held open for as long as the engine runs: with the last connection the engine would close.
        self._own = {"max_memory_usage": str(limits.query_memory_bytes), **_PROFILE}
        self._first = Link(self._address, self._own)
        self._first.run(f"CREATE DATABASE IF NOT EXISTS {MAIN_DATABASE} ENGINE = Atomic".encode(), "TSV")
        self._address += f"&database={MAIN_DATABASE}"
        self.version = self._first.run(b"SELECT version()", "TSV")[0].decode().strip()

    def link(self) -> "Link":
        """Return a new connection: own settings, own temporary tables, current database `MAIN_DATABASE` (≈ 0.3 ms)."""
        return Link(self._address, self._own)

    def close(self) -> None:
        """Close the directory."""
        self._first.close()


class Link:
    """One connection to the engine."""

    def __init__(self, address: str, own: Mapping[str, str]) -> None:
        with _translated():
            self._connection = Connection(address)
        self.database = MAIN_DATABASE
        self._own = dict(own)
        self._applied: dict[str, str] = {}

    def use(self, database: str) -> None:
        """Make ``database`` the current one."""
        if database != self.database:
            quoted = database.replace("\\", "\\\\").replace("`", "\\`")
            self.run(f"USE `{quoted}`".encode(), "TSV")
            self.database = database

    def settle(self, settings: Mapping[str, str]) -> None:
        """Make ``settings`` the request's settings: set what differs, undo what an earlier request had set."""
        parts = [self._undone(name) for name in self._applied if name not in settings]
        parts += [f"{name} = {_quoted(v)}" for name, v in settings.items() if self._applied.get(name) != v]
        if parts:
            self.run(f"SET {', '.join(parts)}".encode(), "TSV")
            self._applied = dict(settings)

    def keep(self, names: tuple[str, ...]) -> None:
        """Note the values that a ``SET`` statement of the session gave to ``names``: later requests return to them."""
        wanted = ", ".join(_quoted(name) for name in names)
        found = self.run(
            f"SELECT name, value FROM system.settings WHERE name IN ({wanted})".encode(),  # noqa: S608 - quoted above
            "JSONCompact",
        )[0]
        self._own.update(json.loads(found)["data"])
        for name in names:
            self._applied.pop(name, None)

    def _undone(self, name: str) -> str:
        return f"{name} = {_quoted(self._own[name])}" if name in self._own else f"{name} = DEFAULT"

    def bind(self, parameters: Mapping[str, str]) -> None:
        """Set query parameters for an INSERT, which takes none by argument."""
        if parameters:
            parts = [f"param_{name} = {_quoted(value)}" for name, value in parameters.items()]
            self.run(f"SET {', '.join(parts)}".encode(), "TSV")

    def classify(self, sql: bytes) -> Verdict:
        """Return what the engine's own parser makes of ``sql``, without running it (≈ 0.1 ms)."""
        with _translated():
            found = self._connection._conn.classify_query(sql)  # noqa: SLF001 - chdb has no public way to it
            return Verdict(int(found["statement_count"]), found["query_class"].name == "READ_ONLY")

    def run(
        self, sql: bytes, output_format: str, parameters: Mapping[str, str] | None = None
    ) -> tuple[bytes, Counts]:
        """Run one statement and return its whole answer."""
        with _translated():
            result = self._connection.query(sql, output_format, params=dict(parameters or {}))
            return bytes(result.bytes()), _counts(result)

    def stream(
        self, sql: bytes, output_format: str, parameters: Mapping[str, str]
    ) -> Iterator[tuple[bytes, Counts]]:
        """Run a SELECT and yield its answer block by block; each block is a complete document of the format."""
        with _translated():
            result = self._connection.send_query(sql, output_format, params=dict(parameters))
            try:
                while (block := result.fetch()) is not None:
                    yield bytes(block.bytes()), _counts(block)
            finally:
                result.close()

    def insert(self, head: bytes, input_format: str, data: bytes) -> Counts:
        """Insert ``data``; ``head`` is the statement without format and data. All or nothing per block."""
        with _translated():
            inserter = self._connection.send_insert(head + b"\n", input_format)
            with inserter:
                if data:
                    inserter.append(data)
                done = inserter.finish()
            return Counts(written_rows=done.rows_written, written_bytes=done.bytes_written)

    def close(self) -> None:
        """Close the connection; its temporary tables go with it."""
        self._connection.close()


class _translated:  # noqa: N801 - reads as a word at its place of use
    """Turns chdb's errors into `QueryError` with the engine's code."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # chdb raises RuntimeError, and ChdbError (an Exception of its own) from the same place.
        if error is None or isinstance(error, (QueryError, GeneratorExit, StopIteration)):
            return
        if isinstance(error, Exception):
            raise _query_error(error) from None


def _counts(result: Any) -> Counts:
    return Counts(
        read_rows=result.storage_rows_read(),
        read_bytes=result.storage_bytes_read(),
        written_rows=result.rows_written(),
        written_bytes=result.bytes_written(),
        result_rows=result.rows_read(),
    )


def _query_error(error: Exception) -> QueryError:
    text = str(error)
    match = _ERROR.search(text)
    if match is None:
        return QueryError.refusal(errors.STD_EXCEPTION, text or type(error).__name__)
    return QueryError(int(match.group(1)), text[match.start() :].rstrip())


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _users_xml(limits: EngineLimits) -> str:
    values: dict[str, Any] = {**_PROFILE, **_CONSTANT_SETTINGS, "max_memory_usage": limits.query_memory_bytes}
    profile = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in values.items())
    constant = "".join(f"<{name}><const/></{name}>" for name in _CONSTANT_SETTINGS)
    grants = "".join(f"<query>{grant}</query>" for grant in _GRANTS)
    return (
        f"<clickhouse><profiles><default>{profile}<constraints>{constant}</constraints></default></profiles>"
        "<users><default><password/><networks><ip>::/0</ip></networks><profile>default</profile>"
        f"<quota>default</quota><grants>{grants}</grants></default></users><quotas><default/></quotas></clickhouse>"
    )


def _config_xml(users: Path, limits: EngineLimits) -> str:
    return (
        f"<clickhouse><display_name>embedded</display_name><users_config>{escape(str(users))}</users_config>"
        f"<max_server_memory_usage>{limits.server_memory_bytes}</max_server_memory_usage>"
        f"<mark_cache_size>{limits.mark_cache_bytes}</mark_cache_size>"
        "<background_pool_size>2</background_pool_size></clickhouse>"
    )
