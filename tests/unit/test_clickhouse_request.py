"""One HTTP request, read as ClickHouse's interface defines it; sessions; who holds a folder."""

import base64
import os
import subprocess
import sys

import pytest

from compose.embedded.clickhouse import holder, request, sessions
from compose.embedded.clickhouse.errors import DirectoryBusyError, QueryError
from compose.embedded.clickhouse.request import HttpRequest, read


def query(query_string="", body=b"", method="POST", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read(HttpRequest(method, query_string, named, body))


def test_text_comes_from_the_url_or_the_body():
    """The URL's query and the body are one text where the statement is no insert."""
    assert query("query=SELECT+1").statement.sql == b"SELECT 1"
    assert query(body=b"SELECT 2").statement.sql == b"SELECT 2"
    assert query("query=SELECT", b"3").statement.sql == b"SELECT\n3"


def test_the_body_is_the_data_of_an_insert():
    """After INSERT … FORMAT in the URL the body is data, also after data in the URL."""
    assert query("query=INSERT+INTO+t+FORMAT+CSV%0A", b"1\n").statement.data == b"1\n"
    assert query("query=INSERT+INTO+t+FORMAT+CSV%0A1%0A", b"2\n").statement.data == b"1\n2\n"


def test_rows_in_the_body_are_checked():
    """Values in the body are expressions as well."""
    with pytest.raises(QueryError):
        query("query=INSERT+INTO+t+VALUES", b"(file('/etc/passwd'))")


def test_parameters_are_sorted_out():
    """Interface words, query parameters and settings are told apart; nothing of the transport reaches the engine."""
    found = query(
        "query=SELECT+1&database=d&param_x=1&max_threads=2&query_id=q&session_id=s&session_timeout=5&session_check=1"
        "&enable_http_compression=1&send_progress_in_http_headers=1&wait_end_of_query=1&client_protocol_version=54459",
        accept_encoding="gzip",
    )
    assert found.settings == {"max_threads": "2"}
    assert found.parameters == {"x": "1"}
    assert (found.database, found.query_id, found.session_id) == ("d", "q", "s")
    assert (found.session_timeout_s, found.session_must_exist, found.waits_for_end) == (5, True, True)
    assert found.coding == "gzip"


def test_no_coding_without_being_asked():
    """Accept-Encoding alone packs nothing; ClickHouse's own frames replace a coding."""
    assert query("query=SELECT+1", accept_encoding="gzip").coding is None
    both = query("query=SELECT+1&enable_http_compression=1&compress=1", accept_encoding="gzip")
    assert (both.coding, both.frames) == (None, True)


@pytest.mark.parametrize(
    "query_string", ["a%3Bb=1", "role=admin", "session_timeout=99999", "session_timeout=x"]
)
def test_what_cannot_be_meant_is_refused(query_string):
    """A setting that is no name, a role, a session for days: each is an error."""
    with pytest.raises(QueryError):
        query(query_string, b"SELECT 1")


@pytest.mark.parametrize(
    ("headers", "query_string", "expected"),
    [
        ({}, "", ("default", "")),
        ({}, "user=u&password=p", ("u", "p")),
        ({"authorization": "Basic " + base64.b64encode("u:p:ü".encode()).decode()}, "", ("u", "p:ü")),
        ({"x_clickhouse_user": "u", "x_clickhouse_key": "k"}, "user=other", ("u", "k")),
    ],
)
def test_credentials(headers, query_string, expected):
    """User and password come from ClickHouse's headers, Basic, or the URL, in this order."""
    found = query(query_string, b"SELECT 1", **headers)
    assert (found.user, found.password) == expected


@pytest.mark.parametrize("header", ["Bearer x", "Basic !!!", "Basic /w=="])
def test_other_credentials_are_refused(header):
    """Tokens and broken Basic credentials are code 516."""
    with pytest.raises(QueryError) as caught:
        query("", b"SELECT 1", authorization=header)
    assert caught.value.code == 516


def test_an_external_table_comes_as_a_file():
    """A form's file is a table whose shape is in the URL or the form; its other fields are parameters."""
    body = (
        b'--B\r\nContent-Disposition: form-data; name="query"\r\n\r\nSELECT * FROM x\r\n'
        b'--B\r\nContent-Disposition: form-data; name="param_p"\r\n\r\n7\r\n'
        b'--B\r\nContent-Disposition: form-data; name="x"; filename="x"\r\n\r\n1\r\n2\r\n\r\n--B--\r\n'
    )
    found = query("x_types=UInt8,String&x_format=CSV", body, content_type="multipart/form-data; boundary=B")
    (table,) = found.tables
    assert (table.name, table.structure, table.input_format) == ("x", "_1 UInt8, _2 String", "CSV")
    assert table.data == b"1\r\n2\r\n"
    assert (found.statement.sql, found.parameters, found.settings) == (b"SELECT * FROM x", {"p": "7"}, {})


def test_a_form_by_mistake_is_a_body():
    """`curl -d` says form, and means the text of a query."""
    assert (
        query("", b"SELECT 1", content_type="application/x-www-form-urlencoded").statement.sql == b"SELECT 1"
    )


class FakeLink:
    closed = False

    def close(self):
        self.closed = True


def take(kept, session_id, now_s, **options):
    return kept.take(
        "default", session_id, options.pop("idle_timeout_s", 60), now_s, must_exist=False, **options
    )


def test_a_session_ends_when_it_was_idle_for_its_time():
    """The same id is the same connection until its time is over."""
    kept = sessions.Sessions(FakeLink)
    first = take(kept, "a", 0)
    kept.give_back(first, 10)
    assert take(kept, "a", 70) is first
    kept.give_back(first, 70)
    take(kept, "b", 131)
    assert first.link.closed


def test_a_busy_session_does_not_end():
    """A session with a long query is not idle, however long it runs; a second request meanwhile is refused."""
    kept = sessions.Sessions(FakeLink)
    busy = take(kept, "a", 0)
    take(kept, "b", 10_000)
    assert not busy.link.closed
    with pytest.raises(QueryError) as caught:
        take(kept, "a", 10_001)
    assert caught.value.code == 373


def test_too_many_sessions_close_the_one_idle_for_longest(monkeypatch):
    """A client that never uses a session twice does not fill the memory."""
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    kept = sessions.Sessions(FakeLink)
    opened = [take(kept, name, 0) for name in "ab"]
    for place, session in enumerate(reversed(opened)):
        kept.give_back(session, place)
    take(kept, "c", 3)
    assert [session.link.closed for session in opened] == [False, True]


def test_no_session_is_a_connection_for_one_request():
    """Without an id the connection closes with the request."""
    kept = sessions.Sessions(FakeLink)
    session = take(kept, "", 0)
    kept.give_back(session, 0)
    assert session.link.closed


def test_a_folder_is_held_by_one(tmp_path):
    """The second holder hears the first one's pid; after its end the folder is free, without a record."""
    with holder.held(tmp_path, None) as held:
        held.publish("http://127.0.0.1:1")
        with pytest.raises(DirectoryBusyError, match=rf"process {os.getpid()} \(http://127.0.0.1:1\)"):
            holder.held(tmp_path, None).__enter__()
    assert holder.read_record(tmp_path) is None
    with holder.held(tmp_path, None):
        pass


def test_a_pid_is_not_a_process():
    """A pid that was given to another process since is not the one that the record names."""
    own = holder.Record(os.getpid(), holder.start_ticks(os.getpid()))
    assert own.runs
    assert not holder.Record(os.getpid(), (own.start_ticks or 0) - 1).runs


def test_only_a_holder_without_owner_is_a_leftover():
    """A living owner protects its server, an unknown one too; a dead one does not."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert holder.Record(1, 1, owner_pid=gone.pid, owner_start_ticks=1).is_leftover
    assert not holder.Record(
        1, 1, owner_pid=os.getpid(), owner_start_ticks=holder.start_ticks(os.getpid())
    ).is_leftover
    assert not holder.Record(1, 1).is_leftover


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1, "other": 2}', "[]"])
def test_a_broken_record_is_no_record(tmp_path, text):
    """The lock decides; a record that cannot be read only explains less."""
    (tmp_path / holder.RECORD_NAME).write_text(text)
    assert holder.read_record(tmp_path) is None


def test_the_limit_of_a_session_is_said():
    """The refusal of a session for days says what the limit is."""
    with pytest.raises(QueryError, match=str(request.SESSION_TIMEOUT_S_MAX)):
        query("session_timeout=90000", b"SELECT 1")
