"""Reads one HTTP request as ClickHouse's HTTP interface defines it: what to run, with which settings, for whom.

Purpose: query string, headers and body -> `Query`. Invariants: pure (bytes in, value out); a parameter is either one
of the interface's own words, a query parameter (``param_x``), the shape of an external table, or a setting: nothing
is dropped in silence except what an embedded engine cannot mean (quota keys, protocol version).

Before it in the flow: ``server`` (which read the body). After it: ``guard`` and ``execution``.
"""

import base64
import binascii
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from compose.embedded.clickhouse import errors, wire
from compose.embedded.clickhouse.errors import QueryError
from compose.embedded.clickhouse.guard import Statement, check_values, judge

SESSION_TIMEOUT_S_DEFAULT = 60
SESSION_TIMEOUT_S_MAX = 3600

_OWN_WORDS = frozenset(
    [
        "query",
        "database",
        "session_id",
        "session_timeout",
        "session_check",
        "query_id",
        "quota_key",
        "compress",
        "decompress",
        "user",
        "password",
        "default_format",
        "wait_end_of_query",
        "buffer_size",
        "client_protocol_version",
        "readonly",
    ]
)
# Settings of the HTTP transport: read here, of no meaning to the engine.
_TRANSPORT_SETTINGS = frozenset(
    [
        "enable_http_compression",
        "http_zlib_compression_level",
        "add_http_cors_header",
        "send_progress_in_http_headers",
        "http_headers_progress_interval_ms",
        "cancel_http_readonly_queries_on_client_close",
    ]
)
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TABLE_PART = re.compile(r"(?P<name>\w+)_(?P<part>format|types|structure)")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What arrived: header names in lower case, the query string undecoded, the body as sent."""

    method: str
    query_string: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """A temporary table that lives for one query: ``structure`` as in CREATE TABLE, ``data`` in ``input_format``."""

    name: str
    structure: str
    input_format: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Query:
    """One request, understood. ``database`` is as the client named it (empty: the session's, else the main one)."""

    statement: Statement
    query_id: str
    user: str
    password: str
    database: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[ExternalTable, ...] = ()
    session_id: str = ""
    session_timeout_s: int = SESSION_TIMEOUT_S_DEFAULT
    session_must_exist: bool = False
    default_format: str = "TabSeparated"
    coding: str | None = None
    frames: bool = False
    waits_for_end: bool = False
    must_not_write: bool = False


def read(request: HttpRequest) -> Query:
    """Return the query of a request, or raise `QueryError` (36, 62, 223, 271, 497)."""
    given = dict(parse_qsl(request.query_string, keep_blank_values=True))
    headers = request.headers
    body = wire.decoded(
        request.body, headers.get("content-encoding", ""), frames=given.get("decompress") == "1"
    )
    files: list[tuple[str, bytes]] = []
    if headers.get("content-type", "").startswith("multipart/form-data"):
        fields, files = _multipart(headers["content-type"], body)
        given |= fields
        body = b""
    tables = tuple(_table(name, data, given) for name, data in files)
    if given.get("role"):
        raise QueryError.refusal(errors.SUPPORT_IS_DISABLED, "The embedded server has no roles")
    user, password = _credentials(given, headers)
    return Query(
        statement=_statement(given.get("query", "").encode("utf-8", "surrogateescape"), body),
        query_id=given.get("query_id") or headers.get("x-clickhouse-query-id") or str(uuid.uuid4()),
        user=user,
        password=password,
        database=given.get("database") or headers.get("x-clickhouse-database", ""),
        settings=_settings(given, {table.name for table in tables}),
        parameters={name[6:]: value for name, value in given.items() if name.startswith("param_")},
        tables=tables,
        session_id=given.get("session_id", ""),
        session_timeout_s=_session_timeout_s(given.get("session_timeout", "")),
        session_must_exist=given.get("session_check") == "1",
        default_format=given.get("default_format") or headers.get("x-clickhouse-format") or "TabSeparated",
        coding=wire.accepted_coding(headers.get("accept-encoding", "")) if _wants_coding(given) else None,
        frames=given.get("compress") == "1",
        waits_for_end=given.get("wait_end_of_query") == "1",
        must_not_write=request.method in {"GET", "HEAD"} or given.get("readonly", "0") not in {"", "0"},
    )


def _statement(sql: bytes, body: bytes) -> Statement:
    """Judge the text of the URL and the body: the body is the data of an INSERT, or more of the text."""
    if not sql.strip():
        return judge(body)
    if not body:
        return judge(sql)
    statement = judge(sql)
    if statement.kind != "insert":
        return judge(sql + b"\n" + body)
    if statement.input_format == "Values":
        check_values(body)
    data = statement.data + body if statement.data.strip() else body
    return Statement("insert", statement.sql, input_format=statement.input_format, data=data)


def _wants_coding(given: Mapping[str, str]) -> bool:
    return given.get("enable_http_compression") in {"1", "true"} and given.get("compress") != "1"


def _settings(given: Mapping[str, str], tables: set[str]) -> dict[str, str]:
    """Return the parameters that are settings of the engine."""
    settings = {}
    for name, value in given.items():
        if name in _OWN_WORDS or name in _TRANSPORT_SETTINGS or name == "role" or name.startswith("param_"):
            continue
        part = _TABLE_PART.fullmatch(name)
        if part is not None and part["name"] in tables:
            continue
        if _SETTING_NAME.fullmatch(name) is None:
            raise QueryError.refusal(errors.BAD_ARGUMENTS, f"{name!r} is not the name of a setting")
        settings[name] = value
    return settings


def _session_timeout_s(text: str) -> int:
    if not text:
        return SESSION_TIMEOUT_S_DEFAULT
    if not text.isascii() or not text.isdigit() or int(text) > SESSION_TIMEOUT_S_MAX:
        raise QueryError.refusal(
            errors.BAD_ARGUMENTS, f"session_timeout is at most {SESSION_TIMEOUT_S_MAX} seconds"
        )
    return int(text)


def _credentials(given: Mapping[str, str], headers: Mapping[str, str]) -> tuple[str, str]:
    """Return user and password; an Authorization header of another kind than Basic is refused."""
    if "x-clickhouse-user" in headers or "x-clickhouse-key" in headers:
        return headers.get("x-clickhouse-user", "default"), headers.get("x-clickhouse-key", "")
    scheme, _, coded = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = base64.b64decode(coded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise QueryError.refusal(errors.AUTHENTICATION_FAILED, "Invalid Basic credentials") from error
        return user, password
    if scheme:
        raise QueryError.refusal(errors.AUTHENTICATION_FAILED, "Only Basic authentication is offered")
    return given.get("user", "default"), given.get("password", "")


def _table(name: str, data: bytes, given: Mapping[str, str]) -> ExternalTable:
    """Return an uploaded file as a table; its shape is in ``NAME_structure`` or ``NAME_types``."""
    structure = given.get(f"{name}_structure")
    types = given.get(f"{name}_types")
    if not re.fullmatch(r"\w+", name) or (structure is None and types is None):
        raise QueryError.refusal(
            errors.BAD_ARGUMENTS, f"External table {name!r} needs {name}_structure or {name}_types"
        )
    if structure is None and types is not None:
        structure = ", ".join(f"_{place} {kind}" for place, kind in enumerate(types.split(","), start=1))
    return ExternalTable(name, structure or "", given.get(f"{name}_format", "TabSeparated"), data)


def _multipart(content_type: str, body: bytes) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
    """Split a form into its plain fields and its files (name, bytes)."""
    boundary = re.search(r'boundary="?([^";]+)"?', content_type)
    if boundary is None:
        raise QueryError.refusal(errors.BAD_ARGUMENTS, "multipart/form-data without a boundary")
    fields: dict[str, str] = {}
    files: list[tuple[str, bytes]] = []
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode())[1:-1]:
        head, _, data = part.partition(b"\r\n\r\n")
        name = re.search(rb'[; ]name="([^"]*)"', head)
        if name is None:
            raise QueryError.refusal(errors.BAD_ARGUMENTS, "A form part has no name")
        key = name[1].decode()
        if re.search(rb"[; ]filename=", head):
            files.append((key, data))
        else:
            fields[key] = data.decode("utf-8", "surrogateescape")
    return fields, files
