"""Runs one query on one session, in steps: each `Execution.advance` blocks for one batch of the answer.

Purpose: the order of things on a connection (database, settings, external tables, statement) and the cutting of an
answer into batches. Invariants: the first step raises everything that can still become an HTTP status; a step never
holds more than its limit unless the format needs the whole result; the session is given back before the last batch is
returned, so that a client which reads it may come again at once.

Before it in the flow: ``server`` (which calls it in a thread). After it: ``engine``; bytes go to ``wire``.
"""

import time
from collections.abc import Callable, Iterator

from compose.embedded.clickhouse import errors, formats
from compose.embedded.clickhouse.engine import Counts
from compose.embedded.clickhouse.errors import QueryError
from compose.embedded.clickhouse.guard import Statement, database_of, judge
from compose.embedded.clickhouse.request import ExternalTable, Query
from compose.embedded.clickhouse.sessions import Session

# A thread hop costs some 100 µs, a block may hold one row: so blocks travel in batches of this size or age.
BATCH_BYTES = 1024 * 1024
BATCH_S = 0.1
# `wait_end_of_query` asks for errors in the status line: we wait for this much, larger answers stream.
WAIT_BYTES_MAX = 16 * 1024 * 1024


class Execution:
    """One query on its way. ``output_format`` is None where there is no result set (DDL, INSERT)."""

    def __init__(self, query: Query, session: Session, give_back: Callable[[Session], None]) -> None:
        self.counts = Counts()
        self.output_format: str | None = None
        self._done = False
        self._query = query
        self._session = session
        self._give_back = give_back
        self._blocks: Iterator[bytes] | None = None
        self._given_back = False

    def advance(self) -> bytes:
        """Return the next batch of the answer; `has_ended` tells whether it was the last. Raise `QueryError`."""
        try:
            if self._blocks is None:
                self._prepare()
                self._blocks = self._start()
            batch = self._collect(self._blocks)
        except BaseException:
            self.abandon()
            raise
        if self._done:
            self._finish()
        return batch

    def has_ended(self) -> bool:
        """Return whether the last batch was given out."""
        return self._done

    def abandon(self) -> None:
        """Stop where it stands: the client is gone, or something failed. Does nothing after the end."""
        if self._blocks is not None and hasattr(self._blocks, "close"):
            self._blocks.close()
        if not self._given_back:
            self._finish()

    def _finish(self) -> None:
        self._done = self._given_back = True
        if self._session.id:
            for table in self._query.tables:
                self._session.link.run(f"DROP TEMPORARY TABLE IF EXISTS {table.name}".encode(), "TSV")
        self._give_back(self._session)

    def _prepare(self) -> None:
        """Make the connection the query's own: database, settings, external tables; refuse what may not run."""
        query, link = self._query, self._session.link
        statement = query.statement
        if statement.kind == "empty":
            raise QueryError.refusal(errors.SYNTAX_ERROR, "Syntax error: the query is empty")
        # The tokens have had their say; the engine's own parser has the last word.
        verdict = link.classify(statement.sql)
        if statement.kind != "insert" and verdict.statements > 1:
            raise QueryError.refusal(errors.SYNTAX_ERROR, "Multi-statements are not allowed")
        reads_only = statement.reads_only and (verdict.reads_only or verdict.statements == 0)
        if query.must_not_write and not (reads_only or statement.kind in {"set", "use"}):
            if statement.kind == "other" and verdict.statements == 0:  # a misspelt question, most likely
                text = (
                    statement.sql.decode(errors="replace")
                    .replace("\\", "\\\\")
                    .replace("\n", "\\n")
                    .replace("\t", "\\t")
                )
                link.run(b"SELECT formatQuery({text:String})", "Null", {"text": text})  # parses, runs nothing
            raise QueryError.refusal(
                errors.READONLY,
                "Cannot execute query in readonly mode: a GET only reads, and so does `readonly`",
            )
        link.use(database_of(query.database) if query.database else self._session.database)
        # The engine gives every query an id of its own; the client's travels beside it, for KILL QUERY.
        link.settle({"log_comment": query.query_id, **query.settings})
        for table in query.tables:
            self._create(table)

    def _create(self, table: ExternalTable) -> None:
        link = self._session.link
        created = judge(f"CREATE TEMPORARY TABLE {table.name} ({table.structure})".encode())
        link.run(created.sql, "TSV")
        link.insert(f"INSERT INTO {table.name}".encode(), table.input_format, table.data)

    def _start(self) -> Iterator[bytes]:
        """Start the statement; return its answer, block by block."""
        statement, link, parameters = self._query.statement, self._session.link, self._query.parameters
        if statement.kind == "insert":
            link.bind(parameters)
            self.counts = link.insert(statement.sql, statement.input_format, statement.data)
            return iter(())
        output_format = statement.output_format or self._query.default_format
        if statement.kind == "select":
            self.output_format = output_format
            if formats.is_streamable(output_format):
                return self._stream(statement, output_format)
        answer, self.counts = link.run(statement.sql, output_format, parameters)
        if answer:
            self.output_format = output_format
        self._remember(statement)
        return iter((answer,))

    def _remember(self, statement: Statement) -> None:
        """Keep for the session what the statement changed in it."""
        if not self._session.id:
            return
        if statement.kind == "use":
            self._session.database = self._session.link.database = statement.database
        if statement.kind == "set" and statement.set_names:
            self._session.link.keep(statement.set_names)

    def _stream(self, statement: Statement, output_format: str) -> Iterator[bytes]:
        """Yield the blocks of a SELECT; only the first keeps a header that each of them repeats."""
        link, parameters = self._session.link, self._query.parameters
        first = True
        for block, counts in link.stream(statement.sql, output_format, parameters):
            self.counts = self.counts.plus(counts)
            yield block if first else block[formats.header_bytes(output_format, block) :]
            first = False
        if first and formats.has_header(output_format):
            # No row, no block: the header comes from the other way to run it.
            yield link.run(statement.sql, output_format, parameters)[0]

    def _collect(self, blocks: Iterator[bytes]) -> bytes:
        """Gather blocks until the batch is large or old enough, or the answer has ended."""
        waits = self._query.waits_for_end
        until_s = time.monotonic() + BATCH_S
        batch: list[bytes] = []
        size = 0
        for block in blocks:
            batch.append(block)
            size += len(block)
            if size >= (WAIT_BYTES_MAX if waits else BATCH_BYTES) or (
                not waits and time.monotonic() >= until_s
            ):
                return b"".join(batch)
        self._done = True
        return b"".join(batch)
