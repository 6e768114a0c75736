"""Under an SDK: the call before its stream, calls that ask for no stream, the time-outs, the store."""

import itertools
import zlib

import pytest
from playing import BODY, FAST, URL, WHOLE, Told, play
from scripted import GENERATION, HEADERS, Reply, Server, answer, chat, cursor, refusal
from tokentrail_client import State, Store, Times, http_client


def test_before_the_head_the_call_is_sent_again(blocking):
    """No answer at all: the same call, byte for byte, with the same Idempotency-Key, at the next edge."""
    server = Server(Reply(error="ConnectError"), Reply(error="ReadTimeout"), Reply(tuple(WHOLE)))
    assert play(server, blocking=blocking, edges=["http://edge-2.test"]).content == b"".join(WHOLE)
    assert len({r.headers["idempotency-key"] for r in server.asked}) == 1
    assert len({r.content for r in server.asked}) == 1
    assert [r.url.host for r in server.asked] == ["edge-1.test", "edge-2.test", "edge-1.test"]


def test_no_edge_at_all_is_the_librarys_own_error(blocking):
    """A call that nobody answers fails as it does without us, after its tries."""
    told = Told()
    server = Server(*[Reply(error="ConnectError")] * FAST.call_tries)
    with pytest.raises(server.flavour.http.ConnectError):
        play(server, blocking=blocking, on_state=told)
    assert told.moves[-1][1:] == ("cancelled", "scripted ConnectError")


def test_a_refusal_is_the_sdks_to_judge(blocking):
    """Before the stream a refusal is handed up as it is, once: the SDK obeys x-should-retry and Retry-After itself."""
    server = Server(refusal("rate_limited", 429, x_should_retry="true", retry_after="7"))
    response = play(server, blocking=blocking)
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    assert response.json()["error"]["code"] == "rate_limited"


def test_a_repeated_call_keeps_its_key():
    """The SDK's own retry of a call has the key of the call; another call, even of the same words, has another."""
    server = Server(*[refusal("overloaded", 503, x_should_retry="true")] * 2, answer({}), answer({}))
    with http_client(times=FAST, transport=server) as client:
        for retries in ("0", "1", "2", "0"):
            client.post(URL, json=BODY, headers={"x-stainless-retry-count": retries})
    keys = [r.headers["idempotency-key"] for r in server.asked]
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_nobody_repeats_the_call_of_another():
    """The same words under another API key are another call, also when both are sent again."""
    server = Server(*[refusal("overloaded", 503, x_should_retry="true")] * 2, answer({}), answer({}))
    with http_client(times=FAST, transport=server) as client:
        for who, retries in (("a", "0"), ("b", "0"), ("a", "1"), ("b", "1")):
            client.post(URL, json=BODY, headers={"x-api-key": who, "x-stainless-retry-count": retries})
    keys = [r.headers["idempotency-key"] for r in server.asked]
    assert keys[:2] == keys[2:]
    assert keys[0] != keys[1]


def test_a_key_of_the_applications_own_is_kept():
    """An Idempotency-Key that the application gives is sent as it is."""
    server = Server(Reply(error="ConnectError"), answer({}))
    play(server, headers={"Idempotency-Key": "order-7"})
    assert [r.headers["idempotency-key"] for r in server.asked] == ["order-7"] * 2


PLAIN = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
NAMED = {"content-type": "application/json", "x-generation-id": GENERATION}


def test_a_plain_answer_that_was_cut_is_fetched(blocking):
    """A call without a stream whose answer broke: its result, asked for until it is there, on any edge."""
    whole = answer({"choices": []}, x_generation_id=GENERATION)
    running = answer({"state": "running"}, 202)
    broken = Reply((b'{"choi',), headers=NAMED, then="RemoteProtocolError")
    server = Server(broken, running, Reply(error="ConnectError"), Reply(status=502, headers={}), whole)
    response = play(server, blocking=blocking, body=PLAIN)
    assert response.json() == {"choices": []}
    assert server.paths == ["POST /v1/chat/completions", *[f"GET /v1/generations/{GENERATION}/result"] * 4]


def test_a_plain_answer_without_a_name_is_asked_again():
    """Without a generation id the same call is sent again, under the same key."""
    broken = Reply((b'{"choi',), headers={"content-type": "application/json"}, then="RemoteProtocolError")
    server = Server(broken, answer({"choices": []}))
    assert play(server, body=PLAIN).json() == {"choices": []}
    assert len({r.headers["idempotency-key"] for r in server.asked}) == 1


def test_a_failed_result_is_the_answer():
    """A generation that ended in an error: its refusal is handed up with what it says about trying again."""
    broken = Reply((b"{",), headers=NAMED, then="ReadError")
    server = Server(broken, refusal("overloaded", 503, x_should_retry="true"))
    response = play(server, body=PLAIN)
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "true")


def test_a_stream_of_somebody_else_passes_as_it_is(blocking):
    """Without X-Generation-Id nothing can be resumed: the stream and its cut are handed on."""
    bare = {"content-type": "text/event-stream"}
    server = Server(Reply((b"data: x\n\n", b"data: [DONE]\n\n"), headers=bare))
    assert play(server, blocking=blocking).content == b"data: x\n\ndata: [DONE]\n\n"
    cut = Server(Reply((b"data: x\n\n",), headers=bare, then="ReadError"))
    with pytest.raises(cut.flavour.http.ReadError):
        play(cut, blocking=blocking)


