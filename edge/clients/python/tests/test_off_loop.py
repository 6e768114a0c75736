"""The store beside an event loop: the loop goes on while the file is held, the order is kept, what waits goes together."""

import asyncio
import sqlite3
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest
from playing import BODY as CALL
from playing import FAST, URL, WHOLE
from scripted import GENERATION, Reply, Server, cursor
from test_sessions import BEGUN, BODY, DELTAS, LAST, START, STREAM
from tokentrail_client import AsyncClient, SessionLost, State, Store, StoreError, async_http_client
from tokentrail_client.frames import Frame
from tokentrail_client.off_loop import OffLoop
from tokentrail_client.tables import Kept


class Held:
    """The file in the hands of another process, until it is let go."""

    def __init__(self, path):
        self._db = sqlite3.connect(path, isolation_level=None)
        self.holding = False

    def hold(self):
        self._db.execute("BEGIN IMMEDIATE")
        self.holding = True

    def let_go(self):
        self._db.execute("COMMIT")
        self.holding = False

    def close(self):
        self._db.close()


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store in whose file nobody gives up waiting, however slow the machine is."""
    monkeypatch.setattr("tokentrail_client.store.BUSY_S", 120)
    monkeypatch.setattr("tokentrail_client.async_shell.LEAVING_S", 120)
    with Store(tmp_path / "s.db") as opened:
        yield opened


@pytest.fixture
def held(tmp_path, store):
    other = Held(tmp_path / "s.db")
    yield other
    other.close()


async def turns(condition):
    """Let the loop turn until something is so, and then some more."""
    with anyio.fail_after(30):
        while not condition():
            await anyio.lowlevel.checkpoint()
    for _ in range(200):
        await anyio.lowlevel.checkpoint()


@contextmanager
def counted(store):
    """Count the transactions that are made."""
    begun = []
    store._db.set_trace_callback(lambda text: begun.append(text) if text.startswith("BEGIN") else None)
    yield begun
    store._db.set_trace_callback(None)


def kept(session, seq, **more):
    frame = Frame(b"", cursor(seq), "delta", f"data {seq}")
    return Kept(session, State.STREAMING, None, cursor(seq), None, (frame,), True, **more)


class Holding(Server):
    """A server that has somebody take the file before each of its streams."""

    def __init__(self, held, *replies):
        super().__init__(*replies)
        self.held = held

    def reply(self, request, stream):
        if request.method == "GET" or "prefer" not in request.headers:
            self.held.hold()
        return super().reply(request, stream)


async def while_held(work, held):
    """Run something; whoever else is on the loop goes on meanwhile, and lets the file go."""
    gone_on = []

    async def beside():
        await turns(lambda: held.holding)
        gone_on.append(True)
        held.let_go()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        result = await work()
    assert gone_on == [True]
    return result


def test_the_loop_goes_on_while_somebody_holds_the_file(store, held):
    """An iterator's event waits for its place in the file; whatever else the loop does goes on."""
    server = Holding(held, BEGUN, Reply(tuple(STREAM)))

    async def work():
        async with (
            AsyncClient("http://edge.test", "k", store=store, transport=server, times=FAST) as client,
            client.stream("/chat/completions", BODY, session="mine") as session,
        ):
            return [item.cursor async for item in session]

    assert anyio.run(while_held, work, held) == [cursor(seq) for seq in (1, 2, 3, 4)]
    assert [frame.seq for frame in store.events("mine")] == list(range(5))
    assert store.get("mine").state is State.COMPLETED


def test_under_an_sdk_the_loop_goes_on_too(store, held):
    """A transport's session begins, moves on and ends in the file without holding up the loop."""
    server = Holding(held, Reply(tuple(WHOLE)))

    async def work():
        async with async_http_client(store=store, transport=server, times=FAST) as client:
            return (await client.post(URL, json=CALL)).content

    assert anyio.run(while_held, work, held) == b"".join(WHOLE)
    assert store.sessions()[0].last_event_id == cursor(4)


@pytest.mark.parametrize("what", ["iterator", "transport"])
def test_beginning_does_not_hold_up_the_loop(store, held, what):
    """Nor does the first look into the file."""
    held.hold()

    async def iterator():
        server = Server(BEGUN, Reply(tuple(STREAM)))
        async with AsyncClient("http://edge.test", "k", store=store, transport=server) as client:
            return len([item async for item in client.stream("/chat/completions", BODY)])

    async def transport():
        async with async_http_client(store=store, transport=Server(Reply(tuple(WHOLE)))) as client:
            return len((await client.post(URL, json=CALL)).content.split(b"\n\n")) - 1

    assert anyio.run(while_held, {"iterator": iterator, "transport": transport}[what], held) == 4


