"""Clients that are cut, move to another edge, leave or cancel, on two edges that all of these tests share: nobody kills them."""

import asyncio
import hashlib
import random

import pytest
import pytest_asyncio

from compose.embedded.simulator import Simulator
from tests.support.client import Reader, body, new_client, seqs
from tests.support.processes import UNHURRIED, two_edges
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
CUTS = 100
STREAMS_AT_ONCE = 10


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider():
    """A simulated provider; the last request is the test's own."""
    async with Simulator(port=0) as simulator:
        yield simulator


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edges(topics, provider, tmp_path_factory):
    """Two edges for the file."""
    async with two_edges(topics, provider, tmp_path_factory.mktemp("edges"), UNHURRIED) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def client():
    """An HTTP client with the test's key."""
    async with new_client() as opened:
        yield opened


def digest(frames):
    """Give the SHA-256 over ids, names and data."""
    return hashlib.sha256(repr(frames).encode()).hexdigest()


async def test_a_hundred_cuts_lose_and_repeat_nothing(edges, client):
    """A client that is cut at random points and resumes on any edge has exactly what a full replay gives."""
    random_ = random.Random(7)
    gate = asyncio.Semaphore(STREAMS_AT_ONCE)
    cuts = 0

    async def one():
        nonlocal cuts
        async with gate:
            reader = Reader(client)
            url = random_.choice(edges).url
            ended = await reader.post(url, body(tokens=random_.randint(10, 60)), random_.randint(1, 15))
            while not ended:
                cuts += 1
                ended = await reader.resume(random_.choice(edges).url, random_.choice([None, 1, 3, 10, 30]))
                if reader.statuses[-1] == 204:
                    ended = True
            replay = Reader(client)
            replay.generation_id = reader.generation_id
            assert await replay.resume(random_.choice(edges).url)
            assert digest(reader.frames) == digest(replay.frames)
            assert seqs(reader) == list(range(1, len(reader.events) + 1))
            assert reader.events[-1].data == "[DONE]"

    while cuts < CUTS:
        await asyncio.gather(*(one() for _ in range(STREAMS_AT_ONCE)))
    assert cuts >= CUTS


async def test_a_reader_on_another_edge_is_a_reader(edges, client, provider):
    """A reader that moved to the other edge for longer than the grace time is not taken for nobody."""
    first, second = edges
    reader = Reader(client)
    await reader.post(first.url, body(tokens=250, interval_ms=20), 5)
    assert await reader.resume(second.url)
    assert reader.events[-1].data == "[DONE]"
    assert len(reader.events) > 250
    assert not provider.requests[-1].aborted_by_client


async def test_nobody_for_the_grace_time_is_a_cancel(edges, client, provider):
    """A generation that no reader comes back to is cancelled after the grace time, down to the provider's socket."""
    first, second = edges
    reader = Reader(client)
    await reader.post(first.url, body(tokens=10_000, interval_ms=20), 5)
    await until(lambda: provider.requests[-1].aborted_by_client)
    assert await reader.resume(second.url)
    assert "cancelled" in reader.events[-1].data


@pytest.mark.parametrize("where", ["same edge", "other edge"])
async def test_a_cancel_reaches_the_provider(edges, client, provider, where):
    """A cancel from any edge closes the provider's socket and ends the generation once."""
    first, second = edges
    reader = Reader(client)
    running = asyncio.create_task(reader.post(first.url, body(tokens=10_000, interval_ms=20)))
    await until(lambda: len(reader.events) >= 3)
    url = (first if where == "same edge" else second).url
    answer = await client.post(f"{url}/v1/cancel/{reader.generation_id}", json={"mode": "soft"})
    assert answer.status_code == 200
    assert answer.json()["terminal"]["finish_reason"] == "cancelled"
    assert await running
    await until(lambda: provider.requests[-1].aborted_by_client)
    assert "cancelled" in reader.events[-1].data
    again = await client.post(f"{url}/v1/cancel/{reader.generation_id}", json={"mode": "soft"})
    assert again.json()["terminal"] == answer.json()["terminal"]
