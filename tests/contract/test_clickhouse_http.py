"""What tokentrail and its users expect of ClickHouse's HTTP interface, of whichever ClickHouse the session has.

Run against the embedded one, or against a real server with TOKENTRAIL_TEST_CLICKHOUSE_URL: the same file proves both.
"""
# ruff: noqa: S608 - table names are made here

import asyncio
import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, StreamFailureError

from tests.support.clickhouse import connect, connect_async

COLUMNS = ["id", "at", "price", "name", "tags", "attributes"]
TABLE = (
    "(id UInt64, at DateTime64(3, 'Europe/Berlin'), price Nullable(Decimal(38, 18)), name LowCardinality(String),"
    " tags Array(String), attributes Map(String, String)) ENGINE = MergeTree ORDER BY id"
    " SETTINGS non_replicated_deduplication_window = 100"
)


@pytest.fixture(scope="module")
def database(clickhouse):
    """Give a database of this module's own, dropped at its end."""
    name = f"contract_{uuid.uuid4().hex[:12]}"
    with connect(clickhouse) as admin:
        admin.command(f"CREATE DATABASE {name} ENGINE = Atomic")
        yield name
        admin.command(f"DROP DATABASE {name}")


@pytest.fixture
def client(clickhouse, database):
    """Give a client whose database is the module's."""
    with connect(clickhouse, database=database) as client:
        yield client


@pytest.fixture
def table(client):
    """Give a fresh table with the kinds of columns that our schema uses."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    client.command(f"CREATE TABLE {name} {TABLE}")
    return name


def row(number, price="0.000000000000000001"):
    at = dt.datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=dt.UTC)
    return [
        number,
        at,
        None if price is None else Decimal(price),
        f"n{number % 3}",
        ["a", "é'\\"],
        {"k": "v\t\n"},
    ]


def test_rows_come_back_as_they_went_in(client, table):
    """An insert by rows keeps decimals, time zones, nulls, arrays, maps and odd characters."""
    client.insert(table, [row(1), row(2, None)], column_names=COLUMNS)
    (one, two) = client.query(f"SELECT * FROM {table} ORDER BY id").result_rows
    assert one[2] == Decimal("0.000000000000000001")
    assert one[1] == row(1)[1]
    assert one[3:] == ("n1", ["a", "é'\\"], {"k": "v\t\n"})
    assert two[2] is None


def test_columns_come_back_as_they_went_in(client, table):
    """An insert by columns, uncompressed, is the same insert."""
    client.insert(table, [[1, 2], ["x", "y"]], column_names=["id", "name"], column_oriented=True)
    assert client.query(f"SELECT id, name FROM {table} ORDER BY id").result_rows == [(1, "x"), (2, "y")]


def test_arrow_goes_in_and_out(client, table):
    """An Arrow table is inserted and read as Arrow."""
    client.insert_arrow(table, pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    assert client.query_arrow(f"SELECT id FROM {table} ORDER BY id").column("id").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("compress", ["lz4", "zstd", "gzip", False])
def test_every_compression_that_the_client_knows(clickhouse, database, compress):
    """A large insert and a large read survive each coding, both ways."""
    with connect(clickhouse, database=database, compress=compress) as client:
        name = f"z_{uuid.uuid4().hex[:12]}"
        client.command(f"CREATE TABLE {name} (a UInt64, b String) ENGINE = MergeTree ORDER BY a")
        client.insert(name, [[n, f"text {n}"] for n in range(20_000)], column_names=["a", "b"])
        rows = client.query(f"SELECT a, b FROM {name} ORDER BY a").result_rows
        assert rows == [(n, f"text {n}") for n in range(20_000)]


def test_raw_insert_in_any_format(client, table):
    """Rows of JSON go in as they are."""
    client.raw_insert(table, ["id", "name"], '{"id": 5, "name": "five"}\n', fmt="JSONEachRow")
    assert client.query(f"SELECT id, name FROM {table}").result_rows == [(5, "five")]


def test_insert_values_and_select(client, table):
    """INSERT with VALUES evaluates expressions, INSERT with SELECT runs in the engine."""
    client.command(f"INSERT INTO {table} (id, name) VALUES (1 + 1, upper('a;b')), (3, 'it''s')")
    client.command(f"INSERT INTO {table} (id) SELECT id + 10 FROM {table}")
    assert client.query(f"SELECT id, name FROM {table} ORDER BY id LIMIT 2").result_rows == [
        (2, "A;B"),
        (3, "it's"),
    ]
    assert client.command(f"SELECT count() FROM {table}") == 4


def test_a_bad_row_inserts_nothing(client, table):
    """A body whose last row cannot be parsed is refused as a whole."""
    with pytest.raises(DatabaseError):
        client.raw_insert(table, ["id", "name"], "1,a\n2,b\nthree,c\n", fmt="CSV")
    assert client.command(f"SELECT count() FROM {table}") == 0


def test_the_same_token_inserts_once(client, table):
    """A retried insert with the same token adds nothing; another token adds the same rows again."""
    for token in ("one", "one", "two"):
        client.insert(table, [row(1)], column_names=COLUMNS, settings={"insert_deduplication_token": token})
    assert client.command(f"SELECT count() FROM {table}") == 2


def test_a_token_reaches_the_materialized_view(client, table):
    """A retry is not counted twice in a view's target that has a window of its own."""
    client.command(
        f"CREATE MATERIALIZED VIEW mv_{table} ENGINE = MergeTree ORDER BY id"
        f" SETTINGS non_replicated_deduplication_window = 100 AS SELECT id FROM {table}"
    )
    settings = {"insert_deduplication_token": "one", "deduplicate_blocks_in_dependent_materialized_views": 1}
    for _ in range(2):
        client.insert(table, [row(1)], column_names=COLUMNS, settings=settings)
    assert client.command(f"SELECT count() FROM mv_{table}") == 1


