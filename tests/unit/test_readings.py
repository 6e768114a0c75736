"""Whose turn it is to have a history read, and what becomes of a flood of cheap requests for one."""

import asyncio
from types import SimpleNamespace

import httpx
import pytest

from edge.asgi.emit import EventStream, Hooks
from edge.reading.frames import NATIVE, Frames
from edge.reading.history import TURN_RECORDS, History, read_history
from edge.reading.readings import Crowded, Readings
from schemas.events import Kind
from schemas.ids import uuid7
from schemas.limits import Limit
from tests.support.desk import OWNER, STRANGER, Scene
from tests.support.dialects import HEADERS, OTHER, QUICK, world
from tests.support.edge import CODEC, settings_of
from tests.support.waiting import until

ASKED = {
    "model": "sim-fast",
    "messages": [{"role": "user", "content": "go"}],
    "simulate": QUICK | {"tokens": 5},
}


class Reads:
    """Readings that wait until they are let go: how many are on at once, and of which generation."""

    def __init__(self, **limits):
        self.readings = Readings(Limit(**limits))
        self.on = []
        self.go = asyncio.Event()

    async def read(self, tenant, generation_id):
        """Read one."""
        async with self.readings.turn(tenant, generation_id):
            self.on.append(generation_id)
            await self.go.wait()
            self.on.remove(generation_id)

    def start(self, tenant, generation_id):
        """Begin to read one."""
        return asyncio.create_task(self.read(tenant, generation_id))


async def settled():
    """Let everyone come as far as he can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_reading_of_a_generation_and_few_of_a_tenant():
    """One of each generation at a time, so many in all, and another tenant's beside them."""
    reads = Reads(histories=2, histories_waiting=10)
    tasks = [reads.start("acme", name) for name in ("a", "a", "a", "b", "c")] + [reads.start("rival", "a")]
    await settled()
    assert sorted(reads.on) == ["a", "a", "b"]
    reads.go.set()
    await asyncio.gather(*tasks)
    assert not reads.on


async def test_more_than_may_wait_are_refused_and_only_theirs():
    """Above the line's length a tenant's request is refused; a stranger's is not, and neither is one that comes later."""
    reads = Reads(histories=1, histories_waiting=2)
    tasks = [reads.start("acme", "a") for _ in range(3)]
    await settled()
    with pytest.raises(Crowded, match="histories_waiting"):
        await reads.read("acme", "b")
    tasks.append(reads.start("rival", "a"))
    await settled()
    assert len(reads.on) == 2
    tasks[1].cancel()  # whoever leaves the line makes room in it
    await settled()
    tasks.append(reads.start("acme", "b"))
    reads.go.set()
    assert (
        sum(
            isinstance(e, asyncio.CancelledError)
            for e in await asyncio.gather(*tasks, return_exceptions=True)
        )
        == 1
    )


async def test_a_long_history_gives_way_to_the_streams():
    """While a history is read, the event loop serves others: once for every turn's records."""
    scene = await Scene("log").written(texts=10 * TURN_RECORDS)
    located = await scene.desk.locate(scene.id)
    reading = asyncio.create_task(read_history(scene.writer.log, CODEC, located))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert isinstance(await reading, History)
    assert turns >= 10


@pytest.mark.parametrize("path", ["", "/result", "/ack"])
async def test_a_flood_is_429_and_a_strangers_call_is_not(path):
    """State, result and acknowledgement stand in one line; above it they are told when to come again."""
    async with world(limit={"histories": 1, "histories_waiting": 1}) as two, httpx.AsyncClient() as client:
        made = await client.post(f"{two.urls[0]}/v1/chat/completions", json=ASKED, headers=HEADERS)
        service, generation_id = two.services[0], made.headers["x-generation-id"]
        url = f"{two.urls[0]}/v1/generations/{generation_id}{path}"

        def call(key):
            headers = {"authorization": f"Bearer {key}"}
            return client.request("POST" if path == "/ack" else "GET", url, headers=headers, json={})

        async with service.desk.readings.turn("acme", generation_id):
            waiting = asyncio.create_task(call("key"))
            await until(lambda: service.desk.readings.asking("acme") == 2)
            refused = await call("key")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert (await call(OTHER)).status_code == 404
        assert (await waiting).status_code == 200


