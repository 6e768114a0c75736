"""What somebody waits for, a first token above all: in how many produce requests, in which order with the provider's call.

The log is one in memory behind the publisher's real lanes, whose tick never comes: whatever waits for it would wait for
ever.
"""

import asyncio
import hashlib

import orjson
import pytest

from edge.app import build_app
from edge.clock import system_clock
from edge.log.lanes import Lanes
from edge.log.memory import MemoryLog
from schemas.events import Kind, LogEvent
from schemas.settings import ApiKey
from tests.support.asgi import post
from tests.support.edge import CODEC
from tests.support.running import BODY, RunningEdge
from tests.support.upstream import DONE, HANG, Script, ScriptedUpstream, chunk, finish
from tests.support.waiting import until

KEY = "a client's key"
AUTH = {"authorization": f"Bearer {KEY}"}
KEYS = (ApiKey(id="key-1", tenant="acme", sha256=hashlib.sha256(KEY.encode()).hexdigest()),)
NEVER_S = 3600.0


class TicklessLog(MemoryLog):
    """A log that is reached by produce requests, and only by those that wait for no tick."""

    def __init__(self, clock):
        super().__init__(lambda: clock.wall_us() // 1000, 4)
        self.requests = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._lanes = Lanes(self._send, NEVER_S)

    def append(self, partition, key, values, on_ack, on_fail):
        """See EventLog."""
        self._lanes.append(partition, key, values, on_ack, on_fail)

    def hurry(self, partition):
        """See EventLog."""
        self._lanes.hurry(partition)

    async def _send(self, partition, batch):
        self.requests.append([CODEC.decode(item.value, LogEvent).kind for item in batch])
        await self.gate.wait()
        offsets = [self.put(partition, item.key, item.value) for item in batch]
        return offsets[0]


def edge_in_front_of(*scripts, **sections):
    """Give an edge on such a log."""
    clock = system_clock()
    return RunningEdge(ScriptedUpstream(*scripts), clock, TicklessLog(clock), keys=KEYS, **sections)


async def test_two_produce_requests_stand_before_a_first_token_and_none_of_them_waits_for_the_tick():
    """The opening is one request, the first content the second; who came meanwhile is told in that one."""
    go_on = asyncio.Event()
    async with edge_in_front_of(Script(go_on, chunk("a"), HANG)) as edge:
        client = post(build_app(edge.service), "/v1/chat/completions", BODY, AUTH)
        await until(lambda: any(entry.generation.readers for entry in edge.service.registry.running()))
        go_on.set()
        await client.until(b'"content": "a"')
        opening, first = edge.log.requests
        await client.hang_up()
        assert opening == [Kind.MESSAGE_START, Kind.ATTEMPT_START]
        assert sorted(first) == sorted([Kind.HEARTBEAT, Kind.CLIENT_ATTACHED, Kind.DELTA])


async def test_an_end_waits_for_no_tick():
    """What follows the first content shares requests; the end takes along what is left, and is answered at once."""
    go_on = asyncio.Event()
    async with edge_in_front_of(Script(chunk("a"), go_on, chunk("b"), finish(), DONE)) as edge:
        client = post(build_app(edge.service), "/v1/chat/completions", BODY, AUTH)
        await client.until(b'"content": "a"')
        go_on.set()
        await client.done()
        assert b"data: [DONE]" in client.body
        assert len(edge.log.requests) == 3
        assert edge.log.requests[-1][-2:] == [Kind.ATTEMPT_END, Kind.MESSAGE_END]


async def test_nothing_is_made_ready_for_the_reader_before_the_provider_is_called():
    """What the client's stream costs is spent while the provider has its request: by then it was called."""
    async with edge_in_front_of(Script(HANG)) as edge:
        called_at = []
        attach = edge.service.registry.attach
        edge.service.registry.attach = lambda *args: (
            called_at.append(len(edge.upstream.calls)) or attach(*args)
        )
        client = post(build_app(edge.service), "/v1/chat/completions", BODY, AUTH)
        await until(lambda: called_at)
        await client.hang_up()
        assert called_at == [1]


async def test_an_opening_that_is_not_acknowledged_calls_nobody():
    """The first request is on its way and not answered: neither is the client, and the provider has heard nothing."""
    async with edge_in_front_of(Script(HANG)) as edge:
        edge.log.gate.clear()
        client = post(build_app(edge.service), "/v1/chat/completions", BODY, AUTH)
        await until(lambda: edge.log.requests)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (edge.upstream.calls, client.body) == ([], b"")
        edge.log.gate.set()
        await until(lambda: edge.upstream.calls)
        await client.hang_up()


async def test_the_framework_solves_nothing_for_a_call(monkeypatch):
    """A call's endpoint is given its request as it came: no dependency, body or response is worked on for it."""
    monkeypatch.setattr("fastapi.routing.solve_dependencies", None)
    async with edge_in_front_of(Script(chunk("a"), finish(), DONE)) as edge:
        client = post(build_app(edge.service), "/v1/chat/completions", BODY, AUTH)
        await client.done()
        assert client.status == 200


@pytest.mark.parametrize(
    "behind", [[HANG], [finish("tool_calls"), DONE]], ids=["while it runs", "behind the end"]
)
async def test_a_tools_report_waits_for_no_tick(behind):
    """Whoever reports a tool is answered when it is in the log: it leaves at once."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling = orjson.dumps({"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    async with edge_in_front_of(Script(b"data: " + calling + b"\n\n", *behind)) as edge:
        app = build_app(edge.service)
        client = post(app, "/v1/chat/completions", BODY, AUTH)
        await client.until(b"call_1" if behind == [HANG] else b"[DONE]")
        path = f"/v1/generations/{client.headers['x-generation-id']}/tools/call_1"
        told = await post(app, path, {"status": "succeeded"}, AUTH).done()
        assert told.status == 200
        assert edge.log.requests[-1][-1] is Kind.TOOL_STATUS
        await client.hang_up()
