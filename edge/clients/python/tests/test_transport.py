"""Under an SDK: one unbroken stream over any cut. Each row of the retry matrix is a test here or in `test_matrix`."""

import itertools
import json
import time

import anyio
import pytest
from playing import AUTH, BODY, EVENTS, FAST, URL, WHOLE, Told, play
from scripted import GENERATION, Reply, Server, answer, cursor, refusal
from tokentrail_client import State, Store, Times, async_http_client, http_client


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize("how", [None, "ReadError", "RemoteProtocolError", "ReadTimeout"])
@pytest.mark.parametrize("at", range(4))
def test_a_cut_anywhere_is_not_seen_above(blocking, library, how, at):
    """FIN, RST, a broken body and silence, behind any event: the bytes above are those of the stream without a cut."""
    server = Server(Reply(tuple(WHOLE[:at]), then=how), Reply(tuple(WHOLE[at:])), library=library)
    response = play(server, blocking=blocking, library=library)
    assert response.content == b"".join(WHOLE)
    assert server.paths == ["POST /v1/chat/completions", f"GET {EVENTS}"]
    resumed = server.asked[1].headers
    assert resumed.get("last-event-id") == (cursor(at) if at else None)
    assert resumed["authorization"] == "Bearer k"
    assert "idempotency-key" not in resumed
    assert server.closed == server.streams


@pytest.mark.parametrize("at", range(1, len(b"".join(WHOLE)), 7))
def test_a_cut_within_a_frame_repeats_nothing(at):
    """Cut at any byte: only whole frames were handed up, and the frame that broke comes once, from the next connection."""
    stream = b"".join(WHOLE)
    whole = [i for i, end in enumerate(itertools.accumulate(map(len, WHOLE)), 1) if end <= at]
    rest = tuple(WHOLE[len(whole) :])
    server = Server(Reply((stream[:at],), then="ReadError"), Reply(rest))
    assert play(server).content == stream
    assert server.asked[1].headers.get("last-event-id") == (cursor(len(whole)) if whole else None)


def test_what_an_edge_sends_again_is_left_out():
    """An edge that begins too early in the stream repeats nothing above."""
    server = Server(Reply(tuple(WHOLE[:2]), then="ReadError"), Reply(tuple(WHOLE)))
    assert play(server).content == b"".join(WHOLE)


def test_heartbeats_and_heads_are_not_content():
    """Comments alone, a reconnect time and the resumed-from comment stand in frames that are handed up as they came."""
    first = b": tokentrail\n: heartbeat\n" + WHOLE[0]
    again = b": tokentrail\n" + b"retry: 2000\n: resumed from 1\n" + b"".join(WHOLE[1:])
    server = Server(Reply((first, b": heartbeat\n"), then="ReadTimeout"), Reply((again,)))
    assert play(server).content == first + again


def test_edges_are_asked_in_turn(blocking):
    """After each cut the next edge is asked, and the first again behind the last; the call's own address is the first."""
    server = Server(*(Reply(tuple(WHOLE[i : i + 1]), then="ReadError") for i in range(3)), Reply((WHOLE[3],)))
    edges = ["http://edge-2.test", "http://edge-3.test/v1/", "http://edge-1.test/v1"]
    assert play(server, blocking=blocking, edges=edges).content == b"".join(WHOLE)
    assert [r.url.host for r in server.asked] == ["edge-1.test", "edge-2.test", "edge-3.test", "edge-1.test"]
    assert all(r.headers["host"] == r.url.host for r in server.asked)


def test_states_of_a_stream_that_was_cut():
    """A cut pauses, a new connection resumes, the terminal completes; each move is told once, with its reason."""
    told = Told()
    server = Server(
        Reply(tuple(WHOLE[:2]), then="ReadError"), Reply(error="ConnectError"), Reply(tuple(WHOLE[2:]))
    )
    play(server, on_state=told)
    assert told.states == [
        "streaming", "paused", "resuming", "paused", "resuming", "streaming", "completed",
    ]  # fmt: skip
    assert told.moves[1][2] == "scripted ReadError"