async def test_a_flood_of_ids_that_are_nowhere_stands_in_line():
    """To find nothing costs the reading of the log, too: so many at once, and so many wait."""
    scene = await Scene("log").written()
    limit, looking, go = settings_of().limit, [], asyncio.Event()

    async def slow(generation_id, **_):
        looking.append(generation_id)
        await go.wait()

    scene.desk.locate = slow
    most = limit.histories + limit.histories_waiting
    made = [uuid7(1_000 + number, number) for number in range(most + 1)]
    asking = [asyncio.create_task(scene.desk.history(STRANGER, one)) for one in made]
    await settled()
    assert len(looking) == limit.histories
    with pytest.raises(Crowded):
        await asking[-1]
    go.set()
    answers = await asyncio.gather(*asking[:-1])
    assert {answer.code for answer in answers} == {"not_found"}


class Unread:
    """A stream whose client reads only when it is let go, and what was written to it."""

    def __init__(self):
        self.written, self.reads = [], asyncio.Event()
        follower = SimpleNamespace(ended=False, close=lambda: None, read=asyncio.Event().wait)
        frames = Frames(NATIVE, "", "", b"")
        stage = ("streaming", 0)
        self.stream = EventStream(follower, frames, [], 0.01, lambda: stage, Hooks())
        gone = asyncio.Event()
        self.leave = gone.set
        self.task = asyncio.create_task(self.stream({}, lambda: _gone(gone), self._send))

    async def _send(self, message):
        if message["type"] == "http.response.body" and message["body"] != b": tokentrail\n":
            self.written.append(message["body"])
            await self.reads.wait()


async def _gone(gone):
    await gone.wait()
    return {"type": "http.disconnect"}


async def test_what_is_sent_again_does_not_pile_up():
    """A client that acknowledges and does not read has one answer of that waiting for it, no second; no heartbeat either."""
    client = Unread()
    await settled()
    assert client.stream.send_again(b"one")
    assert not client.stream.send_again(b"two")
    await asyncio.wait({client.task}, timeout=0.1)
    assert client.written == [b"one"]
    client.reads.set()
    await settled()
    assert client.stream.send_again(b"three")
    await until(lambda: len(client.written) > 3)
    assert client.written.count(b"three") == 1
    client.leave()
    await client.task


async def test_heartbeats_of_an_unread_stream_do_not_pile_up():
    """One heartbeat waits for a client that does not read, however long it does not."""
    client = Unread()
    await until(lambda: client.written)
    await asyncio.wait({client.task}, timeout=0.1)
    assert len(client.written) == 1
    client.leave()
    await client.task


async def test_a_silent_archive_keeps_nobody_waiting_in_line():
    """Requests for what only the archive can have do not stand before those for what the log has."""
    archive = SimpleNamespace(find=lambda *_: asyncio.Event().wait())
    scene = await Scene("log", archive=archive).written()
    at_once = settings_of().limit.histories
    old = [scene.desk.history(OWNER, uuid7(1_000 + number, number)) for number in range(at_once + 1)]
    asking = [asyncio.create_task(one) for one in old]
    await settled()
    async with asyncio.timeout(5):
        assert (await scene.desk.history(OWNER, scene.id)).whole
    for one in asking:
        assert not one.done()
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_only_so_many_acknowledgements_are_on_record():
    """Above the limit they are answered as ever, and the log holds no more of them."""
    async with world(limit={"acks_noted": 2}) as two, httpx.AsyncClient(headers=HEADERS) as client:
        script = {"ttft_ms": 0, "interval_ms": 5, "tokens": 100_000}
        headers = {"prefer": "respond-async"}
        asked = ASKED | {"simulate": script}
        made = await client.post(f"{two.urls[0]}/v1/chat/completions", json=asked, headers=headers)
        url = f"{two.urls[0]}/v1/generations/{made.json()['generation_id']}"
        for _ in range(4):
            said = await client.post(f"{url}/ack", json={"ranges": [[0, 0, "00000000"]]})
            assert said.json()["nack"] == [[0, 0]]
        await client.post(f"{url}/cancel")
        service = two.services[0]
        owner = service.keys.of_id("key-1")
        records = (await service.desk.history(owner, made.json()["generation_id"])).records
        assert sum(record.kind is Kind.CLIENT_ACK for record in records) == 2
