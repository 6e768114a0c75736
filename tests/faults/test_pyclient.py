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

CUTS = 60
STREAMS_AT_ONCE = 6
TIMES = Times(idle_s=5, read_s=60, session_s=120, backoff_s=0.02, backoff_max_s=0.1, call_tries=50)


def asked(tokens, interval_ms=2, **more):
    """Give what an SDK is asked for; the simulator answers with so many tokens."""
    return {
        "model": "sim",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        **more,
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
async def test_an_edge_that_is_killed_ends_its_stream_once(edges):
    """Kill -9 of the edge in the middle: the SDK, resumed at the other, gets what the log has, and edge_lost at the end."""
    first, second = edges
    text, said = [], None
    async with sdk([first.url, second.url]) as client:
        raw = await client.chat.completions.with_raw_response.create(**asked(10_000, 20))
        generation_id = raw.headers["x-generation-id"]
        try:
            async for chunk in raw.parse():
                text.append(chunk.choices[0].delta.content or "" if chunk.choices else "")
                if len(text) == 5:
                    first.kill()
        except openai.APIError as error:
            said = error.code
    assert said == "edge_lost"
    async with AsyncClient(second.url, KEY, times=TIMES) as plain, plain.attach(generation_id) as session:
        with pytest.raises(GenerationFailed, match="edge_lost"):
            await drained(session)
    assert session.text == "".join(text)


async def test_an_edge_that_stands_still_is_left(edges):
    """An edge that is frozen says nothing: after the idle time the reader goes on at the edge that runs the generation."""
    first, second = edges
    times, moves, text = Times(idle_s=1.5, read_s=30, session_s=60, backoff_s=0.02), [], []
    body = asked(100, 20)
    body |= body.pop("extra_body")
    async with (
        AsyncClient([first.url], KEY, times=times) as owner,
        AsyncClient([second.url, first.url], KEY, times=times, on_state=moves.append) as reader,
        owner.stream("/chat/completions", body) as own,
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
