"""A reader on another edge, as the generation's own edge learns of it: on control, in time, and not of what is over."""

import asyncio
from types import SimpleNamespace

import httpx
import pytest

from edge.log.memory import MemoryLog
from edge.routes.common import ReaderHooks
from schemas.codec import Codec
from schemas.records import ControlKind, ControlRecord
from tests.casebook.edges import codec, wall_ms
from tests.support.dialects import HEADERS, world
from tests.support.waiting import until

CHAT = {"model": "sim-chat", "stream": True, "messages": [{"role": "user", "content": "go"}]}
LONG = {"tokens": 400, "ttft_ms": 0, "interval_ms": 0, "stalls": [[300, 60_000]]}
"""More events than an edge reads before it answers a resume."""
GRACE_S = 30


async def read_so_many(answer, count):
    """Read until so many events have come."""
    got = 0
    async for line in answer.aiter_lines():
        got += line.startswith("id: ")
        if got >= count:
            return


@pytest.fixture
async def two():
    async with world(disconnect={"grace_s": GRACE_S}) as running:
        yield running


async def test_who_comes_late_is_known_when_it_has_caught_up(two):
    """Not a third of the grace time later: by then the generation that it reads may have been cancelled."""
    owner, other = two.urls
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
        async with client.stream(
            "POST", f"{owner}/v1/chat/completions", json=CHAT | {"simulate": LONG}
        ) as first:
            await read_so_many(first, 290)
        generation_id = first.headers["x-generation-id"]
        entry = two.services[0].registry.entry(generation_id)
        await until(lambda: entry.generation.readers == 0)
        async with client.stream("GET", f"{other}/v1/generations/{generation_id}/events") as second:
            await read_so_many(second, 290)
            await until(lambda: entry.attached_us is not None, GRACE_S / 6)


async def test_a_replay_of_what_is_over_says_nothing(two):
    """Control is not told of readers of a finished generation, however many come."""
    owner, other = two.urls
    over = LONG | {"stalls": []}
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
        said = await client.post(f"{owner}/v1/chat/completions", json=CHAT | {"simulate": over})
        generation_id = said.headers["x-generation-id"]
        for _ in range(3):
            read = await client.get(f"{other}/v1/generations/{generation_id}/events")
            assert b"event: message_end" in read.content
    assert two.services[0].registry.entry(generation_id).attached_us is None


async def test_a_reader_that_never_catches_up_is_one():
    """Its client is slower than the generation; the edge says so every third of the grace time, until its reading ends."""
    log = MemoryLog(wall_ms)
    follower = SimpleNamespace(
        generation_id="g",
        met_end=asyncio.Event(),
        remote=True,
        reading=SimpleNamespace(ended=False, next_seq=0),
    )
    settings = SimpleNamespace(disconnect=SimpleNamespace(grace_s=0.06), edge=SimpleNamespace(id="edge-2"))
    clock = SimpleNamespace(now_us=lambda: 0, wall_us=lambda: 1, random_bits=lambda _: 1)
    metrics = SimpleNamespace(model=lambda name: name)
    service = SimpleNamespace(settings=settings, clock=clock, metrics=metrics, log=log, codec=codec())
    announcing = asyncio.ensure_future(ReaderHooks(service, follower, None, "m", None).remote())
    said = [Codec().decode(value, ControlRecord) async for value in _first(log.control(), 2)]
    assert [record.kind for record in said] == [ControlKind.ATTACHED] * 2
    follower.reading.ended = True
    async with asyncio.timeout(5):
        await announcing


async def _first(values, count):
    async for value in values:
        yield value
        count -= 1
        if not count:
            return
