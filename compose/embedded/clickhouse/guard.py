"""Judges one statement by its tokens: what kind it is, where its data starts, and whether it may run at all.

Purpose: the engine is ``clickhouse-local``, which trusts its user with the host. Grants and constraints (``engine``)
take most of that away; this file refuses what no grant covers (measured with 26.9): the scalar function ``file``
(also by reference: ``APPLY(file)``, ``arrayMap(file, …)``), ``INTO OUTFILE``, ``FROM INFILE``, ``Python()``, table
engines that run programs, and a second statement. Invariants: pure; data of an INSERT is never looked at; a refusal
carries ClickHouse's code. Being strict is free here: a column called ``file`` is the only honest use that is lost.

Before it in the flow: ``request``. After it: ``execution``, which runs the `Statement`.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from compose.embedded.clickhouse import errors
from compose.embedded.clickhouse.errors import QueryError
from compose.embedded.clickhouse.lexer import Token, tokens

Kind = Literal["empty", "select", "insert", "insert_select", "set", "use", "kill", "other"]

MAIN_DATABASE = "main"
# A client that names no database, or `default`, means the one that a server calls `default`. The engine's own
# `default` is an overlay with a view of the host's files, so it is never used.
DATABASE_ALIASES = frozenset({"", "default"})

_READING = frozenset({"SELECT", "WITH", "FROM", "SHOW", "DESCRIBE", "DESC", "EXISTS", "EXPLAIN", "CHECK"})
_DEFINING = frozenset({"CREATE", "ATTACH", "REPLACE"})
# Words that read or run something of the host wherever they stand, with what they would do.
_NEVER = {
    "file": "reads files of the host",
    "python": "reads objects of the server process",
    "executable": "runs programs of the host",
    "executablepool": "runs programs of the host",
    "queryrunner": "runs statements that nobody has checked",
}
_CALLS_NEVER = {"eval": "runs statements that nobody has checked", "disk": "chooses folders of the host"}
_PAIRS_NEVER = {
    ("INTO", "OUTFILE"): "writes files of the host",
    ("FROM", "INFILE"): "reads files of the host",
}
_ENGINES = frozenset(
    [
        "Atomic",
        "Buffer",
        "Dictionary",
        "GenerateRandom",
        "Join",
        "Log",
        "MaterializedView",
        "Memory",
        "Merge",
        "Null",
        "Set",
        "StripeLog",
        "TimeSeries",
        "TinyLog",
        "View",
        "WindowView",
        "MergeTree",
    ]
)
# What may follow a column that is called `engine`, as opposed to `ENGINE name`.
_AFTER_A_COLUMN = frozenset(
    [
        "AND",
        "AS",
        "ASC",
        "BETWEEN",
        "DESC",
        "DIV",
        "EXCEPT",
        "FINAL",
        "FORMAT",
        "FROM",
        "GROUP",
        "HAVING",
        "ILIKE",
        "IN",
        "INTERSECT",
        "IS",
        "LIKE",
        "LIMIT",
        "MOD",
        "NOT",
        "OR",
        "ORDER",
        "PREWHERE",
        "SETTINGS",
        "UNION",
        "WHERE",
    ]
)
# Rows without any of these hold no forbidden word, so they need not be cut into tokens.
_SUSPECT_VALUES = re.compile(rb"(?i:file|python|executable|queryrunner|eval|disk)|[`\"]|\xe2\x80\x9c")
_KILL_BY = b"if(Settings['log_comment'] != '', Settings['log_comment'], query_id)"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, ready for the engine.

    ``sql`` is what the engine gets: for an INSERT with data it ends before ``VALUES`` or ``FORMAT``, and ``data``
    holds the bytes that followed, in ``input_format``. ``output_format`` is None unless the text names one.
    ``set_names`` are the settings that a ``SET`` changes, ``database`` is where a ``USE`` goes.
    """

    kind: Kind
    sql: bytes
    reads_only: bool = False
    input_format: str = ""
    data: bytes = b""
    output_format: str | None = None
    set_names: tuple[str, ...] = ()
    database: str = ""


