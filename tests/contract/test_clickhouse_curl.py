"""The same HTTP interface as plain HTTP: what curl, a browser or a client of another language sends and sees.

Run against the embedded ClickHouse, or a real server with TOKENTRAIL_TEST_CLICKHOUSE_URL.
"""

import gzip
import json
import uuid

import httpx
import pytest
import zstandard

from compose.embedded.clickhouse import wire


@pytest.fixture(scope="module")
def http(clickhouse):
    """Give a plain HTTP client for the service."""
    with httpx.Client(base_url=clickhouse, headers={"Accept-Encoding": "identity"}) as client:
        yield client


@pytest.fixture
def table(http):
    """Give an empty table of numbers, dropped afterwards."""
    name = f"curl_{uuid.uuid4().hex[:12]}"
    assert http.post("/", content=f"CREATE TABLE {name} (a UInt32) ENGINE = Memory").status_code == 200
    yield name
    http.post("/", content=f"DROP TABLE {name}")


def count(http, table):
    return int(http.post("/", content=f"SELECT count() FROM {table}").text)  # noqa: S608 - a name of ours


@pytest.mark.parametrize("path", ["/ping", "/"])
def test_health(http, path):
    """A health check without a query says Ok."""
    assert http.get(path).text == "Ok.\n"


def test_an_unknown_path_is_not_found(http):
    """There is nothing else."""
    assert http.get("/nothing/here").status_code == 404


def test_get_reads(http):
    """A query in the URL is answered, tab-separated where nothing else is asked for."""
    response = http.get("/", params={"query": "SELECT 1, 'a\tb'"})
    assert (response.status_code, response.text) == (200, "1\ta\\tb\n")
    assert response.headers["Content-Type"].startswith("text/tab-separated-values")


def test_get_does_not_write(http, table):
    """A query in the URL of a GET cannot change anything: code 164."""
    response = http.get("/", params={"query": f"DROP TABLE {table}"})
    assert response.headers["X-ClickHouse-Exception-Code"] == "164"
    assert count(http, table) == 0


@pytest.mark.parametrize("statement", ["DROP TABLE {}", "INSERT INTO {} VALUES (1)", "TRUNCATE TABLE {}"])
def test_readonly_does_not_write(http, table, statement):
    """With the setting `readonly` a POST cannot change anything either; the next one without it may."""
    response = http.post("/", params={"readonly": "2"}, content=statement.format(table))
    assert response.headers["X-ClickHouse-Exception-Code"] == "164"
    assert count(http, table) == 0
    assert http.post("/", params={"readonly": "2"}, content="SELECT 1").text == "1\n"
    misspelt = http.post("/", params={"readonly": "2"}, content="SELEC '\\\\'\n\tFROM x")
    assert misspelt.headers["X-ClickHouse-Exception-Code"] == "62"
    assert "SELEC" in misspelt.text
    assert http.post("/", content=f"TRUNCATE TABLE {table}").status_code == 200


@pytest.mark.parametrize(
    ("output_format", "content_type", "body"),
    [
        ("CSVWithNames", "text/csv", '"a","b"\n1,"x"\n'),
        ("JSONEachRow", "application/x-ndjson", '{"a":1,"b":"x"}\n'),
        ("TabSeparatedWithNamesAndTypes", "text/tab-separated-values", "a\tb\nUInt8\tString\n1\tx\n"),
        ("Values", "text/plain", "(1,'x')"),
    ],
)
def test_formats(http, output_format, content_type, body):
    """The format of the statement decides the body and its type."""
    response = http.post("/", content=f"SELECT 1 AS a, 'x' AS b FORMAT {output_format}")
    assert response.text == body
    assert response.headers["Content-Type"].startswith(content_type)
    assert response.headers["X-ClickHouse-Format"] == output_format


def test_json_has_its_meta(http):
    """FORMAT JSON is one document, also for a larger result."""
    document = http.post("/", content="SELECT number AS n FROM numbers(100000) FORMAT JSON").json()
    assert document["meta"] == [{"name": "n", "type": "UInt64"}]
    assert document["rows"] == 100_000


def test_a_header_comes_once(http):
    """A streamed result has its names in the first line only."""
    lines = http.post(
        "/", content="SELECT number AS n FROM numbers(300000) FORMAT CSVWithNames"
    ).text.splitlines()
    assert (lines[0], len(lines), lines.count('"n"')) == ('"n"', 300_001, 1)


def test_an_empty_result_has_its_header(http):
    """No rows still tell the names of the columns."""
    assert http.post("/", content="SELECT 1 AS a WHERE 0 FORMAT CSVWithNames").text == '"a"\n'


def test_default_format(http):
    """The format can come with the request."""
    response = http.post("/", params={"default_format": "JSONEachRow"}, content="SELECT 1 AS a")
    assert json.loads(response.text) == {"a": 1}
    assert http.post("/", headers={"X-ClickHouse-Format": "CSV"}, content="SELECT 1, 2").text == "1,2\n"