def test_nothing_is_asked_after_the_terminal():
    """Behind the terminal a connection may break as it likes."""
    server = Server(Reply(tuple(WHOLE), then="ReadError"))
    assert play(server).content == b"".join(WHOLE)


def test_the_terminal_was_the_last_thing_received():
    """An edge that answers 204 says that there is nothing more: done."""
    told = Told()
    unnamed = (
        b"id: " + cursor(4).encode() + b'\ndata: {"error": "a string, which is no terminal that we know"}\n\n'
    )
    server = Server(Reply((*WHOLE[:3], unnamed)), Reply(status=204, headers={}))
    assert play(server, on_state=told).content == b"".join(WHOLE[:3]) + unnamed
    assert told.states[-1] == "completed"


def test_an_error_terminal_completes_with_its_code(tmp_path):
    """A numbered error is handed up and is the end: completed, with the code beside it."""
    failed = f'id: {cursor(2)}\ndata: {{"error": {{"code": "edge_lost", "message": "gone"}}}}\n\n'.encode()
    server = Server(Reply((WHOLE[0], failed)))
    with Store(tmp_path / "s.db") as store:
        assert play(server, store=store).content == WHOLE[0] + failed
        (session,) = store.sessions()
    assert (session.state, session.reason) == (State.COMPLETED, "edge_lost")


def test_the_log_is_away_for_a_while():
    """An error frame without an id that says log_unavailable is not handed up: the stream goes on at another edge."""
    away = b'data: {"error": {"code": "log_unavailable", "message": "wait"}}\n\n'
    server = Server(Reply((WHOLE[0], away)), Reply(tuple(WHOLE[1:])))
    assert play(server).content == b"".join(WHOLE)


def test_what_is_held_nowhere_is_said(tmp_path):
    """An error frame without an id that says resume_expired is handed up, and nothing is asked any more."""
    expired = b'data: {"error": {"code": "resume_expired", "message": "gone"}}\n\n'
    with Store(tmp_path / "s.db") as store:
        assert play(Server(Reply((WHOLE[0], expired))), store=store).content == WHOLE[0] + expired
        (session,) = store.sessions()
    assert (session.state, session.reason) == (State.CANCELLED, "resume_expired")


@pytest.mark.parametrize(
    ("code", "status"), [("cursor_invalid", 401), ("resume_expired", 410), ("not_found", 404)]
)
def test_a_resume_that_is_refused_is_a_connection_error(blocking, code, status):
    """401, 410 and the other 4xx of a resume: never again; the SDK gets its connection error with the code in it."""
    told = Told()
    server = Server(Reply((WHOLE[0],), then="ReadError"), refusal(code, status, x_should_retry="false"))
    with pytest.raises(server.flavour.http.RemoteProtocolError, match=code):
        play(server, blocking=blocking, on_state=told)
    assert told.moves[-1] == ("resuming", "cancelled", code)
    assert server.closed == server.streams


def test_a_resume_waits_as_it_is_told():
    """503 that says retryable: asked again, and not before its Retry-After."""
    waited = Told()
    refused = refusal("log_unavailable", 503, x_should_retry="true", retry_after_ms="30")
    server = Server(Reply((WHOLE[0],)), refused, Reply(tuple(WHOLE[1:])))
    begun = time.monotonic()
    assert play(server, on_state=waited).content == b"".join(WHOLE)
    assert time.monotonic() - begun >= 0.03
    assert "log_unavailable" in [reason for *_, reason in waited.moves]


def leave(server, *, blocking, **options):
    """Read one event of a stream, and close it."""
    options = {"times": FAST, "transport": server, **options}
    if blocking:
        with (
            http_client(**options) as client,
            client.stream("POST", URL, json=BODY, headers=AUTH) as response,
        ):
            assert next(response.iter_raw()) == WHOLE[0]
        return

    async def run():
        client = async_http_client(**options)
        async with client, client.stream("POST", URL, json=BODY, headers=AUTH) as response:
            assert await anext(response.aiter_raw()) == WHOLE[0]

    anyio.run(run)


