"""What only the embedded ClickHouse promises: the host out of reach, one process per folder, nothing lost by a kill."""
# ruff: noqa: S608 - what looks like an injection here is one, on purpose

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from compose.embedded.clickhouse import holder
from compose.embedded.clickhouse.errors import DirectoryBusyError, PortBusyError
from compose.embedded.clickhouse.process import EmbeddedClickHouse, answers, command, wait_ready

pytestmark = pytest.mark.services
HIDDEN = "'JSONEachRow', 'a String, b String DEFAULT file(\\'{path}\\')', '{{\"a\":\"x\"}}'"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Give an embedded server of this module's own."""
    with EmbeddedClickHouse(tmp_path_factory.mktemp("embedded")) as server:
        yield server


@pytest.fixture
def secret(tmp_path):
    """Give a file of the host that nobody may read through SQL."""
    path = tmp_path / "secret.txt"
    path.write_text("do not tell\n")
    return path


def ask(server, sql, **params):
    return httpx.post(server.url, params=params, content=sql)


def test_it_says_what_it_is(server):
    """The server's name is `embedded`, its version the engine's, its zone UTC, its database `main`."""
    response = ask(server, "SELECT displayName(), version(), timezone(), currentDatabase()")
    name, version, zone, database = response.text.split()
    assert (name, zone, database) == ("embedded", "UTC", "main")
    assert version.count(".") == 3
    assert response.headers["X-ClickHouse-Server-Display-Name"] == "embedded"


def test_default_is_the_main_database(server):
    """A client that asks for `default` gets the one database."""
    assert ask(server, "SELECT currentDatabase()", database="default").text == "main\n"
    session = uuid.uuid4().hex
    ask(server, "USE default", session_id=session)
    assert ask(server, "SELECT currentDatabase()", session_id=session).text == "main\n"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT file('{path}')",
        "SELECT * APPLY(file) FROM (SELECT '{path}')",
        "SELECT \"f\\x69le\"('{path}')",
        "SELECT * FROM file('{path}')",
        "SELECT * FROM format(" + HIDDEN + ")",
        "SELECT 1 FORMAT Template SETTINGS format_template_row = '{path}'",
        "SELECT 1 SETTINGS additional_result_filter = 'file(\\'{path}\\') = \\'\\''",
        "CREATE TABLE f (a String) ENGINE = File(CSV, '{path}')",
        "CREATE DATABASE f ENGINE = Filesystem('{path}')",
        "INSERT INTO FUNCTION null('a String') VALUES (file('{path}'))",
        "INSERT INTO t FROM INFILE '{path}' FORMAT CSV",
        "SELECT 1 INTO OUTFILE '{path}.out'",
        "BACKUP DATABASE main TO File('{path}.backup')",
        "CREATE DICTIONARY d (a String) PRIMARY KEY a SOURCE(EXECUTABLE(COMMAND 'cat {path}' FORMAT 'CSV')) LAYOUT(FLAT())",
        "SELECT * FROM executable('cat {path}', 'CSV', 'a String')",
        "SELECT * FROM url('http://127.0.0.1:9/', 'CSV', 'a String')",
        "SELECT * FROM remote('127.0.0.1:9', system.one)",
        "SELECT * FROM python(engine)",
        "SET dialect = 'kusto'",
        "SYSTEM SHUTDOWN",
    ],
)
def test_the_host_is_out_of_reach(server, secret, sql):
    """No statement reads, writes or runs anything of the host, whichever way it hides it."""
    response = ask(server, sql.format(path=secret))
    assert int(response.headers["X-ClickHouse-Exception-Code"]) in {36, 62, 76, 344, 446, 452, 497}
    assert "do not tell" not in response.text
    assert sorted(path.name for path in secret.parent.iterdir()) == ["secret.txt"]
    assert answers(server.url)


