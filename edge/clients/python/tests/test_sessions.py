"""The plain iterators, blocking and not."""

import anyio
import pytest
from playing import FAST, Told
from scripted import GENERATION, Reply, Server, answer, cursor, delta, native
from tokentrail_client import AsyncClient, Client, End, GenerationFailed, SessionLost, State, Store, Text

BEGUN = answer({"generation_id": GENERATION}, 202, x_generation_id=GENERATION)
START, LAST = native(0, "message_start"), native(4, "message_end", finish_reason="stop")
DELTAS = [delta(seq, word) for seq, word in enumerate(["one ", "two ", "three"], 1)]
STREAM = [START, *DELTAS, LAST]
BODY = {"model": "m", "messages": []}
PATH = f"/v1/generations/{GENERATION}"


def read(server, blocking, *, upto=None, attach=False, cancel=False, **named):
    """Read a session to its end or to so many items: the items, and what is said of it."""
    options = {name: named.pop(name) for name in ("store", "on_state", "base_url", "acks") if name in named}
    options = {
        "base_url": "http://edge-1.test",
        "api_key": "k",
        "times": FAST,
        "transport": server,
        **options,
    }
    base, path = options.pop("base_url"), named.pop("path", "/chat/completions")

    def opened(client):
        return client.attach(GENERATION, **named) if attach else client.stream(path, BODY, **named)

    items = []
    if blocking:
        with Client(base, **options) as client, opened(client) as session:
            for item in session:
                items.append(item)
                if len(items) == upto:
                    break
            return items, session

    async def run():
        async with AsyncClient(base, **options) as client, opened(client) as session:
            async for item in session:
                items.append(item)
                if len(items) == upto:
                    break
            return items, session

    return anyio.run(run)


def test_a_generation_is_begun_named_and_read(blocking, tmp_path):
    """The call begins in the background under the session's name; then its native events are read to the end."""
    told, server = Told(), Server(BEGUN, Reply(tuple(STREAM)))
    with Store(tmp_path / "s.db") as store:
        items, session = read(server, blocking, store=store, session="mine", on_state=told)
        stored = store.get("mine")
    assert [item.text for item in items[:-1]] == ["one ", "two ", "three"]
    assert isinstance(items[-1], End)
    assert (session.text, session.end.finish_reason) == ("one two three", "stop")
    assert server.paths == ["POST /v1/chat/completions", f"GET {PATH}/events"]
    assert server.asked[0].headers["idempotency-key"] == "mine"
    assert server.asked[0].headers["prefer"] == "respond-async"
    assert told.states == ["streaming", "completed"]
    assert (stored.state, stored.generation_id, stored.last_event_id) == (
        State.COMPLETED,
        GENERATION,
        cursor(4),
    )
    assert server.closed == server.streams


def test_a_path_is_named_with_and_without_v1(blocking):
    """People copy paths from an edge's addresses; what is no call is refused before anything is asked."""
    server = Server(BEGUN, Reply(tuple(STREAM)))
    read(server, blocking, path="/v1/chat/completions")
    assert server.paths[0] == "POST /v1/chat/completions"
    with pytest.raises(ValueError, match="path is one of"):
        read(Server(), blocking, path="/v1/embeddings")


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("how", [None, "ReadError", "ReadTimeout", "RemoteProtocolError"])
def test_cuts_are_not_seen(blocking, at, how):
    """A cut behind any event, of any kind: the same items."""
    server = Server(BEGUN, Reply(tuple(STREAM[:at]), then=how), Reply(tuple(STREAM[at:])))
    items, session = read(server, blocking, base_url=["http://edge-1.test", "http://edge-2.test/v1"])
    assert session.text == "one two three"
    assert [item.cursor for item in items] == [cursor(seq) for seq in (1, 2, 3, 4)]
    assert server.asked[2].headers.get("last-event-id") == (cursor(at - 1) if at else None)
    assert server.asked[2].url.host == "edge-2.test"