def test_the_summary_counts_written_rows(client, table):
    """An insert answers how many rows it wrote."""
    assert client.insert(table, [row(1), row(2)], column_names=COLUMNS).written_rows == 2


def test_parameters_are_bound_by_the_server(client, table):
    """Typed parameters carry quotes, tabs and identifiers."""
    client.insert(table, [row(1)], column_names=COLUMNS)
    text = "it's \\ a\ttab\nand é"
    query = "SELECT {text:String}, {many:Array(UInt8)}, count() FROM {name:Identifier} WHERE id = {id:UInt64}"
    result = client.query(query, parameters={"text": text, "many": [1, 2], "name": table, "id": 1})
    assert result.result_rows == [(text, [1, 2], 1)]


def test_settings_last_for_one_query(client):
    """A setting of a query is gone with the next one."""
    setting = "SELECT getSetting('max_block_size')"
    before = client.command(setting)
    assert client.query(setting, settings={"max_block_size": 4321}).result_rows == [(4321,)]
    assert client.command(setting) == before


def test_an_unknown_setting_is_an_error(client):
    """A misspelt setting is refused with ClickHouse's code, not ignored."""
    with pytest.raises(DatabaseError) as caught:
        client.query("SELECT 1", settings={"max_trheads": 1})
    assert caught.value.code == 115


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT * FROM nowhere", 60),
        ("SELEC 1", 62),
        ("SELECT nothing", 47),
        ("SELECT noSuchFunction(1)", 46),
        ("SELECT throwIf(1)", 395),
        ("SELECT 1; SELECT 2", 62),
    ],
)
def test_errors_carry_their_code(client, sql, code):
    """What a client decides by is the code of the server's exception."""
    with pytest.raises(DatabaseError) as caught:
        client.query(sql)
    assert caught.value.code == code


def test_an_unknown_database_is_an_error(client):
    """A database that does not exist is refused with code 81."""
    with pytest.raises(DatabaseError) as caught:
        client.query("SELECT 1", settings={"database": "no_such_database"})
    assert caught.value.code == 81


def test_rows_stream(client):
    """A large result arrives row by row."""
    with client.query_rows_stream("SELECT number FROM numbers(300000)") as stream:
        assert sum(number for (number,) in stream) == 299_999 * 150_000


def test_column_blocks_stream(client):
    """A large result arrives block by block, as columns."""
    with client.query_column_block_stream("SELECT number FROM numbers(300000)") as stream:
        assert sum(len(block[0]) for block in stream) == 300_000


def test_an_error_within_a_stream_reaches_the_reader(client):
    """A query that fails after its first rows were read raises at the reader, with the code."""
    sql = "SELECT throwIf(number = 2900000) FROM numbers(3000000)"
    settings = {"max_block_size": 10_000, "wait_end_of_query": 0}
    with (
        pytest.raises(StreamFailureError) as caught,
        client.query_row_block_stream(sql, settings=settings) as stream,
    ):
        for _ in stream:
            pass
    assert caught.value.code == 395


def test_an_abandoned_stream_leaves_the_client_usable(client):
    """A reader that stops early can ask again on the same client."""
    with client.query_row_block_stream("SELECT number FROM numbers(1000000)") as stream:
        next(iter(stream))
    assert client.command("SELECT 1") == 1


def test_an_empty_result_is_empty(client, table):
    """No rows is an empty list, and DDL answers nothing."""
    assert client.query(f"SELECT * FROM {table}").result_rows == []
    assert client.query(f"SELECT id FROM {table} LIMIT 0").column_names == ("id",)
    assert client.raw_query(f"OPTIMIZE TABLE {table}") == b""


def test_statements_that_describe(client, table):
    """SHOW, DESCRIBE, EXISTS and EXPLAIN answer like queries."""
    assert "MergeTree\nORDER BY id" in client.query(f"SHOW CREATE TABLE {table}").result_rows[0][0]
    assert client.query(f"DESCRIBE TABLE {table}").result_rows[0][:2] == ("id", "UInt64")
    assert client.command(f"EXISTS TABLE {table}") == 1
    assert client.query(f"EXPLAIN SELECT * FROM {table}").row_count > 0


async def test_the_asynchronous_client(clickhouse, database):
    """Inserts, concurrent queries, streams and errors work on the event loop."""
    client = await connect_async(clickhouse, database=database)
    try:
        await client.command("CREATE TABLE asynchronous (a UInt64) ENGINE = MergeTree ORDER BY a")
        await client.insert("asynchronous", [[n] for n in range(1000)], column_names=["a"])
        results = await asyncio.gather(
            *(client.query(f"SELECT sum(a) + {n} FROM asynchronous") for n in range(8))
        )
        assert [result.result_rows[0][0] for result in results] == [499_500 + n for n in range(8)]
        async with await client.query_rows_stream("SELECT number FROM numbers(100000)") as stream:
            assert len([row async for row in stream]) == 100_000
        with pytest.raises(DatabaseError) as caught:
            await client.query("SELECT * FROM nowhere")
        assert caught.value.code == 60
    finally:
        await client.close()


def test_replacing_merge_tree_final(client):
    """The latest version of a row wins under FINAL."""
    client.command("CREATE TABLE r (k UInt8, v UInt8, x String) ENGINE = ReplacingMergeTree(v) ORDER BY k")
    client.command("INSERT INTO r VALUES (1, 1, 'old')")
    client.command("INSERT INTO r VALUES (1, 2, 'new')")
    assert client.query("SELECT x FROM r FINAL").result_rows == [("new",)]