def test_a_body_has_a_limit(server):
    """A body that says it is larger than the limit is refused before it is read."""
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), timeout=5) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_leaves_stops_its_query(server):
    """A reading query ends when its client closes the connection."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(server.url, content="SELECT sum(sipHash64(number)) FROM numbers(1e12)", timeout=0.3)
    deadline = time.monotonic() + 10
    while "1e12" in (
        running := ask(server, "SELECT query FROM system.processes WHERE query NOT LIKE '%processes%'").text
    ):
        assert time.monotonic() < deadline, running


def test_a_second_process_is_refused(server):
    """The folder belongs to one process; the second says which one, and what to do."""
    with pytest.raises(DirectoryBusyError, match=rf"in use by process {server.pid} .*kill {server.pid}"):
        EmbeddedClickHouse(server.path).start()
    assert answers(server.url)


def test_a_busy_port_is_refused(server, tmp_path):
    """A port in use is an error that says so."""
    with pytest.raises(PortBusyError, match="give another --port"):
        EmbeddedClickHouse(tmp_path, port=int(server.url.rsplit(":", 1)[1])).start()


def test_a_kill_loses_nothing_acknowledged(tmp_path):
    """After kill -9 the same folder starts again within seconds, with every acknowledged row."""
    server = EmbeddedClickHouse(tmp_path).start()
    url = server.url
    ask(server, "CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a")
    for number in range(20):
        assert ask(server, f"INSERT INTO t VALUES ({number})").status_code == 200
    server.kill()
    assert not answers(url)
    with server:
        assert server.url == url
        assert ask(server, "SELECT count(), max(a) FROM t").text == "20\t19\n"


def test_the_engine_has_its_environment_from_the_kernel(tmp_path):
    """Its library reads behind the environment: zone and folder are there from the beginning, and never set later."""
    folder = tmp_path / "data"
    bare = {name: value for name, value in os.environ.items() if name not in {"TZ", "TMPDIR"}}
    with subprocess.Popen(command(folder, 0, die_with_owner=True), env=bare) as process:
        deadline = time.monotonic() + 20
        while (record := holder.read_record(folder)) is None or not record.url:
            assert time.monotonic() < deadline
        given = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        process.terminate()
    assert b"TZ=UTC" in given
    assert f"TMPDIR={folder.resolve() / 'tmp'}".encode() in given


def test_a_stop_is_clean(tmp_path):
    """SIGTERM ends the process with exit code 0 and takes its record away."""
    server = EmbeddedClickHouse(tmp_path).start()
    assert json.loads((tmp_path / holder.RECORD_NAME).read_text())["url"] == server.url
    assert server.stop() == 0
    assert holder.read_record(tmp_path) is None


def test_a_stop_ends_what_runs_and_hears_no_second_signal(tmp_path):
    """A query that would take minutes is told that it was stopped, the engine is closed, and what was inserted is there."""
    with EmbeddedClickHouse(tmp_path) as server, ThreadPoolExecutor() as threads:
        ask(server, "CREATE TABLE kept (n Int32) ENGINE = MergeTree ORDER BY n")
        assert ask(server, "INSERT INTO kept VALUES (1)").status_code == httpx.codes.OK
        slow = "SELECT sum(sleepEachRow(0.1)) FROM numbers(6000) SETTINGS max_block_size = 10"
        answer = threads.submit(httpx.post, server.url, content=slow, timeout=60)
        while int(ask(server, "SELECT count() FROM system.processes").text) < 2:
            assert not answer.done()
            time.sleep(0.02)
        for number in (signal.SIGINT, signal.SIGINT):
            os.kill(server.pid, number)
        assert server.stop() == 0
        assert "QUERY_WAS_CANCELLED" in answer.result().text
        assert ask(server.start(), "SELECT n FROM kept").text == "1\n"


def test_a_leftover_is_stopped(tmp_path):
    """A server whose owner died is stopped by the next start on its folder."""
    starter = (
        "import subprocess, sys; from pathlib import Path;"
        "from compose.embedded.clickhouse.process import command;"
        "subprocess.Popen(command(Path(sys.argv[1]), 0), stderr=subprocess.DEVNULL)"
    )
    subprocess.run([sys.executable, "-c", starter, str(tmp_path)], check=True)
    deadline = time.monotonic() + 20
    while (leftover := holder.read_record(tmp_path)) is None or not leftover.url:
        assert time.monotonic() < deadline
    asyncio.run(wait_ready(leftover.url))
    with EmbeddedClickHouse(tmp_path) as server:
        assert server.pid != leftover.pid
        assert not leftover.runs


def test_it_dies_with_the_process_that_started_it(tmp_path):
    """With --die-with-owner no server outlives its test runner, even one that was killed."""
    starter = (
        "import sys; from pathlib import Path;"
        "from compose.embedded.clickhouse.process import EmbeddedClickHouse;"
        "print(EmbeddedClickHouse(Path(sys.argv[1])).start().pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as runner:
        pid = int(runner.stdout.readline())
        started = holder.start_ticks(pid)
        os.kill(runner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while holder.runs(pid, started):
        assert time.monotonic() < deadline


def test_a_password_is_asked_for(tmp_path):
    """With a password file only its password is let in; without one nobody but this machine is listened to."""
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    words = [*command(tmp_path / "data", 0, die_with_owner=True), "--password-file", str(secret)]
    with subprocess.Popen(words) as process:
        deadline = time.monotonic() + 20
        while (record := holder.read_record(tmp_path / "data")) is None or not record.url:
            assert time.monotonic() < deadline
        for password, status in (("open sesame", 200), ("", 403), ("other", 403)):
            assert (
                httpx.post(record.url, content="SELECT 1", auth=("default", password)).status_code == status
            )
        process.terminate()
    refused = subprocess.run(
        [*command(tmp_path / "data", 0), "--host", "0.0.0.0"], capture_output=True, check=False
    )
    assert (refused.returncode, b"--password-file" in refused.stderr) == (2, True)


def test_the_command_is_complete(tmp_path):
    """What a supervisor runs names folder, port and owner."""
    words = command(tmp_path, 8123)
    assert words[:3] == [sys.executable, "-m", "compose.embedded.clickhouse"]
    assert words[3:] == ["--path", str(tmp_path), "--port", "8123", "--owner", str(os.getpid())]