@pytest.mark.parametrize(
    "sql", ["INSERT INTO {} FORMAT CSV", "INSERT INTO {} (a) FORMAT JSONEachRow", "INSERT INTO {} VALUES"]
)
def test_insert_with_the_statement_in_the_url(http, table, sql):
    """The body is the data of the statement in the URL."""
    data = {"CSV": "1\n2\n", "JSONEachRow": '{"a":1}\n{"a":2}\n', "VALUES": "(1),(2)"}[sql.split()[-1]]
    response = http.post("/", params={"query": sql.format(table)}, content=data)
    assert (response.status_code, response.text) == (200, "")
    assert json.loads(response.headers["X-ClickHouse-Summary"])["written_rows"] == "2"
    assert count(http, table) == 2


def test_insert_with_all_in_the_body(http, table):
    """Statement and data in one body, as clickhouse-client would send a file."""
    http.post("/", content=f"INSERT INTO {table} FORMAT CSV\n1\n2\n3\n")
    assert count(http, table) == 3


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_packed_body(http, table, coding):
    """Content-Encoding is undone before the data is read."""
    pack = {"gzip": gzip.compress, "zstd": zstandard.compress}[coding]
    query = {"query": f"INSERT INTO {table} FORMAT CSV"}
    http.post("/", params=query, content=pack(b"1\n2\n"), headers={"Content-Encoding": coding})
    assert count(http, table) == 2


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "lz4", "deflate"])
def test_a_packed_answer(http, coding):
    """An answer is packed where the client accepts it and enable_http_compression asks for it."""
    sql = "SELECT number FROM numbers(100000)"
    with http.stream(
        "POST", "/", params={"enable_http_compression": "1"}, content=sql, headers={"Accept-Encoding": coding}
    ) as response:
        packed = b"".join(response.iter_raw())
    assert response.headers["Content-Encoding"] == coding
    assert wire.decoded(packed, coding).count(b"\n") == 100_000


def test_an_empty_answer_is_not_packed(http, table):
    """Clients tell "no result set" by an empty body without a coding and without a format."""
    response = http.post(
        "/",
        params={"enable_http_compression": "1"},
        content=f"TRUNCATE TABLE {table}",
        headers={"Accept-Encoding": "gzip"},
    )
    assert response.content == b""
    assert not {"Content-Encoding", "X-ClickHouse-Format"} & set(response.headers)


def test_clickhouse_frames(http, table):
    """compress=1 and decompress=1 speak ClickHouse's own compressed blocks."""
    packed = wire.encoder(None, frames=True).feed(b"7\n8\n")
    http.post("/", params={"query": f"INSERT INTO {table} FORMAT CSV", "decompress": "1"}, content=packed)
    answer = http.post("/", params={"compress": "1"}, content=f"SELECT a FROM {table} ORDER BY a")  # noqa: S608
    assert wire.decoded(answer.content, "", frames=True) == b"7\n8\n"


def test_a_query_keeps_its_id(http):
    """The id that a client gives comes back; without one the server gives one."""
    assert (
        http.get("/", params={"query": "SELECT 1", "query_id": "mine"}).headers["X-ClickHouse-Query-Id"]
        == "mine"
    )
    assert len(http.get("/", params={"query": "SELECT 1"}).headers["X-ClickHouse-Query-Id"]) == 36


def test_a_wrong_password_is_refused(http):
    """Basic credentials and ClickHouse's headers are both checked."""
    for options in (
        {"auth": ("default", "wrong")},
        {"headers": {"X-ClickHouse-User": "default", "X-ClickHouse-Key": "wrong"}},
        {"params": {"user": "nobody"}},
    ):
        response = http.post("/", content="SELECT 1", **options)
        assert response.headers["X-ClickHouse-Exception-Code"] == "516"


def test_an_error_is_explained(http):
    """The body of an error has code, text and name."""
    response = http.post("/", content="SELECT * FROM nowhere")
    assert response.status_code == 404
    assert response.headers["X-ClickHouse-Exception-Code"] == "60"
    assert response.text.startswith("Code: 60. DB::Exception: ")
    assert "(UNKNOWN_TABLE) (version " in response.text


def test_an_error_within_the_answer_is_marked(http):
    """After the first byte an error stands in the body, between the tag that the headers announced."""
    sql = "SELECT throwIf(number = 2900000) FROM numbers(3000000) FORMAT CSV SETTINGS max_block_size = 10000"
    with http.stream("POST", "/", content=sql) as response:
        tail = response.read()[-2000:].decode()
    tag = response.headers["X-ClickHouse-Exception-Tag"]
    assert response.status_code == 200
    assert tail.endswith(f" {tag}\r\n__exception__\r\n")
    assert "Code: 395." in tail.split(f"__exception__\r\n{tag}\r\n")[1]


def test_sessions_by_hand(http):
    """session_id keeps a temporary table; session_check refuses a session that is not there."""
    session = {"session_id": uuid.uuid4().hex}
    http.post("/", params=session, content="CREATE TEMPORARY TABLE mine (a UInt8)")
    assert http.post("/", params=session, content="SELECT count() FROM mine").text == "0\n"
    other = {"session_id": uuid.uuid4().hex, "session_check": "1"}
    assert http.post("/", params=other, content="SELECT 1").headers["X-ClickHouse-Exception-Code"] == "372"
