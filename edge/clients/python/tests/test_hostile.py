"""What goes wrong around a session: its store, its server, its reader. Nothing is lost, repeated, or ended for good."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from playing import FAST, Told, play
from playing import WHOLE as CHAT
from scripted import GENERATION, HEADERS, Reply, Server, answer, cursor, delta, native
from test_sessions import BEGUN, DELTAS, LAST, START, STREAM, read
from tokentrail_client import Client, SessionLost, State, Store, StoreError, Times

PAGE = Reply((b"<html>sign in</html>",), headers={"content-type": "text/html"})
OTHERS = Reply(tuple(STREAM), headers=HEADERS | {"x-generation-id": GENERATION.replace("0193", "0194")})


def fill(store):
    """Leave no room: the file may not grow any more, as on a full disk."""
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")


LONG = [delta(seq, "x" * 9000) for seq in range(1, 4)]


def test_a_full_disk_ends_the_session_and_not_the_generation(blocking, tmp_path):
    """What cannot be stored is not handed over; the reason is told, nobody is cancelled, and later the rest can be had."""
    told = Told()
    with Store(tmp_path / "s.db") as store:
        store.begin("mine", "native", [])
        fill(store)
        server = Server(BEGUN, Reply((START, *LONG, LAST)))
        with pytest.raises(SessionLost, match="full") as caught:
            read(server, blocking, store=store, session="mine", on_state=told)
        assert (caught.value.reason, caught.value.text) == ("store_failed", "")
        assert told.moves[-1] == ("streaming", "cancelled", "store_failed")
        assert server.closed == server.streams
        store._db.execute("PRAGMA max_page_count = 1000000")
        again = Server(Reply((START, *LONG, LAST)))
        items, _ = read(again, blocking, store=store, session="mine")
        assert [item.cursor for item in items] == [cursor(seq) for seq in range(1, 5)]
        assert again.paths == [f"GET /v1/generations/{GENERATION}/events"]


def test_under_an_sdk_a_store_that_fails_is_a_connection_error(blocking, tmp_path):
    """The SDK is told in its own words; its generation runs on, although closing would cancel it."""
    with Store(tmp_path / "s.db") as store:
        server = Server(Reply((CHAT[0], *CHAT[1:])))
        write = store.write

        def failing(kept):
            if any(one.frames for one in kept):
                raise StoreError("the sessions' store: database is locked")
            write(kept)

        store.write = failing
        with pytest.raises(server.flavour.http.RemoteProtocolError, match=r"store_failed.*locked"):
            play(server, blocking=blocking, store=store)
        (session,) = store.sessions()
    assert server.paths == ["POST /v1/chat/completions"]
    assert (session.state, session.reason) == (State.CANCELLED, "store_failed")


def test_a_file_that_somebody_holds_is_said(blocking, tmp_path, monkeypatch):
    """A store that another process holds for too long is an error with its name, before anything is asked for."""
    monkeypatch.setattr("tokentrail_client.store.BUSY_S", 0.05)
    with Store(tmp_path / "s.db") as store:
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        server = Server()
        with pytest.raises(StoreError, match=r"s\.db: database is locked"):
            read(server, blocking, store=store, session="mine")
        with pytest.raises(server.flavour.http.RemoteProtocolError, match="store_failed"):
            play(server, blocking=blocking, store=store)
        other.close()
        assert len(read(Server(BEGUN, Reply(tuple(STREAM))), blocking, store=store, session="mine")[0]) == 4


@pytest.mark.parametrize("what", ["text", "folder", "nowhere"])
def test_what_is_no_store_is_refused(tmp_path, what):
    """A file of another kind, a folder, a place that there is not: an error that names it, and the file is left alone."""
    path = {"text": tmp_path / "notes.txt", "folder": tmp_path, "nowhere": tmp_path / "no" / "s.db"}[what]
    (tmp_path / "notes.txt").write_text("not a database at all, but somebody's notes " * 99)
    with pytest.raises(StoreError, match=path.name):
        Store(path)
    assert (tmp_path / "notes.txt").read_text().startswith("not a database")


PROCESS = """
import sys
from scripted import Reply, Server
from test_sessions import BEGUN, STREAM
from tokentrail_client import Client, Store

class Edge(Server):
    def reply(self, request, stream):
        self.replies = [BEGUN if request.method == "POST" else Reply(tuple(STREAM))]
        return super().reply(request, stream)

path, name = sys.argv[1:]
with Client("http://edge.test", "k", store=Store(path), transport=Edge()) as client:
    for item in client.stream("/chat/completions", {"model": "m"}, session=name):
        print(item.cursor, flush=True)
"""


@pytest.mark.parametrize("names", [("one", "one", "one"), ("one", "two", "three")])
def test_processes_share_a_store(tmp_path, names):
    """Three at once on a new file, in one session or in their own: each is handed everything once, the journal is whole."""
    path, tests = tmp_path / "s.db", Path(__file__).parent
    environ = {"PYTHONPATH": f"{tests}:{tests}/.."}
    command = [sys.executable, "-c", PROCESS, path]
    running = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True, env=environ) for name in names
    ]
    for process in running:
        said, _ = process.communicate(timeout=60)
        assert (process.returncode, said.split()) == (0, [cursor(seq) for seq in range(1, 5)])
    with Store(path) as store:
        assert {session.session for session in store.sessions()} == set(names)
        for name in names:
            assert [frame.seq for frame in store.events(name)] == list(range(5))
            assert store.get(name).state is State.COMPLETED


OPENS = """
import sys
from tokentrail_client.store import Store

