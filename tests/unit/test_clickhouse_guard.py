"""The guard: what a statement is, where its data starts, and that nothing reaches for the host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.embedded.clickhouse.errors import QueryError
from compose.embedded.clickhouse.guard import check_values, database_of, judge


@pytest.mark.parametrize(
    ("sql", "kind", "reads_only"),
    [
        (b"SELECT 1", "select", True),
        (b"  -- why\n /* because */ select 1", "select", True),
        (b"(SELECT 1) UNION ALL (SELECT 2)", "select", True),
        (b"WITH 1 AS x SELECT x", "select", True),
        (b"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "insert_select", False),
        (b"SHOW TABLES", "other", True),
        (b"EXPLAIN SELECT 1", "other", True),
        (b"CREATE TABLE t (a UInt8) ENGINE = Memory", "other", False),
        (b"SELECT 1 PARALLEL WITH DROP TABLE t", "select", False),
        (b"SET a = 1", "set", False),
        (b"KILL QUERY WHERE 1", "kill", False),
        (b"INSERT INTO t SELECT 1", "insert_select", False),
        (b"INSERT INTO t (a, b) (SELECT 1, 2)", "insert_select", False),
        (b"INSERT INTO t VALUES (1)", "insert", False),
        (b"  ; ", "empty", False),
        (b"", "empty", False),
    ],
)
def test_kinds(sql, kind, reads_only):
    """The first words decide the kind, whatever stands in comments and brackets."""
    statement = judge(sql)
    assert (statement.kind, statement.reads_only) == (kind, reads_only)


@pytest.mark.parametrize(
    ("sql", "head", "input_format", "data"),
    [
        (b"INSERT INTO t FORMAT CSV\n1,2\n", b"INSERT INTO t ", "CSV", b"1,2\n"),
        (
            b"INSERT INTO t (format, values) FORMAT Native\n\x00;'\xff",
            b"INSERT INTO t (format, values) ",
            "Native",
            b"\x00;'\xff",
        ),
        (b"INSERT INTO t FORMAT JSONEachRow {}", b"INSERT INTO t ", "JSONEachRow", b"{}"),
        (b"INSERT INTO t FORMAT TSV \r\n\n1", b"INSERT INTO t ", "TSV", b"\n1"),
        (b"INSERT INTO t VALUES (1, ';')", b"INSERT INTO t ", "Values", b" (1, ';')"),
        (b"INSERT INTO format VALUES (1)", b"INSERT INTO format ", "Values", b" (1)"),
        (b"INSERT INTO db.values FORMAT CSV\n1", b"INSERT INTO db.values ", "CSV", b"1"),
        (
            b"INSERT INTO t SETTINGS async_insert = 1 FORMAT CSV\n1",
            b"INSERT INTO t SETTINGS async_insert = 1 ",
            "CSV",
            b"1",
        ),
        (b"INSERT INTO t (a)", b"INSERT INTO t (a)", "Values", b""),
    ],
)
def test_data_starts_where_the_statement_ends(sql, head, input_format, data):
    """Data is what follows VALUES, or FORMAT, a name and one line end; names of columns and tables are no keywords."""
    statement = judge(sql)
    assert (statement.sql, statement.input_format, statement.data) == (head, input_format, data)


@given(data=st.binary(max_size=200))
def test_data_is_never_read(data):
    """Whatever bytes follow a format, they are the data, unchanged."""
    assert judge(b"INSERT INTO t FORMAT Native\n" + data).data == data


@pytest.mark.parametrize(
    ("sql", "output_format"),
    [
        (b"SELECT 1 FORMAT JSON", "JSON"),
        (b"SELECT 1\n FORMAT Native", "Native"),
        (b"SELECT 1 FORMAT CSV SETTINGS max_threads = 1;", "CSV"),
        (b"SELECT 1 SETTINGS max_threads = 1 FORMAT CSV", "CSV"),
        (b"SELECT format FROM t", None),
        (b"SELECT 'x FORMAT JSON'", None),
        (b"SELECT 1 -- FORMAT JSON", None),
        (b"SHOW TABLES FORMAT TSV", "TSV"),
    ],
)
def test_output_format(sql, output_format):
    """The format is the one that the statement names at its end."""
    assert judge(sql).output_format == output_format


def test_set_tells_its_names():
    """A SET tells which settings it changes, not what their values contain."""
    assert judge(b"SET a = 1, b = {'x': 1, 'y': 2}, c = 'd = 5'").set_names == ("a", "b", "c")
    assert judge(b"SET ROLE x").set_names == ()


def test_use_goes_to_our_database():
    """`default` is our main database; any other name is itself, quoted."""
    assert judge(b"USE default").sql == b"USE `main`"
    assert judge(b"USE `it``s`").sql == b"USE `it\\`s`"
    assert (database_of(""), database_of("default"), database_of("other")) == ("main", "main", "other")


def test_kill_finds_the_id_of_the_client():
    """A query id in KILL QUERY is compared with the one that the client gave."""
    sql = judge(b"KILL QUERY WHERE query_id = 'query_id' SYNC").sql
    assert sql == (
        b"KILL QUERY WHERE if(Settings['log_comment'] != '', Settings['log_comment'], query_id) = 'query_id' SYNC"
    )


@pytest.mark.parametrize(
    "sql", [b"SELECT 1; SELECT 2", b"SELECT 1;/**/;DROP TABLE t", b"INSERT INTO t SELECT 1; SELECT 2"]
)
def test_two_statements_are_refused(sql):
    """One request is one statement."""
    with pytest.raises(QueryError) as caught:
        judge(sql)
    assert caught.value.code == 62


@pytest.mark.parametrize(
    "sql", [b"SELECT 1;", b"SELECT 1 ;; -- done", b"SELECT ';'; /* ; */", b"SELECT $x$;$x$"]
)
def test_an_end_is_not_a_second_statement(sql):
    """Semicolons at the end, in literals and in comments are harmless."""
    assert judge(sql).kind == "select"


@pytest.mark.parametrize(
    "sql",
    [
        b"SELECT file('/etc/passwd')",
        b"SELECT file/**/('/etc/passwd')",
        b"SELECT `file`('/etc/passwd')",
        "SELECT “file”(‘/etc/passwd’)".encode(),
        b"SELECT * APPLY file FROM t",
        b"SELECT arrayMap(file, ['/etc/passwd'])",
        b"INSERT INTO t VALUES (file('/etc/passwd'))",
        b"INSERT INTO t FORMAT Values (file('/etc/passwd'))",
        b"SELECT 1 INTO /* */ OUTFILE '/tmp/x'",
        b"INSERT INTO t FROM INFILE '/etc/passwd' FORMAT CSV",
        b"SELECT * FROM Python(engine)",
        b"SELECT * FROM executable('id', 'TSV', 'a String')",
        b"SELECT * FROM eval('SELECT 1')",
        b"CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a SETTINGS disk = disk(type = local, path = '/etc/')",
        b"CREATE TABLE t (a Int8) ENGINE = Executable('id', 'TSV')",
        b"CREATE TABLE t (a Int8) ENGINE /* */ `Kafka`",
        b"CREATE DATABASE d ENGINE = Filesystem('/etc')",
        b"CREATE TABLE t (a Int8) ENGINE = ReplicatedMergeTree('/x', 'y') ORDER BY a",
        b"DROP TABLE x PARALLEL WITH CREATE TABLE t (a String) ENGINE = URL('http://x/', 'CSV')",
        b"CREATE TABLE t (query String) ENGINE = QueryRunner",
    ],
)
def test_reaching_for_the_host_is_refused(sql):
    """Files, programs, objects of the process and engines that use them are refused with code 497."""
    with pytest.raises(QueryError) as caught:
        judge(sql)
    assert caught.value.code == 497


def test_escapes_in_identifiers_are_refused():
    """A name that is spelt with escapes could be any name."""
    with pytest.raises(QueryError) as caught:
        judge(b'SELECT "f\\x69le"(1)')
    assert caught.value.code == 344


@pytest.mark.parametrize(
    "sql",
    [
        b"SELECT 'file(1)', \"profile\", fileName FROM t WHERE path LIKE '%file(%'",
        b"SELECT engine FROM system.tables",
        b"CREATE VIEW v AS SELECT engine FROM system.tables WHERE engine = 'File'",
        b"CREATE TABLE t (engine String, a Int8) ENGINE = ReplacingMergeTree(a) ORDER BY a",
        b"CREATE MATERIALIZED VIEW v TO t AS SELECT engine AS e FROM s",
        b"CREATE MATERIALIZED VIEW v ENGINE = AggregatingMergeTree ORDER BY a AS SELECT 1 AS a",
        b"INSERT INTO t VALUES ('a file of \"mine\" -- and INTO OUTFILE')",
        b"INSERT INTO t FORMAT CSV\nfile('/etc/passwd')",
    ],
)
def test_honest_statements_pass(sql):
    """Words in literals, columns called engine and the MergeTree family are no reach for the host."""
    assert judge(sql).kind != "empty"


def test_rows_from_the_body_are_checked_too():
    """Rows in Values form are expressions, wherever they come from."""
    check_values(b"(1, 'file'), (now(), \"\")")
    with pytest.raises(QueryError):
        check_values(b"(1), (file('/etc/passwd'))")
