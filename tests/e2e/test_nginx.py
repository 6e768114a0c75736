"""Two edges on a real Kafka behind the distribution's nginx, by the configuration that users get: TLS and HTTP/2 to clients.

What a proxy may break: bytes that wait in it, streams that end with their neighbours, readers that left and are not told of,
calls that are made twice. Without nginx (``make test`` fetches it where it can) these tests are skipped by name.
"""

import asyncio
import json
import signal
import time
from itertools import pairwise

import httpx
import openai
import pytest
import pytest_asyncio

from compose.embedded.simulator import Simulator
from tests.support.front import CHAT, Front, asked, events_of, lags_s, so_many
from tests.support.http2 import Http2
from tests.support.leaving import GRACE_S, WAYS, left_by, left_in_silence, on_record
from tests.support.nginx import FOUND, NAME, EdgesNginx
from tests.support.place import frames, ids_of
from tests.support.processes import HEADERS, KEY, TWENTIETH, Edge, environment, free_port, write_config
from tests.support.waiting import until

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(FOUND is None, reason="no nginx with TLS and HTTP/2 on this machine"),
    pytest.mark.asyncio(loop_scope="module"),
]
WINDOW_BYTES = 65_535
"""What HTTP/2 lets a server send on a stream whose client says nothing of it."""
HEARTBEAT_S = float(TWENTIETH["TOKENTRAIL_STREAM__HEARTBEAT_S"])
STOCK = """
server {{
    listen 127.0.0.1:{port};
    location / {{
        proxy_pass http://127.0.0.1:{edge};
        proxy_read_timeout 2s;
    }}
}}
"""
"""A server as somebody writes it who has read nothing: HTTP/1.0 to the edge, buffering on, and impatient."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(topics, tmp_path_factory):
    folder = tmp_path_factory.mktemp("front")
    async with Simulator(port=0) as provider:
        write_config(folder, provider.base_url)
        edges = [Edge(folder, environment(topics), f"edge-{i}-behind-nginx") for i in (1, 2)]
        stock_port = free_port()
        stock = STOCK.format(port=stock_port, edge=edges[0].port)
        try:
            for edge in edges:
                edge.start()
            with EdgesNginx(folder, [edge.port for edge in edges], stock) as nginx:
                for edge in edges:
                    await edge.until_ready()
                await nginx.until_ready()
                yield Front(topics, edges, provider, nginx, stock_port)
        finally:
            for edge in edges:
                edge.stop()


async def test_a_stream_through_nginx_is_the_edges_own(front):
    """Live and replayed, over HTTP/2 and from each edge itself: the same bytes under the same ids."""
    async with front.http2() as connection:
        live = connection.post(CHAT, asked(tokens=40))
        received = await live.whole()
        generation_id = live.headers["x-generation-id"]
        assert (live.status, live.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert live.headers["cache-control"] == "no-cache, no-transform"
        assert live.headers["x-accel-buffering"] == "no"
        assert "content-length" not in live.headers
        assert "content-encoding" not in live.headers
        replayed = await connection.get(events_of(generation_id)).whole()
        direct = [await front.replay(generation_id, edge) for edge in (0, 1)]
        assert replayed == direct[0] == direct[1]
        assert frames(received) == frames(direct[0])
        assert len(frames(received)) > 40
        assert b"data: [DONE]" in frames(received)[-1]


async def test_an_unmodified_sdk_over_http2(front):
    """The openai SDK, told to speak HTTP/2, reads the provider's words to their end."""
    async with (
        httpx.AsyncClient(http2=True, verify=front.nginx.trust) as http,
        openai.AsyncOpenAI(
            base_url=f"{front.nginx.url}/v1", api_key=KEY, http_client=http, max_retries=0
        ) as client,
    ):
        stream = await client.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            extra_body={"simulate": {"text": "one two three", "ttft_ms": 0}},
        )
        assert stream.response.http_version == "HTTP/2"
        said = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert "".join(said) == "one two three"


SLOW = {"tokens": 5, "ttft_ms": 2600, "interval_ms": 400, "stalls": [[2, 1900]], "stamp": True}
"""Silences longer than the impatient proxy's time-out; and the next token but one comes 0.8 s later."""


