"""Edges that die, freeze or stop: nothing lost, nothing repeated. Each test has two edges of its own."""

import asyncio
import signal

import pytest

from tests.support.client import Reader, body, seqs
from tests.support.processes import TWENTIETH
from tests.support.waiting import until

DRAIN_S = float(TWENTIETH["TOKENTRAIL_EDGE__DRAIN_S"])


@pytest.mark.usefixtures("worker")
async def test_a_killed_edge_ends_its_generation_once(edges, client):
    """Kill -9 of an edge in the middle of a stream: edge_lost, once, also on an otherwise idle log.

    A cancel meanwhile is taken by nobody: 202 until the finder's end is there, then that end, of which nothing is known released.
    """
    first, second = edges
    reader = Reader(client)
    running = asyncio.create_task(reader.post(first.url, body(tokens=10_000, interval_ms=20)))
    await until(lambda: len(reader.events) >= 5)
    first.kill()
    assert await running is False
    at = f"{second.url}/v1/cancel/{reader.generation_id}"
    while (answer := await client.post(at)).status_code == 202:
        assert answer.json()["state"] == "cancelling"
    terminal = answer.json()["terminal"]
    assert (terminal["code"], terminal.get("released")) == ("edge_lost", None)
    assert (await client.post(at)).json()["terminal"] == terminal
    assert await reader.resume(second.url)
    replay = Reader(client)
    replay.generation_id = reader.generation_id
    assert await replay.resume(second.url)
    assert reader.frames == replay.frames
    assert seqs(reader) == list(range(1, len(reader.events) + 1))
    assert "edge_lost" in reader.events[-1].data
    assert [e for e in replay.events if "edge_lost" in e.data] == [replay.events[-1]]


@pytest.mark.usefixtures("worker")
async def test_a_frozen_edge_gives_nothing_that_a_replay_lacks(edges, client):
    """An edge that sleeps past the orphan time and wakes: whatever its client holds, a replay has; one terminal."""
    first, second = edges
    reader = Reader(client)
    running = asyncio.create_task(reader.post(first.url, body(tokens=10_000, interval_ms=20)))
    await until(lambda: len(reader.events) >= 5)
    first.signal(signal.SIGSTOP)
    other = Reader(client)
    other.generation_id = reader.generation_id
    try:
        assert await other.resume(second.url)
    finally:
        first.signal(signal.SIGCONT)
    assert "edge_lost" in other.events[-1].data
    assert await asyncio.wait_for(running, 20)
    assert reader.frames == other.frames


async def test_a_cancel_of_what_a_frozen_edge_runs(edges, client, provider):
    """It is taken from the other edge, not seen in time, and done as soon as the owner wakes, down to the socket."""
    first, second = edges
    reader = Reader(client)
    running = asyncio.create_task(reader.post(first.url, body(tokens=10_000, interval_ms=20)))
    await until(lambda: len(reader.events) >= 3)
    at = f"{second.url}/v1/cancel/{reader.generation_id}"
    first.signal(signal.SIGSTOP)
    try:
        asked = [
            await client.post(at, json={"reason": reason}) for reason in ("policy_violation", "user_abort")
        ]
        assert [answer.status_code for answer in asked] == [202, 202]
    finally:
        first.signal(signal.SIGCONT)
    await until(lambda: provider.requests[-1].aborted_by_client)
    assert await running
    assert "cancelled" in reader.events[-1].data
    seen = (await client.post(at)).json()["terminal"]
    assert (seen["finish_reason"], seen["cancel"]["reason"]) == ("cancelled", "policy_violation")
    assert seen["cancel"]["at_us"] <= seen["released"]["upstream_socket_us"]


async def test_an_edge_that_stops_on_purpose_ends_what_runs(edges, client):
    """SIGTERM: what does not end within the drain time gets its terminal from the edge itself, and so do its readers."""
    first, second = edges
    readers = [Reader(client) for _ in range(4)]
    running = [
        asyncio.create_task(reader.post(first.url, body(tokens=10_000 if number else 30, interval_ms=20)))
        for number, reader in enumerate(readers)
    ]
    await until(lambda: all(len(reader.events) >= 3 for reader in readers))
    began = asyncio.get_running_loop().time()
    assert await asyncio.to_thread(first.stop) == 0
    assert asyncio.get_running_loop().time() - began < 2 * DRAIN_S + 1
    assert await asyncio.gather(*running) == [True] * 4
    assert readers[0].events[-1].data == "[DONE]"
    for reader in readers:
        replay = Reader(client)
        replay.generation_id = reader.generation_id
        assert await replay.resume(second.url)
        assert replay.frames == reader.frames
    assert all("edge_lost" in reader.events[-1].data for reader in readers[1:])
    assert "Traceback" not in first.said()