@pytest.mark.parametrize("taken", range(5))
def test_a_session_goes_on_by_its_name(blocking, tmp_path, taken):
    """A session that was left is opened again by its name: what the application has not taken is handed over, once."""
    with Store(tmp_path / "s.db") as store:
        server = Server(BEGUN, Reply((b"".join(STREAM[:3]), *STREAM[3:])))
        items, _ = read(server, blocking, store=store, session="mine", upto=taken or 1)
        after = items[taken - 1].cursor if taken else None
        known = 3 if taken <= 2 else taken + 1
        rest = [Reply(tuple(STREAM[known:]))] if known < 5 else []
        server = Server(*rest)
        more, session = read(server, blocking, store=store, session="mine", after=after)
        assert [item.cursor for item in items[:taken] + more] == [cursor(seq) for seq in (1, 2, 3, 4)]
        assert session.text == "one two three"
        assert server.paths == [f"GET {PATH}/events"] * len(rest)
        assert [r.headers["last-event-id"] for r in server.asked] == [cursor(known - 1)] * len(rest)
        assert store.get("mine").state is State.COMPLETED


def test_a_generation_of_somebody_else_is_attached_to(blocking):
    """A generation is read by its id, and handed over from behind a cursor; its text is whole all the same."""
    server = Server(Reply(tuple(STREAM)))
    items, session = read(server, blocking, attach=True, after=cursor(2))
    assert [item.cursor for item in items] == [cursor(3), cursor(4)]
    assert session.text == "one two three"


def test_an_error_carries_the_text_so_far(blocking):
    """A generation that failed is COMPLETED, and its error has what came before it."""
    failed = native(3, "generation_error", code="stall_timeout", message="silent", finish_reason="timeout")
    told = Told()
    with pytest.raises(GenerationFailed) as caught:
        read(Server(BEGUN, Reply((*STREAM[:3], failed))), blocking, on_state=told)
    assert (caught.value.code, caught.value.text) == ("stall_timeout", "one two ")
    assert told.moves[-1] == ("streaming", "completed", "stall_timeout")


def test_what_cannot_be_resumed_carries_the_text_so_far(blocking):
    """A stream that is held nowhere any more is CANCELLED, with the code and the text that came."""
    expired = answer(
        {"error": {"code": "resume_expired", "message": "held nowhere"}}, 410, x_should_retry="false"
    )
    with pytest.raises(SessionLost) as caught:
        read(Server(BEGUN, Reply(tuple(STREAM[:3])), expired), blocking)
    assert (caught.value.reason, caught.value.text) == ("resume_expired", "one two ")


def test_what_a_hole_ends_carries_the_text_so_far(blocking):
    """The same said within a stream, by an error frame without an id."""
    hole = b'event: generation_error\ndata: {"error": {"code": "resume_expired", "message": "a hole"}}\n\n'
    with pytest.raises(SessionLost) as caught:
        read(Server(BEGUN, Reply((*STREAM[:2], hole))), blocking)
    assert (caught.value.reason, caught.value.text) == ("resume_expired", "one ")


def test_nobody_there_is_said(blocking):
    """No edge that answers: unreachable, after the tries."""
    with pytest.raises(SessionLost) as caught:
        read(Server(*[Reply(error="ConnectError")] * FAST.call_tries), blocking)
    assert caught.value.reason == "unreachable"


def test_leaving_is_an_abort(blocking, tmp_path):
    """A session that is left before its end is not brought back, and the store says so."""
    told = Told()
    with Store(tmp_path / "s.db") as store:
        server = Server(BEGUN, Reply(tuple(STREAM), then="ReadError"))
        read(server, blocking, store=store, session="mine", upto=2, on_state=told)
        assert told.moves[-1] == ("streaming", "cancelled", "abort")
        assert (store.get("mine").state, store.get("mine").reason) == (State.CANCELLED, "abort")


def test_a_server_that_only_streams_is_refused(blocking):
    """What answers the call with a stream at once begins nothing in the background: said, instead of misread."""
    with pytest.raises(SessionLost) as caught:
        read(Server(Reply(tuple(STREAM))), blocking)
    assert caught.value.reason == "not_supported"


def test_a_cancel_is_a_call(blocking):
    """A cancel is sent to the first edge that answers, with its mode and reason; its status is given back."""
    server = Server(Reply(error="ConnectError"), answer({"state": "cancelling"}, 202))
    edges = ["http://edge-1.test", "http://edge-2.test"]
    if blocking:
        with Client(edges, "k", transport=server) as client:
            assert client.cancel(GENERATION) == 202
    else:

        async def run():
            async with AsyncClient(edges, "k", transport=server) as client:
                assert await client.cancel(GENERATION) == 202

        anyio.run(run)
    assert server.paths == [f"POST {PATH}/cancel"] * 2
    assert server.asked[1].url.host == "edge-2.test"
    assert server.asked[1].content == b'{"mode": "soft", "reason": "user_abort"}'


