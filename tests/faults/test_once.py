"""Idempotency-Key on Apache Kafka: two edges race, one dies, one comes later."""

import asyncio
import secrets

import httpx
import pytest

from tests.support.client import Reader, body, seqs
from tests.support.processes import UNHURRIED, Edge, environment, two_edges
from tests.support.waiting import until

KEYS, CALLS_EACH = 12, 4
ENDLESS = {"tokens": 100_000, "interval_ms": 20}


async def keyed(client, url, asked, key, cut_after=None):
    """POST with a key and read, to the end or to a number of events; the reader, and whether it was replayed."""
    reader = Reader(client)
    await reader.post(url, asked, cut_after, {"idempotency-key": key})
    return reader, reader.heads[0].get("idempotent-replayed") == "true"


async def race(edges, client, provider):
    """Calls of the same keys at the same time on both edges: each key asks the provider once, and all its clients equal."""
    asked = len(provider.requests)

    async def of_one_key(key):
        calls = [
            keyed(client, edges[n % 2].url, body(tokens=8, interval_ms=2), key) for n in range(CALLS_EACH)
        ]
        found = await asyncio.gather(*calls)
        assert {status for reader, _ in found for status in reader.statuses} == {httpx.codes.OK}
        assert [replayed for _, replayed in found].count(False) == 1
        assert len({reader.generation_id for reader, _ in found}) == 1
        first = found[0][0].frames
        assert first
        assert all(reader.frames == first for reader, _ in found)
        assert found[0][0].events[-1].data == "[DONE]"

    await asyncio.gather(*(of_one_key(f"race-{n}-{secrets.token_hex(4)}") for n in range(KEYS)))
    assert len(provider.requests) == asked + KEYS


async def retry(edges, client, provider):
    """The client's connection breaks, its SDK calls again elsewhere: the same stream from its beginning, no second call."""
    first, second = edges
    key, asked = secrets.token_hex(8), body(tokens=60, interval_ms=15)
    cut, _ = await keyed(client, first.url, asked, key, cut_after=5)
    before = len(provider.requests)
    again, replayed = await keyed(client, second.url, asked, key)
    assert replayed
    assert again.generation_id == cut.generation_id
    assert again.frames[: len(cut.frames)] == cut.frames
    assert seqs(again) == list(range(1, len(again.events) + 1))
    assert again.events[-1].data == "[DONE]"
    assert len(provider.requests) == before
    other = await client.post(
        f"{second.url}/v1/chat/completions", json=asked | {"n": 1}, headers={"idempotency-key": key}
    )
    assert other.status_code == httpx.codes.UNPROCESSABLE_ENTITY


async def late(edges, client, topics, folder):
    """An edge that is ready has read the claims: a key of before it is answered from the log."""
    key = secrets.token_hex(8)
    first, _ = await keyed(client, edges[0].url, body(tokens=5), key)
    third = Edge(folder, environment(topics, UNHURRIED), f"edge-3-{folder.name}")
    try:
        third.start()
        await third.until_ready()
        again, replayed = await keyed(client, third.url, body(tokens=5), key)
    finally:
        third.stop()
    assert replayed
    assert again.frames == first.frames


async def test_of_one_key_one_generation_on_all_edges(client, provider, topics, tmp_path):
    """A race of two edges, a retry elsewhere while the first streams, an edge that comes later: one call of the provider."""
    async with two_edges(topics, provider, tmp_path, UNHURRIED) as edges:
        await race(edges, client, provider)
        await retry(edges, client, provider)
        before = len(provider.requests)
        await late(edges, client, topics, tmp_path)
    assert len(provider.requests) == before + 1


@pytest.mark.usefixtures("worker")
async def test_an_edge_that_died(edges, client, provider):
    """Behind content every retry is given what it gave, and the finder's end; before any, the end, and then the key is free."""
    first, second = edges
    key, other = secrets.token_hex(8), secrets.token_hex(8)
    silent = body(tokens=5, ttft_ms=60_000)
    lost = asyncio.create_task(keyed(client, first.url, silent, other))
    await until(lambda: len(provider.requests) == 1)
    cut, _ = await keyed(client, first.url, body(**ENDLESS), key, cut_after=5)
    first.kill()
    await asyncio.gather(lost, return_exceptions=True)
    again, replayed = await keyed(client, second.url, body(**ENDLESS), key)
    assert replayed
    assert again.frames[: len(cut.frames)] == cut.frames
    assert seqs(again) == list(range(1, len(again.events) + 1))
    assert "edge_lost" in again.events[-1].data
    assert len(provider.requests) == 2
    for waited, replayed in await free(client, second.url, silent, other, provider):
        assert replayed
        assert [len(waited.events), "edge_lost" in waited.events[-1].data] == [1, True]
    assert (await keyed(client, second.url, body(**ENDLESS), key))[0].frames == again.frames
    assert len(provider.requests) == 3


async def free(client, url, asked, key, provider):
    """Call until a call asks the provider anew: what the calls before it were given."""
    before, given = len(provider.requests), []
    while True:
        calling = asyncio.create_task(keyed(client, url, asked, key))
        await until(lambda call=calling: call.done() or len(provider.requests) > before, 60)
        if len(provider.requests) > before:
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            return given
        given.append(calling.result())
