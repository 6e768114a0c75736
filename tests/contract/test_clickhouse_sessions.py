"""What outlives a request in ClickHouse's HTTP interface, and what does not: sessions, external tables, running queries.

Run against the embedded ClickHouse, or a real server with TOKENTRAIL_TEST_CLICKHOUSE_URL.
"""

import threading
import uuid

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from clickhouse_connect.driver.external import ExternalData

from tests.support.clickhouse import connect


@pytest.fixture
def client(clickhouse):
    """Give a client: it has a session of its own."""
    with connect(clickhouse) as client:
        yield client


def test_a_session_remembers(client):
    """Temporary tables, SET and USE last for the session of a client."""
    client.command("CREATE TEMPORARY TABLE mine (a UInt8)")
    client.insert("mine", [[7]], column_names=["a"])
    client.command("SET max_block_size = 777")
    assert client.query("SELECT a, getSetting('max_block_size') FROM mine").result_rows == [(7, 777)]
    assert client.query(
        "SELECT getSetting('max_block_size')", settings={"max_block_size": 5}
    ).result_rows == [(5,)]
    assert client.query("SELECT getSetting('max_block_size')").result_rows == [(777,)]


def test_another_session_does_not_see_it(clickhouse, client):
    """A temporary table belongs to its session alone."""
    client.command("CREATE TEMPORARY TABLE hidden (a UInt8)")
    with connect(clickhouse) as other, pytest.raises(DatabaseError) as caught:
        other.query("SELECT * FROM hidden")
    assert caught.value.code == 60


def test_an_external_table_lives_for_one_query(client):
    """Data that travels with a query is a table for that query."""
    data = ExternalData(file_name="outside", data=b"1\n2\n39\n", fmt="CSV", structure="a Int32")
    assert client.query("SELECT sum(a) FROM outside", external_data=data).result_rows == [(42,)]
    with pytest.raises(DatabaseError):
        client.query("SELECT sum(a) FROM outside")


def test_a_query_is_killed_by_its_id(clickhouse, client):
    """KILL QUERY finds the id that a client gave, and that client hears code 394."""
    query_id = f"slow-{uuid.uuid4()}"
    heard = []

    def run():
        with connect(clickhouse) as victim:
            try:
                victim.query(
                    "SELECT sum(sipHash64(number)) FROM numbers(1e12)", settings={"query_id": query_id}
                )
            except DatabaseError as error:
                heard.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        client.command(f"KILL QUERY WHERE query_id = '{query_id}' ASYNC")
        thread.join(0.05)
    assert heard == [394]