def test_what_waits_goes_into_one_transaction(store, held):
    """While one write waits for the file twenty sessions come: all of them are stored by the next transaction, in order."""
    names = [f"s{number}" for number in range(20)]
    for name in names:
        store.begin(name, "native", [])

    async def work():
        off_loop = OffLoop(store)
        held.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(off_loop.keep, kept("s0", 0))
            await turns(lambda: off_loop._writer.locked() and not off_loop._waiting)
            for seq in (1, 2):
                for name in names:
                    tasks.start_soon(off_loop.keep, kept(name, seq))
            await turns(lambda: len(off_loop._waiting) == 40)
            held.let_go()

    with counted(store) as begun:
        anyio.run(work)
    assert len(begun) == 2
    assert [frame.seq for frame in store.events("s0")] == [0, 1, 2]
    for name in names[1:]:
        assert [frame.seq for frame in store.events(name)] == [1, 2]
        assert store.get(name).last_event_id == cursor(2)


@pytest.mark.parametrize("how", ["scope", "task"])
def test_a_writer_that_is_cancelled_leaves_the_order(store, held, how):
    """Cancelled in the middle of its write, by a scope or as a task, a session is stored as left, and what it had is a prefix."""
    server = Holding(held, BEGUN, Reply((START, *DELTAS, LAST)))

    async def read(client):
        async with client.stream("/chat/completions", BODY, session="mine") as session:
            async for _ in session:
                pass

    async def work():
        async with AsyncClient("http://edge.test", "k", store=store, transport=server) as client:
            if how == "task":
                task = asyncio.create_task(read(client))
                await turns(lambda: held.holding)
                task.cancel()
                await turns(lambda: True)
                held.let_go()
                with pytest.raises(asyncio.CancelledError):
                    await task
                return
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read, client)
                await turns(lambda: held.holding)
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await turns(lambda: True)
                held.let_go()

    asyncio.run(work())
    stored = store.get("mine")
    assert (stored.state, stored.reason, stored.generation_id) == (State.CANCELLED, "abort", GENERATION)
    seqs = [frame.seq for frame in store.events("mine")]
    assert seqs == list(range(len(seqs)))
    assert stored.last_event_id == (cursor(seqs[-1]) if seqs else None)


def test_what_one_cannot_store_is_not_the_others_fault(store):
    """A text that no file can hold fails alone; a file that is held for too long fails all that wait for it, once."""
    bad = Kept("bad", State.STREAMING, frames=(Frame(b"", cursor(0), "delta", "\ud800"),), journal=True)
    for name in ("good", "bad"):
        store.begin(name, "native", [])

    async def work():
        off_loop = OffLoop(store)
        waiting = [off_loop.give(one) for one in (kept("good", 0), bad, kept("good", 1))]
        await off_loop.stored(waiting[2])
        await off_loop.stored(waiting[0])
        with pytest.raises(StoreError, match="surrogate"):
            await off_loop.stored(waiting[1])

    anyio.run(work)
    assert [frame.seq for frame in store.events("good")] == [0, 1]
    assert store.events("bad") == []


def test_a_file_that_is_held_for_too_long_ends_its_sessions(tmp_path, monkeypatch):
    """Nothing is handed over that is not stored; the reason is told to each, and the generation runs on."""
    monkeypatch.setattr("tokentrail_client.store.BUSY_S", 0.05)
    with Store(tmp_path / "s.db") as store:
        held = Held(tmp_path / "s.db")

        async def work():
            server = Holding(held, BEGUN, Reply(tuple(STREAM)))
            async with AsyncClient("http://edge.test", "k", store=store, transport=server) as client:
                session = client.stream("/chat/completions", BODY, session="mine")
                with pytest.raises(SessionLost) as caught:
                    await anext(aiter(session))
                return caught.value.reason, server.paths

        reason, paths = anyio.run(work)
        held.close()
    assert reason == "store_failed"
    assert paths == ["POST /v1/chat/completions", f"GET /v1/generations/{GENERATION}/events"]


def test_a_session_that_is_not_read_is_not_begun(store):
    """Opening a session asks nothing of the file or the edge before it is read."""

    async def work():
        async with (
            AsyncClient("http://edge.test", "k", store=store, transport=Server()) as client,
            client.stream("/chat/completions", BODY, session="mine") as session,
        ):
            assert (session.name, session.generation_id) == ("mine", None)

    anyio.run(work)
    assert store.get("mine") is None
