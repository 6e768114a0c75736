"""The Python client over two edge processes on a real Kafka, while edges die and connections are cut."""

import asyncio
import hashlib
import random
import signal
from contextlib import AsyncExitStack

import openai
import pytest
import tokentrail_client
from tokentrail_client import AsyncClient, GenerationFailed, Store, Text, Times

from tests.support.cutting import Cut, CuttingProxy
from tests.support.processes import KEY
from tests.support.waiting import until

CUTS = 60
STREAMS_AT_ONCE = 6
TIMES = Times(idle_s=5, read_s=60, session_s=120, backoff_s=0.02, backoff_max_s=0.1, call_tries=50)


def asked(tokens, interval_ms=2, **more):
    """Give what an SDK is asked for; the simulator answers with so many tokens, whoever reads meanwhile."""
    return {
        "model": "sim",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        **more,
        "extra_headers": {"x-tokentrail-on-disconnect": "continue"},
        "extra_body": {"simulate": {"tokens": tokens, "interval_ms": interval_ms}},
    }


async def drained(session):
    """Read a session to its end."""
    async for _ in session:
        continue


@pytest.fixture
async def proxies(edges):
    """A proxy in front of each edge that cuts each connection somewhere, by RST or FIN."""
    random_ = random.Random(17)

    def plan():
        return Cut(random_.randint(0, 6000), random_.choice(["rst", "fin"]))

    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(CuttingProxy(edge.url, plan)) for edge in edges]


def sdk(urls, **options):
    """Give the unmodified SDK over our transport."""
    ours = tokentrail_client.async_http_client(edges=urls, times=TIMES, **options)
    return openai.AsyncOpenAI(base_url=f"{urls[0]}/v1", api_key=KEY, max_retries=0, http_client=ours)


async def test_an_sdk_over_two_edges_sees_no_cut(edges, proxies, provider, tmp_path):
    """Streams of an unmodified SDK over random cuts: the text is that of the log, by its hash, whichever edge is asked."""
    with Store(tmp_path / "s.db", sessions_max=1000) as store:
        async with sdk([proxy.url for proxy in proxies], store=store) as client:

            async def one(tokens):
                raw = await client.chat.completions.with_raw_response.create(**asked(tokens))
                text = [c.choices[0].delta.content or "" async for c in raw.parse() if c.choices]
                return raw.headers["x-generation-id"], hashlib.sha256("".join(text).encode()).hexdigest()

            random_, seen = random.Random(2), {}
            while sum(proxy.cuts for proxy in proxies) < CUTS:
                tokens = [random_.randint(10, 80) for _ in range(STREAMS_AT_ONCE)]
                seen.update(await asyncio.gather(*map(one, tokens)))
        assert {s.reason for s in store.sessions()} == {None}
    assert len(provider.requests) == len(
        seen
    )  # whatever was cut before it had a name, nothing was paid for twice
    urls = [edge.url for edge in edges]
    async with AsyncClient(urls, KEY, times=TIMES) as plain:
        for generation_id, digest in seen.items():
            urls.reverse()
            async with plain.attach(generation_id) as session:
                await drained(session)
                assert hashlib.sha256(session.text.encode()).hexdigest() == digest


@pytest.mark.usefixtures("worker")
async def test_an_edge_that_is_killed_ends_its_streams_once(edges, proxies):
    """Kill -9 of an edge among random cuts: every stream gets what the log has, and the one end that it has there."""
    texts, ids, ends = {}, {}, {}

    async def one(name, client):
        raw = await client.chat.completions.with_raw_response.create(**asked(10_000, 20))
        ids[name], texts[name] = raw.headers["x-generation-id"], ""
        try:
            async for chunk in raw.parse():
                texts[name] += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        except openai.APIError as error:
            ends[name] = error.code

    async def kill(plain):
        await until(lambda: len(texts) == STREAMS_AT_ONCE and all(texts.values()), 60)
        edges[0].kill()
        await until(lambda: "edge_lost" in ends.values(), 60)
        for generation_id in ids.values():
            await plain.cancel(generation_id)

    urls = [proxy.url for proxy in proxies]
    async with (
        sdk(urls) as first,
        sdk(urls[::-1]) as second,
        AsyncClient(edges[1].url, KEY, times=TIMES) as plain,
    ):
        runs = [one(n, (first, second)[n % 2]) for n in range(STREAMS_AT_ONCE)]
        await asyncio.gather(kill(plain), *runs)
        assert set(ends.values()) <= {"edge_lost", "cancelled"}
        for name, generation_id in ids.items():
            async with plain.attach(generation_id) as session:
                try:
                    await drained(session)
                    end = session.end.finish_reason
                except GenerationFailed as failed:
                    end = failed.code
            assert (end, session.text) == (ends[name], texts[name])


async def test_an_edge_that_stands_still_is_left(edges):
    """An edge that is frozen says nothing: after the idle time the reader goes on at the edge that runs the generation."""
    first, second = edges
    times, moves, text = Times(idle_s=1.5, read_s=30, session_s=60, backoff_s=0.02), [], []
    body = asked(100, 20)
    body |= body.pop("extra_body")
    headers = body.pop("extra_headers")
    async with (
        AsyncClient([first.url], KEY, times=times) as owner,
        AsyncClient([second.url, first.url], KEY, times=times, on_state=moves.append) as reader,
        owner.stream("/chat/completions", body, headers=headers) as own,
    ):
        head = await anext(aiter(own))
        async with reader.attach(own.generation_id) as session:
            try:
                async for item in session:
                    text += [item.text] if isinstance(item, Text) else []
                    if len(text) == 5:
                        second.signal(signal.SIGSTOP)
            finally:
                second.signal(signal.SIGCONT)
        rest = [item.text async for item in own if isinstance(item, Text)]
    assert "".join(text) == head.text + "".join(rest) == own.text
    assert [change.new.value for change in moves] == [
        "streaming",
        "paused",
        "resuming",
        "streaming",
        "completed",
    ]