def test_events_are_stored_before_they_are_handed_over(tmp_path):
    """When an item is handed over its event is in the journal."""
    server = Server(BEGUN, Reply(tuple(STREAM)))
    with (
        Store(tmp_path / "s.db") as store,
        Client("http://e.test", "k", store=store, transport=server) as client,
    ):
        session = client.stream("/chat/completions", BODY, session="mine")
        for item in session:
            assert store.events("mine")[-1].id == item.cursor
        assert isinstance(item, End | Text)


def test_an_unknown_path_is_refused():
    """Only the three dialects' calls can be begun."""
    with (
        Client("http://e.test", "k", transport=Server()) as client,
        pytest.raises(ValueError, match="/messages"),
    ):
        client.stream("/embeddings", BODY)


def test_several_loops_go_over_one_stream(blocking):
    """A loop that stopped goes on in the next one: no item comes twice, and the text is whole."""
    server, seen = Server(BEGUN, Reply(tuple(STREAM))), []
    if blocking:
        with (
            Client("http://e.test", "k", transport=server) as client,
            client.stream("/messages", BODY) as session,
        ):
            for item in session:
                seen.append(item)
                break
            seen.extend(session)
    else:

        async def run():
            client = AsyncClient("http://e.test", "k", transport=server)
            async with client, client.stream("/messages", BODY) as session:
                async for item in session:
                    seen.append(item)
                    break
                seen.extend([item async for item in session])
                return session

        session = anyio.run(run)
    assert [item.cursor for item in seen] == [cursor(seq) for seq in (1, 2, 3, 4)]
    assert session.text == "one two three"


def test_a_cursor_that_is_none_is_refused():
    """What is no cursor is said, instead of everything being handed over again."""
    with (
        Client("http://e.test", "k", transport=Server()) as client,
        pytest.raises(ValueError, match="cursor"),
    ):
        client.attach(GENERATION, after="the last one")


def test_what_was_received_is_acknowledged(blocking):
    """With `acks` the edge is told, on a request beside the stream, and an edge that does not listen stops nothing."""
    heard = answer({}, 404) if blocking else Reply(error="ConnectError")
    server = Server(BEGUN, Reply((b"".join(STREAM),)), heard)
    items, _ = read(server, blocking, acks=True)
    assert len(items) == 4
    assert server.paths[2:] == [f"POST {PATH}/ack"]
    assert b'"ranges": [[0, 4, "' in server.asked[2].content


@pytest.mark.parametrize(
    "damage", ["UPDATE events SET data = '{}' WHERE seq = 2", "DELETE FROM events WHERE seq = 2"]
)
def test_a_damaged_journal_is_read_again(blocking, tmp_path, damage):
    """What the store has otherwise than it was received, or lacks, is not played: from there the log is read again."""
    with Store(tmp_path / "s.db") as store:
        read(Server(BEGUN, Reply(tuple(STREAM))), blocking, store=store, session="mine")
        store._db.execute(damage)
        server = Server(Reply(tuple(STREAM)))  # a checksum covers a range of events: none of it is believed
        items, session = read(server, blocking, store=store, session="mine")
        assert "last-event-id" not in server.asked[0].headers
        assert session.text == "one two three"
        assert [item.cursor for item in items] == [cursor(seq) for seq in (1, 2, 3, 4)]
        assert [frame.seq for frame in store.events("mine")] == [0, 1, 2, 3, 4]
        assert read(Server(), blocking, store=store, session="mine")[0] == items


def test_a_repair_is_played_from_the_journal(tmp_path):
    """An event that was put right is what the next process is handed."""
    with Store(tmp_path / "s.db") as store:
        read(Server(BEGUN, Reply(tuple(STREAM))), blocking=True, store=store, session="mine")
        store.repair("mine", 2, "delta", '{"seq": 2, "parts": [{"type": "text", "text": "zwei "}]}')
        assert "zwei" in store.events("mine")[2].data
