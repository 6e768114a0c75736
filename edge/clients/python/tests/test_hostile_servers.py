"""Servers and proxies that do what they should not: bounds hold, keys stay, nothing is lost or handed over twice."""

import itertools
import json

import pytest
from playing import FAST, WHOLE, Told, play
from scripted import GENERATION, HEADERS, Reply, Server, chat, cursor, delta, refusal
from test_course import CUT, Play
from test_sessions import BEGUN, DELTAS, START, STREAM, read
from tokentrail_client import SessionLost, Store, Times
from tokentrail_client.acks import Acks, repairs
from tokentrail_client.effects import Head

FLOOD = b"x" * 65_536
PAGE = Reply((b"<html>sign in</html>",), headers={"content-type": "text/html; charset=utf-8"})
AWAY = {"location": "http://elsewhere.test/login"}
BRIEF = Times(idle_s=0.05, read_s=0.05, session_s=5, backoff_s=0.001, backoff_max_s=0.01)


def cut(reply):
    """Half of an answer, then the connection is gone."""
    (body,) = reply.chunks
    return Reply((body[: len(body) // 2],), reply.status, reply.headers, then="ReadError")


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_refusal_that_was_cut_is_asked_for_again(blocking, status):
    """The same call under the same key; the SDK is handed the refusal whole, and judges it as any other."""
    real = refusal("real", status, x_should_retry="false", x_generation_id=GENERATION)
    server = Server(cut(real), cut(real), real)
    response = play(server, blocking=blocking)
    assert (response.status_code, response.json()["error"]["code"]) == (status, "real")
    assert server.paths == ["POST /v1/chat/completions"] * 3
    assert len({r.headers["idempotency-key"] for r in server.asked}) == 1
    assert server.closed == server.streams


def test_a_refusal_that_never_comes_whole_goes_up_by_its_head(blocking):
    """After the tries of a call its status and its headers are what is known, in a form that every SDK reads."""
    real = refusal("real", 503, x_should_retry="true", x_request_id="r-7")
    server = Server(*[cut(real)] * FAST.call_tries)
    response = play(server, blocking=blocking)
    said = response.json()
    assert (response.status_code, said["type"], said["error"]["code"]) == (503, "error", "refusal_cut")
    assert response.headers["x-request-id"] == "r-7"
    assert response.headers.get_list("content-type") == ["application/json"]
    assert "HTTP 503" in said["error"]["message"]


@pytest.mark.parametrize(("retry_after", "tries"), [("7", 2), ("3600", 1)])
def test_a_refusal_that_was_cut_is_not_asked_for_before_its_time(retry_after, tries):
    """Its Retry-After is waited for where it is within our patience; a longer one is the caller's to wait for."""
    head = Head(429, {"retry-after": retry_after})
    played = Play(*[head, CUT, head, b"{}"][: 2 * tries]).run()
    assert played.waited == [7.0] * (tries - 1)
    assert (played.answer.head, played.answer.own) == (head, tries == 1)


def test_a_refusal_without_end_is_read_to_its_bound(blocking):
    """A body that never ends is left after a mebibyte, once, and its head is told."""
    pieces = itertools.count()
    flood = (FLOOD for _ in pieces)
    server = Server(Reply(flood, 500, {"content-type": "text/html"}))
    response = play(server, blocking=blocking)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "refusal_cut")
    assert next(pieces) <= 20
    assert server.closed == 1


def test_a_refusal_that_drips_is_left_in_time():
    """Bytes that come one by one, each in time, do not keep a body open: the whole of it has a bound, too."""
    drops = (b" " for _ in itertools.count())
    times = Times(idle_s=0.02, read_s=5, session_s=5, backoff_s=0.001, call_tries=1)
    response = play(Server(Reply(drops, 500, {})), times=times)
    assert "no end of the body within 0.02 s" in response.json()["error"]["message"]


def test_a_401_in_the_middle_of_a_resume_says_why(blocking):
    """A key that was withdrawn ends the session with the edge's own words, also where they came whole at a second try only."""
    gone = refusal("invalid_api_key", 401)
    server = Server(BEGUN, Reply((START, DELTAS[0]), then="ReadError"), cut(gone), gone)
    with pytest.raises(SessionLost, match="it is invalid_api_key") as caught:
        read(server, blocking)
    assert (caught.value.reason, caught.value.text) == ("invalid_api_key", "one ")
    endless = Server(BEGUN, Reply((START,), then="ReadError"), *[cut(gone)] * 99)
    with pytest.raises(SessionLost, match="http_401"):
        read(endless, blocking)
    assert len(endless.asked) <= 2 + FAST.call_tries


def test_a_page_is_no_answer_to_a_call(blocking):
    """Under an SDK, too: a page with status 200 would be a stream without a word. The call is sent again, then named."""
    server = Server(PAGE, PAGE, Reply(tuple(WHOLE)))
    assert play(server, blocking=blocking).content == b"".join(WHOLE)
    assert len({r.headers["idempotency-key"] for r in server.asked}) == 1
    server = Server(*[PAGE] * FAST.call_tries)
    with pytest.raises(server.flavour.http.RemoteProtocolError, match=r"not_an_edge.*200 text/html"):
        play(server, blocking=blocking)


def test_no_redirect_takes_a_key_along(blocking):
    """Neither a call nor a resume follows one, whatever the client above would do; where it points is told."""
    server = Server(Reply(status=307, headers=AWAY), Reply((WHOLE[0],), then="ReadError"),
                    Reply(status=302, headers=AWAY), Reply(tuple(WHOLE[1:])))  # fmt: skip
    response = play(server, blocking=blocking, headers={"x-api-key": "secret"})
    assert response.content == b"".join(WHOLE)
    lasting = Server(*[Reply(status=308, headers=AWAY)] * FAST.call_tries)
    with pytest.raises(
        lasting.flavour.http.RemoteProtocolError, match=r"a redirect to http://elsewhere\.test"
    ):
        play(lasting, blocking=blocking, headers={"x-api-key": "secret"})
    iterator = Server(*[Reply(status=302, headers=AWAY)] * FAST.call_tries)
    with pytest.raises(SessionLost, match="a redirect to") as caught:
        read(iterator, blocking)
    assert caught.value.reason == "not_an_edge"
    asked = server.asked + lasting.asked + iterator.asked
    assert {request.url.host for request in asked} == {"edge-1.test"}


def test_ids_that_go_backwards_bring_nothing_twice(blocking):
    """Old events between new ones are left out; a stream of nothing else is left in time."""
    server = Server(BEGUN, Reply((*STREAM[:3], STREAM[1], START, STREAM[2], *STREAM[3:])))
    items, _ = read(server, blocking)
    assert [item.cursor for item in items] == [cursor(seq) for seq in (1, 2, 3, 4)]
    server = Server(Reply(itertools.chain(WHOLE[:2], itertools.repeat(WHOLE[0]))), Reply())
    with pytest.raises(server.flavour.http.ReadTimeout, match="read_timeout"):
        play(server, blocking=blocking, times=BRIEF)
    assert server.paths[0] == "POST /v1/chat/completions"


@pytest.mark.parametrize("piece", [FLOOD, b": and so on\n" * 5_000], ids=["a line", "comments"])
def test_a_frame_without_end_is_left_at_its_bound(blocking, piece):
    """Neither a line nor a frame of comments that never ends is kept beyond the bound of a frame."""
    pieces = itertools.count()
    server = Server(Reply(itertools.chain(WHOLE[:1], (piece for _ in pieces))))
    with pytest.raises(server.flavour.http.RemoteProtocolError, match="frame_too_large"):
        play(server, blocking=blocking)
    assert next(pieces) < 400
    assert server.paths[0] == "POST /v1/chat/completions"


@pytest.mark.parametrize("packed", ["gzip, gzip", "br", "zstd"])
def test_what_unpacks_without_bound_is_not_unpacked(blocking, packed):
    """We ask for nothing packed; what could grow without a bound is a cut, before a byte of it is read."""
    bomb = Reply((b"\x1f\x8b",), headers=HEADERS | {"content-encoding": packed})
    server = Server(Reply((WHOLE[0],), then="ReadError"), bomb, Reply(tuple(WHOLE[1:])))
    told = Told()
    assert play(server, blocking=blocking, on_state=told).content == b"".join(WHOLE)
    assert any(packed in str(reason) for _, _, reason in told.moves)


def test_an_answer_in_one_piece_has_a_bound(blocking, monkeypatch):
    """A call without a stream whose answer does not end is left, and nothing of it is asked for again."""
    monkeypatch.setattr("tokentrail_client.course.ANSWER_BYTES_MAX", 500_000)
    endless = Reply(
        itertools.repeat(FLOOD), headers={"content-type": "application/json", "x-generation-id": GENERATION}
    )
    server = Server(endless)
    with pytest.raises(server.flavour.http.RemoteProtocolError, match="answer_too_large"):
        play(server, blocking=blocking, body={"model": "m", "messages": []})


@pytest.mark.parametrize("strange", ["9" * 5_000, "9" * 30, "-1", "x"])
def test_an_id_that_is_no_edges_is_no_place(blocking, tmp_path, strange):
    """Such an event is handed up, moves nothing, and is not what a resume asks behind."""
    odd = f"id: {strange}-17.1-k\ndata: odd\n\n".encode()
    server = Server(Reply((WHOLE[0], odd), then="ReadError"), Reply(tuple(WHOLE[1:])))
    with Store(tmp_path / "s.db") as store:
        response = play(server, blocking=blocking, store=store)
        assert store.sessions()[0].last_event_id == cursor(4)
    assert response.content == b"".join((WHOLE[0], odd, *WHOLE[1:]))
    assert server.asked[1].headers["last-event-id"] == cursor(1)


@pytest.mark.parametrize(
    "data", ["not JSON", "[" * 100_000, "[1]", '{"parts": [7]}', '{"parts": [{"type": "text", "text": 7}]}']
)
def test_an_event_that_nobody_can_read_is_said(blocking, data):
    """It is an error with its id and the text so far, neither left out nor an error of Python's."""
    odd = f"event: delta\nid: {cursor(2)}\ndata: {data}\n\n".encode()
    with pytest.raises(SessionLost) as caught:
        read(Server(BEGUN, Reply((START, DELTAS[0], odd, *STREAM[3:]))), blocking)
    assert (caught.value.reason, caught.value.text) == ("unreadable_event", "one ")


def test_a_generation_without_end_has_a_bound(blocking, monkeypatch):
    """What a generation says is held in memory: beyond the bound the session ends, with what came before."""
    monkeypatch.setattr("tokentrail_client.items.TEXT_CHARS_MAX", 500)
    endless = (delta(seq, "x" * 100) for seq in itertools.count(1))
    with pytest.raises(SessionLost, match="above 500 characters") as caught:
        read(Server(BEGUN, Reply(itertools.chain([START], endless))), blocking)
    assert (caught.value.reason, caught.value.text) == ("answer_too_large", "x" * 500)


def test_an_error_nested_without_end_is_no_error_of_ours(blocking):
    """A frame that looks like an error, and cannot be read, is handed up to the SDK as it came."""
    odd = chat(2, "x")[:-2] + b'\ndata: {"error": ' + b"[" * 100_000 + b"\n\n"
    server = Server(Reply((WHOLE[0], odd, *WHOLE[2:])))
    assert play(server, blocking=blocking).content == b"".join((WHOLE[0], odd, *WHOLE[2:]))


def test_what_is_sent_again_must_fit():
    """An event that no store could hold repairs nothing; of what an edge wants to send again there is a bound."""
    half = '{"seq": 1, "event": "delta", "data": "\\ud800"}'
    wrong = [
        half,
        "[" * 100_000,
        '{"seq": 1e400, "data": ""}',
        json.dumps({"seq": 10**30, "data": "x"}),
        '{"seq": "1", "data": ""}',
    ]
    right = json.dumps({"seq": 1, "event": None, "data": "ü"})
    assert [repair.data for repair in repairs([*wrong, right])] == ["ü"]
    acks = Acks()
    acks.answered((200, json.dumps({"nack": [[seq, seq] for seq in range(9_999)]}).encode()), 0)
    assert len(acks.lacking().split(",")) == 64
    for body in (b"[" * 100_000, b'{"nack": [[1, "x"]]}', b'{"nack": 7}'):
        acks.answered((200, body), 0)
        assert acks.lacking() is None


def test_an_id_is_a_name_and_no_path(blocking):
    """Whatever a generation is called, it is asked for below the generations."""
    server = Server(Reply((WHOLE[0],), headers=HEADERS | {"x-generation-id": "a/../../keys?x"}, then="ReadError"),
                    Reply(tuple(WHOLE[1:]), headers=HEADERS | {"x-generation-id": "a/../../keys?x"}))  # fmt: skip
    play(server, blocking=blocking)
    assert server.paths[1] == "GET /v1/generations/a%2F..%2F..%2Fkeys%3Fx/events?dialect=openai.chat"