async def test_nothing_waits_in_nginx(front):
    """Head and heartbeats come before there is a token, every token before the one after the next, also in a stock nginx.

    That one cuts what is silent for two seconds, and the provider is, twice.
    """
    async with front.http2() as connection:
        through, stock = await asyncio.gather(
            connection.post(CHAT, asked(**SLOW)).until(lambda stream: stream.ended), _stock(front)
        )
    for received in ([tuple(piece) for piece in through.pieces], stock):
        lags = lags_s(received)
        assert len(lags) == SLOW["tokens"]
        assert max(lags) < 0.8, lags
        assert b"[DONE]" in b"".join(data for _, data in received)
        early = [data for _, data in received[: [b"x_sim" in data for _, data in received].index(True)]]
        assert len(early) >= 3  # the head's comment, and heartbeats of 2.6 s
        gaps = [later - at_ns for (at_ns, _), (later, _) in pairwise(received)]
        assert max(gaps) / 1e9 < 2 * HEARTBEAT_S


async def _stock(front):
    """Read the same through the other server, over HTTP/1.1; (ns, bytes) of each read."""
    async with (
        httpx.AsyncClient(headers=HEADERS, timeout=20) as client,
        client.stream("POST", f"http://127.0.0.1:{front.stock_port}{CHAT}", content=asked(**SLOW)) as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        return [(time.monotonic_ns(), data) async for data in answer.aiter_raw()]


async def test_however_a_reader_leaves_the_policy_holds(front):
    """``cancel`` ends at once, ``grace`` after the grace time, ``continue`` never; it is on record; neighbours live on."""
    left = await asyncio.gather(*(left_by(front, how) for how in WAYS))
    records = await front.records([generation_id for ids in left for generation_id in ids.values()])
    for how, ids in zip(WAYS, left, strict=True):
        for policy, generation_id in ids.items():
            on_record(policy, how, records[generation_id])


async def test_a_reader_that_leaves_in_silence_is_told_of(front):
    """Nothing has to be written first, not even a heartbeat: nginx tells the edge at once, and the provider is let go."""
    lived_on_s = await left_in_silence(front)
    assert lived_on_s.pop("whole") < HEARTBEAT_S
    assert lived_on_s.pop("unsaid") < HEARTBEAT_S
    assert min(lived_on_s.values()) < HEARTBEAT_S / 2, lived_on_s


async def test_it_goes_on_over_http2_on_the_other_edge(front):
    """A stream that is reset goes on behind its Last-Event-ID on the other edge: nothing lost, nothing twice.

    The reader on the other edge keeps the generation alive far beyond the grace time.
    """
    async with front.http2() as connection:
        first = connection.post(CHAT, asked("moved", tokens=125, interval_ms=20))
        await first.until(so_many(5))
        generation_id = first.headers["x-generation-id"]
        seen = frames(first.body)
        headers = {"last-event-id": ids_of(seen)[-1]}
        second = connection.get(events_of(generation_id), headers)  # the first stream is open: the other edge
        await second.until(so_many(1))
        first.leave()
        rest = frames(await second.whole())
    assert second.headers["x-resumed-from"] == headers["last-event-id"].split("-")[0]
    assert seen + rest == frames(await front.replay(generation_id))
    assert b"[DONE]" in rest[-1]
    call = front.call_of("moved")
    assert call.finished_s - call.started_s > 1.5 * GRACE_S
    assert not call.aborted_by_client
    edges = front.nginx.edges_of(generation_id)
    assert sorted(edges) == sorted(f"127.0.0.1:{edge.port}" for edge in front.edges)


async def test_its_configuration_changes_under_running_streams(front):
    """A reload, as for a new certificate, cuts no stream, and new connections are taken meanwhile."""
    async with front.http2() as connection:
        running = connection.post(CHAT, asked(tokens=60, interval_ms=20))
        await running.until(so_many(5))
        await front.nginx.reload()
        async with front.http2() as after:
            assert b"[DONE]" in await after.post(CHAT, asked(tokens=3)).whole()
        assert b"[DONE]" in await running.whole()


async def test_a_reader_that_takes_nothing_holds_up_nobody(front):
    """One stream of a connection is not read: its neighbour is whole long before, and it misses nothing when it goes on."""
    lengthy = {"tokens": 1500, "ttft_ms": 0, "interval_ms": 0}
    async with front.http2() as connection:
        slow = connection.post(CHAT, asked("slow", **lengthy))
        slow.paused = True
        quick = connection.post(CHAT, asked("quick", **lengthy))
        assert b"[DONE]" in await quick.whole()
        await slow.until(lambda stream: stream.untaken == WINDOW_BYTES)
        await until(lambda: front.call_of("slow").end == "done")
        assert not slow.over
        slow.take()
        assert frames(await slow.whole()) == frames(await front.replay(slow.headers["x-generation-id"]))


async def test_nginx_dies(front):
    """Kill -9 of the proxy is a cut like any other: its readers go on through the next one, and nothing was cancelled."""
    async with front.http2() as connection:
        cut = connection.post(CHAT, asked("proxy", tokens=100, interval_ms=20))
        await cut.until(so_many(5))
        front.nginx.kill()
        await until(lambda: cut.over)
        assert not cut.ended
    front.nginx.start()
    await front.nginx.until_ready()
    seen, generation_id = frames(cut.body), cut.headers["x-generation-id"]
    async with front.http2() as connection:
        rest = connection.get(events_of(generation_id), {"last-event-id": ids_of(seen)[-1]})
        await rest.whole()
    assert seen + frames(rest.body) == frames(await front.replay(generation_id))
    assert front.call_of("proxy").end == "done"


async def test_tickets_and_keys_are_in_no_log_of_it(front):
    """A ticket opens a stream through nginx; neither it nor the key is in what nginx wrote, and the generation's id is."""
    async with front.http2() as connection:
        begun = connection.post(CHAT, asked(tokens=3))
        await begun.whole()
        generation_id = begun.headers["x-generation-id"]
        given = connection.post(f"/v1/generations/{generation_id}/tickets", b"{}")
        ticket = json.loads(await given.whole())["ticket"]
        path = f"{events_of(generation_id)}&ticket={ticket}"
        async with Http2(front.nginx.port, front.nginx.trust, NAME) as keyless:
            assert b"[DONE]" in await keyless.get(path).whole()
        hidden = connection.get("/metrics")
        await hidden.whole()
        assert hidden.status == 404
    await until(lambda: len(front.nginx.edges_of(generation_id)) == 3)
    assert ticket not in front.nginx.said
    assert KEY not in front.nginx.said


async def test_a_call_that_was_sent_is_not_sent_again(front):
    """Calls that are with an edge which dies fail, and no provider is called for them; reads that are there move on.

    A stream of that edge ends in a reset, not as if it were whole. From then on every call is answered. The last test here:
    it leaves one edge.
    """
    living, doomed = front.edges
    async with front.http2() as connection:
        streams = [connection.post(CHAT, asked(tokens=120, interval_ms=20)) for _ in range(2)]
        for stream in streams:
            await stream.until(so_many(5))
        generation_id = streams[0].headers["x-generation-id"]
        doomed.signal(signal.SIGSTOP)
        before = len(front.provider.requests)
        calls = [connection.post(CHAT, asked(tokens=3)) for _ in range(6)]
        reads = [connection.get(events_of(generation_id)) for _ in range(6)]
        await until(lambda: any(call.over for call in calls))
        assert not all(call.over for call in calls)
        doomed.kill()
        await until(lambda: all(stream.over for stream in [*streams, *calls]))
        statuses = [call.status for call in calls]
        assert set(statuses) == {200, 502}
        assert len(front.provider.requests) == before + statuses.count(200)
        assert sorted(stream.ended for stream in streams) == [False, True]
        await asyncio.gather(*(read.until(so_many(5)) for read in reads))
        for _ in range(3):
            assert b"[DONE]" in await connection.post(CHAT, asked(tokens=3)).whole()
        for read in reads:
            if not read.over:
                read.leave()
        both = f"127.0.0.1:{doomed.port}, 127.0.0.1:{living.port} 502, 200"
        await until(lambda: both in front.nginx.said)