def test_other_requests_pass_untouched(blocking):
    """What is no call is sent as it came, once, without a key."""
    server = Server(answer({"data": []}))
    assert play(server, blocking=blocking, url="http://edge-1.test/v1/embeddings").json() == {"data": []}
    assert "idempotency-key" not in server.asked[0].headers


def test_a_silent_generation_ends_in_time():
    """No event for the read time, on however many connections, is the SDK's own time-out."""
    told = Told()
    server = Server(Reply((WHOLE[0],)), *[Reply((b": heartbeat\n",), then="ReadTimeout")] * 5000)
    times = Times(idle_s=0.01, read_s=0.05, backoff_s=0.001, backoff_max_s=0.002)
    with pytest.raises(server.flavour.http.ReadTimeout, match="read_timeout"):
        play(server, times=times, on_state=told)
    assert told.moves[-1][1:] == ("cancelled", "read_timeout")


def test_a_session_ends_in_time():
    """A session that is over its time stops, whatever still comes."""
    frames = (chat(seq, "x") for seq in itertools.count(1))
    server = Server(Reply(frames))
    with pytest.raises(server.flavour.http.ReadTimeout, match="session_timeout"):
        play(server, times=Times(idle_s=0.05, read_s=0.05, session_s=0.05))


def test_the_store_is_ahead_of_what_is_handed_up(tmp_path):
    """When a frame is handed up its id is stored already."""
    server = Server(Reply(tuple(WHOLE[:2]), then="ReadError"), Reply(tuple(WHOLE[2:])))
    with Store(tmp_path / "s.db") as store, http_client(times=FAST, transport=server, store=store) as client:
        with client.stream("POST", URL, json=BODY) as response:
            for seq, _ in enumerate(response.iter_raw(), 1):
                assert store.sessions()[0].last_event_id == cursor(seq)
        (session,) = store.sessions()
    assert (session.generation_id, session.dialect) == (GENERATION, "openai.chat")
    assert (session.state, session.roots) == (State.COMPLETED, ("http://edge-1.test/v1",))
    assert session.token == f"resumption_id={GENERATION}&seq=4&sig={'k' * 22}"


def test_a_wrong_kind_of_answer_is_no_stream():
    """A page of a proxy in place of a resumed stream is a cut: it is asked again, and nothing of the page is handed up."""
    page = Reply((b"<html>",), headers={"content-type": "text/html"})
    server = Server(Reply((WHOLE[0],), then="ReadError"), page, page, Reply(tuple(WHOLE[1:])))
    assert play(server).content == b"".join(WHOLE)


def test_headers_go_on_as_they_came():
    """The SDK sees the edge's own headers, without those that speak of bytes on the wire."""
    headers = {**HEADERS, "x-request-id": "r1", "content-length": "99999"}
    response = play(Server(Reply(tuple(WHOLE), headers=headers)))
    assert response.headers["x-request-id"] == "r1"
    assert response.headers["x-generation-id"] == GENERATION


def test_the_callers_own_read_time_out_is_the_shorter_one():
    """An application that waits for less than we would gets its time-out when it said, and one that says none gets ours."""
    server = Server(*[Reply((b": heartbeat\n",), then="ReadTimeout")] * 5000)
    http = server.flavour.http
    with (
        http_client(times=FAST, transport=server, timeout=http.Timeout(0.05)) as client,
        pytest.raises(http.ReadTimeout, match=r"no event for 0\.05 s"),
    ):
        client.post(URL, json=BODY)
    assert server.asked[0].extensions["timeout"]["read"] == 0.05
    server = Server(Reply(tuple(WHOLE)))
    with http_client(times=Times(idle_s=7, read_s=1200), transport=server) as client:
        assert client.timeout.read == 1200
        client.post(URL, json=BODY, timeout=None)
    assert server.asked[0].extensions["timeout"]["read"] == 7


def test_a_stream_that_somebody_compressed_is_read_all_the_same():
    """We ask for no compression; what a proxy compresses nevertheless is decoded, and broken compression is a cut."""
    headers = {**HEADERS, "content-encoding": "gzip"}
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(b"".join(WHOLE[:2])) + packer.flush(zlib.Z_SYNC_FLUSH)
    server = Server(Reply((packed, b"\xff" * 50), headers=headers), Reply(tuple(WHOLE[2:])))
    response = play(server)
    assert response.content == b"".join(WHOLE)
    assert "content-encoding" not in response.headers
    assert [r.headers["accept-encoding"] for r in server.asked] == ["identity"] * 2


@pytest.mark.parametrize("how", ["ProxyError", "ConnectTimeout", "WriteError", "WriteTimeout"])
def test_every_way_to_lose_a_connection_is_one(how):
    """However a connection fails before an answer, the call is sent again."""
    assert play(Server(Reply(error=how), Reply(tuple(WHOLE)))).content == b"".join(WHOLE)


@pytest.mark.parametrize("how", ["PoolTimeout", "LocalProtocolError", "UnsupportedProtocol"])
def test_what_is_the_callers_own_fault_is_told_at_once(how):
    """An address that nobody speaks, or too many connections, are no lost connections."""
    server = Server(Reply(error=how))
    with pytest.raises(getattr(server.flavour.http, how)):
        play(server)