print("ready", flush=True)
sys.stdin.readline()
for path in sys.argv[1:]:
    Store(path).close()
"""


def test_processes_open_new_stores_at_the_same_moment(tmp_path):
    """Several that begin the same new files at once all have them: SQLite refuses a change of mode without waiting."""
    command = [sys.executable, "-c", OPENS, *(tmp_path / f"{nth}.db" for nth in range(60))]
    environ = {"PYTHONPATH": str(Path(__file__).parents[1])}
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ) for _ in range(6)]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=60)
        assert process.returncode == 0


@pytest.mark.parametrize(
    "wrong", [PAGE, OTHERS, Reply((b"{}",), headers={"content-type": "application/json"})]
)
def test_what_is_not_this_stream_is_asked_for_again(blocking, wrong):
    """A page, another generation's stream, JSON in place of the events: nothing of it is taken, the next try is."""
    server = Server(BEGUN, Reply((START, DELTAS[0]), then="ReadError"), wrong, Reply((*DELTAS[1:], LAST)))
    items, session = read(server, blocking)
    assert ("".join(item.text for item in items[:-1]), session.state) == ("one two three", State.COMPLETED)
    assert server.asked[-1].headers["last-event-id"] == cursor(1)


def test_a_server_that_is_no_edge_is_named(blocking):
    """Who answers every call with a page is no edge, and is told as what it sends."""
    server = Server(*[PAGE] * FAST.call_tries)
    with pytest.raises(SessionLost, match="200 text/html") as caught:
        read(server, blocking)
    assert caught.value.reason == "not_an_edge"


def test_a_page_is_no_answer(blocking):
    """A call without a stream that was cut is answered by its own result only, not by a proxy's page."""
    whole = {"choices": [{"message": {"content": "hi"}}]}
    cut = Reply(
        (b'{"cho',),
        headers={"content-type": "application/json", "x-generation-id": GENERATION},
        then="ReadError",
    )
    server = Server(cut, PAGE, answer(whole, x_generation_id=GENERATION))
    assert play(server, blocking=blocking, body={"model": "m", "messages": []}).json() == whole


def test_an_event_that_is_left_out_is_asked_for(blocking, tmp_path):
    """A server that skips an event is left, and the stream goes on behind what was there; the journal has no hole."""
    told = Told()
    with Store(tmp_path / "s.db") as store:
        server = Server(BEGUN, Reply((START, DELTAS[0], DELTAS[2], LAST)), Reply((*DELTAS[1:], LAST)))
        items, _ = read(server, blocking, store=store, session="mine", on_state=told)
        assert [frame.seq for frame in store.events("mine")] == list(range(5))
    assert [item.cursor for item in items] == [cursor(seq) for seq in range(1, 5)]
    assert ("streaming", "paused", "event_missing") in told.moves


@pytest.mark.parametrize("after", [f"2-17.9-{'k' * 22}", f"2-3.1002-{'k' * 22}", f"77-17.1077-{'k' * 22}"])
def test_the_cursor_of_another_stream_leaves_nothing_out(blocking, after):
    """A cursor that names another place, or one behind the end, is refused instead of hiding what was never taken."""
    with pytest.raises(SessionLost) as caught:
        read(Server(BEGUN, Reply(tuple(STREAM))), blocking, after=after)
    assert caught.value.reason == "foreign_cursor"


def test_a_cursor_that_was_signed_anew_is_the_same(blocking):
    """After a rotation of the secret the place counts, not the signature."""
    items, _ = read(Server(BEGUN, Reply(tuple(STREAM))), blocking, after=f"2-17.1002-{'z' * 22}")
    assert [item.cursor for item in items] == [cursor(3), cursor(4)]


def test_a_stream_without_a_terminal_is_no_end():
    """A server that ends every stream without a terminal is asked until the time-out; the text so far is there."""
    times = Times(idle_s=0.05, read_s=0.05, session_s=5, backoff_s=0.001, backoff_max_s=0.01)
    server = Server(BEGUN, Reply((START, *DELTAS)), *[Reply()] * 1000)
    with Client("http://edge.test", "k", times=times, transport=server) as client:
        session = client.stream("/chat/completions", {"model": "m"})
        with pytest.raises(SessionLost) as caught:
            list(session)
    assert (caught.value.reason, caught.value.text) == ("read_timeout", "one two three")


def test_a_retry_after_without_end_is_bounded(blocking):
    """503 with an hour of Retry-After, again and again: the session ends by its own bound, not by the server's."""
    busy = answer(
        {"error": {"code": "overloaded", "message": "later"}}, 503, retry_after="3600", x_should_retry="true"
    )
    times = Times(idle_s=0.1, read_s=0.1, session_s=5, backoff_s=0.001, backoff_max_s=0.01)
    server = Server(BEGUN, Reply((START,), then="ReadError"), busy, busy)
    with (
        Client("http://edge.test", "k", times=times, transport=server) as client,
        pytest.raises(SessionLost) as caught,
    ):
        list(client.stream("/chat/completions", {"model": "m"}))
    assert caught.value.reason == "read_timeout"
    assert len(server.replies) == 1


def test_a_terminal_of_a_lost_range_is_an_end(blocking):
    """An error may follow a range that the log has lost: it is the end, not a hole to ask about."""
    failed = native(9, "generation_error", code="edge_lost", message="gone", retryable=True)
    server = Server(BEGUN, Reply((START, DELTAS[0], failed)))
    with pytest.raises(Exception, match="edge_lost"):
        read(server, blocking)
    assert len(server.asked) == 2