def judge(sql: bytes) -> Statement:
    """Return the statement in ``sql``, or raise `QueryError` (62 for two statements, 497 for a reach to the host)."""
    stream = tokens(sql)
    first = next(stream, None)
    if first is None:
        return Statement("empty", sql)
    if first.upper == "INSERT":
        return _insert(sql, stream)
    return _other(sql, [first, *stream])


def database_of(name: str) -> str:
    """Return the engine's database for the one a client names."""
    return MAIN_DATABASE if name in DATABASE_ALIASES else name


def _other(sql: bytes, all_tokens: list[Token]) -> Statement:
    """Judge anything that is not an INSERT at its start."""
    body = _without_end(all_tokens)
    _refuse_reach(body)
    if not body:
        return Statement("empty", sql)
    words = [token.upper for token in body]
    opening = next((word for word, token in zip(words, body, strict=True) if token.text != b"("), "")
    end = body[-1].end
    if words[0] == "SET":
        return Statement("set", sql[:end], set_names=_set_names(body))
    if words[0] == "USE":
        name = database_of(body[-1].name)
        return Statement("use", b"USE `" + name.replace("`", "\\`").encode() + b"`", database=name)
    if words[0] == "KILL":
        return Statement("kill", _kill_by_client_id(sql, body), output_format=_output_format(body))
    kind: Kind = "other"
    if opening in {"SELECT", "WITH", "FROM"}:
        kind = "insert_select" if "INSERT" in words else "select"
    reads_only = opening in _READING and kind != "insert_select" and "PARALLEL" not in words
    return Statement(kind, sql[:end], reads_only=reads_only, output_format=_output_format(body))


def _insert(sql: bytes, rest: Iterator[Token]) -> Statement:
    """Split an INSERT into the head for the engine and the data after it; the data is not tokenised."""
    seen: list[Token] = []
    depth = 0
    for token in rest:
        seen.append(token)
        depth += {b"(": 1, b")": -1}.get(token.text, 0)
        # Position 0 is INTO and the next one the table, which may be called anything.
        names_table = len(seen) < 3 or seen[-2].text == b"."  # noqa: PLR2004
        if token.upper in {"SELECT", "WITH"} and depth <= 1 and not names_table:
            seen.extend(rest)
            body = _without_end(seen)
            _refuse_reach(body)
            return Statement("insert_select", sql[: body[-1].end], output_format=_output_format(body))
        if depth == 0 and not names_table and token.upper == "VALUES":
            _refuse_reach(seen)
            return _values(sql[: token.start], sql[token.end :])
        if depth == 0 and not names_table and token.upper == "FORMAT":
            name = next(rest, None)
            if name is None or name.kind != "word":
                raise QueryError.refusal(errors.SYNTAX_ERROR, "FORMAT needs the name of a format")
            _refuse_reach(seen)
            if name.name == "Values":
                return _values(sql[: token.start], _inline(sql, name.end))
            return Statement(
                "insert", sql[: token.start], input_format=name.name, data=_inline(sql, name.end)
            )
    body = _without_end(seen)
    _refuse_reach(body)
    return Statement("insert", sql[: body[-1].end] if body else sql, input_format="Values")


def check_values(data: bytes) -> None:
    """Raise where rows in ``Values`` form reach for the host: the engine evaluates them as expressions."""
    if _SUSPECT_VALUES.search(data):
        _refuse_reach(list(tokens(data)))


def _values(head: bytes, data: bytes) -> Statement:
    check_values(data)
    return Statement("insert", head, input_format="Values", data=data)