def test_own_abort_never_resumes(blocking, tmp_path):
    """An application that closes its stream is not brought back: the generation is cancelled, and the store says why."""
    told = Told()
    server = Server(Reply(tuple(WHOLE[:3]), then="ReadError"), answer({"state": "cancelling"}, 202))
    with Store(tmp_path / "s.db") as store:
        leave(server, blocking=blocking, on_state=told, store=store)
        (session,) = store.sessions()
    assert told.moves[-1] == ("streaming", "cancelled", "abort")
    assert (session.last_event_id, session.state, session.reason) == (cursor(1), "cancelled", "abort")
    assert server.paths[1:] == [f"POST /v1/generations/{GENERATION}/cancel"]
    assert server.asked[1].headers["authorization"] == "Bearer k"
    assert server.closed == server.streams == 2


@pytest.mark.parametrize("how", ["ConnectError", "ReadTimeout"])
def test_a_cancel_that_does_not_arrive_is_no_error(blocking, how):
    """Leaving never fails: what the cancel does not reach ends with its grace time."""
    leave(Server(Reply(tuple(WHOLE)), Reply(error=how)), blocking=blocking)


def test_leaving_may_be_no_cancel(blocking):
    """Where the application says so, closing a stream asks nothing more."""
    server = Server(Reply(tuple(WHOLE)))
    leave(server, blocking=blocking, cancel_on_close=False)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("chat/completions", b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'),
        ("messages", b'event: message_delta\ndata: {"delta": {"stop_reason":"end_turn"}}\n\n'),
    ],
)
def test_leaving_behind_the_last_word_is_no_cancel(path, last):
    """An application that stops at the finish reason, before the protocol's end mark, has had its whole answer."""
    server = Server(Reply((f"id: {cursor(1)}\n".encode() + last,)))
    url = f"http://edge-1.test/v1/{path}"
    with (
        http_client(times=FAST, transport=server) as client,
        client.stream("POST", url, json=BODY) as response,
    ):
        assert last in next(response.iter_raw())
    assert len(server.asked) == 1


def test_words_about_a_finish_are_none():
    """A text that quotes a finish reason, and a chunk whose finish reason is null, end nothing: leaving there cancels."""
    said = json.dumps({"choices": [{"delta": {"content": '"finish_reason": "stop"'}, "finish_reason": None}]})
    server = Server(Reply((f"id: {cursor(1)}\ndata: {said}\n\n".encode(),)), answer({}, 202))
    with (
        http_client(times=FAST, transport=server) as client,
        client.stream("POST", URL, json=BODY) as response,
    ):
        next(response.iter_raw())
    assert len(server.asked) == 2


def test_a_cancelled_task_cancels_its_generation():
    """A task that is cancelled while it waits for an event leaves its stream: the cancel is sent all the same."""

    class Silent(Server):
        async def handle_async_request(self, request):
            response = await super().handle_async_request(request)
            self.seen.set()
            return response

    async def run():
        server = Silent(Reply(tuple(WHOLE[:1])), answer({}, 202))
        server.seen = anyio.Event()
        hangs = Times(idle_s=5, backoff_s=1000, backoff_max_s=1000)

        async def read():
            async with async_http_client(times=hangs, transport=server) as client:
                await client.post(URL, json=BODY)

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await server.seen.wait()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        return server.paths

    assert anyio.run(run)[-1] == f"POST /v1/generations/{GENERATION}/cancel"


def test_a_reader_that_stops_at_the_terminal_has_not_aborted():
    """The SDKs close a stream behind its end mark without reading on: that is completed."""
    told = Told()
    server = Server(Reply((b"".join(WHOLE),)))
    with (
        http_client(times=FAST, transport=server, on_state=told) as client,
        client.stream("POST", URL, json=BODY) as response,
    ):
        assert b"[DONE]" in next(response.iter_raw())
    assert told.states == ["streaming", "completed"]