def _inline(sql: bytes, start: int) -> bytes:
    """Return the data after ``FORMAT name``: spaces and one line end belong to the statement, as in ClickHouse."""
    end = start
    while end < len(sql) and sql[end] in b" \t\f":
        end += 1
    if sql[end : end + 1] == b"\r":
        end += 1
    if sql[end : end + 1] == b"\n":
        end += 1
    return sql[end:]


def _without_end(body: list[Token]) -> list[Token]:
    """Drop trailing semicolons; raise on anything after one."""
    ends = [place for place, token in enumerate(body) if token.text == b";" and token.kind == "sign"]
    if not ends:
        return body
    if any(token.text != b";" for token in body[ends[0] :]):
        raise QueryError.refusal(errors.SYNTAX_ERROR, "Multi-statements are not allowed")
    return body[: ends[0]]


def _refuse_reach(body: Sequence[Token]) -> None:
    """Raise where a statement reaches for files, programs or objects of the host."""
    defines = any(token.upper in _DEFINING for token in body)
    depth = 0
    for place, token in enumerate(body):
        depth += {b"(": 1, b")": -1}.get(token.text, 0)
        if token.kind not in {"word", "quoted"}:
            continue
        if token.kind == "quoted" and b"\\" in token.text:
            raise QueryError.refusal(
                errors.SUPPORT_IS_DISABLED, "Escapes in quoted identifiers are refused here"
            )
        after = body[place + 1] if place + 1 < len(body) else None
        name = token.name.casefold()
        reason = _NEVER.get(name) or _PAIRS_NEVER.get((token.upper, after.upper if after else ""))
        if reason is None and after is not None and after.text == b"(":
            reason = _CALLS_NEVER.get(name)
        if reason is not None:
            raise QueryError.refusal(
                errors.ACCESS_DENIED, f"`{token.name}` {reason}: refused by the embedded server"
            )
        if defines and depth == 0 and token.upper == "ENGINE":
            _refuse_engine(body[place + 1 : place + 3])


def _refuse_engine(following: Sequence[Token]) -> None:
    """Raise unless what follows the word ENGINE is an engine that keeps its data to itself."""
    if not following:
        return
    assigned = following[0].text == b"="
    token = following[1] if assigned and len(following) > 1 else following[0]
    if token.kind not in {"word", "quoted"} or (not assigned and token.upper in _AFTER_A_COLUMN):
        return
    replicated = token.name.startswith(("Replicated", "Shared"))
    if token.name not in _ENGINES and (replicated or not token.name.endswith("MergeTree")):
        raise QueryError.refusal(
            errors.ACCESS_DENIED, f"Engine `{token.name}` is not one of those that the embedded server offers"
        )


def _set_names(body: Sequence[Token]) -> tuple[str, ...]:
    """Return the names that a SET assigns: each word with an equals sign after it, outside of brackets."""
    names = []
    depth = 0
    for token, after in itertools.pairwise(body[1:]):
        depth += {b"(": 1, b"[": 1, b"{": 1, b")": -1, b"]": -1, b"}": -1}.get(token.text, 0)
        if depth == 0 and after.text == b"=" and token.name:
            names.append(token.name)
    return tuple(names)


def _output_format(body: Sequence[Token]) -> str | None:
    """Return the format that the statement names at its end (SETTINGS may follow), or None."""
    for place in range(len(body) - 2, 0, -1):
        ends = place + 2 == len(body) or body[place + 2].upper == "SETTINGS"
        if body[place].upper == "FORMAT" and body[place + 1].kind == "word" and ends:
            return body[place + 1].name
    return None


def _kill_by_client_id(sql: bytes, body: Sequence[Token]) -> bytes:
    """Let ``KILL QUERY WHERE query_id = …`` find the id that the client gave: it travels in ``log_comment``."""
    parts: list[bytes] = []
    at = 0
    for token in body:
        if token.name == "query_id":
            parts += [sql[at : token.start], _KILL_BY]
            at = token.end
    return b"".join([*parts, sql[at : body[-1].end]])
