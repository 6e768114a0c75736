"""The Python client on real sockets: unmodified SDKs and our iterators, through proxies that cut in front of two edges.

What the SDK accumulates over any cuts is what it accumulates from the provider itself.
"""

import asyncio
import hashlib
import json
import random
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anthropic
import openai
import pytest
import tokentrail_client.vendor
from tokentrail_client import AsyncClient, Client, Store, Text, Times, ToolCall

from tests.support.cutting import WHOLE, Cut, CuttingProxy, refused_head_bytes
from tests.support.dialects import KEY, world
from tests.support.waiting import until

TIMES = Times(idle_s=0.5, read_s=30, session_s=60, backoff_s=0.01, backoff_max_s=0.05, call_tries=50)
ASKED = [{"role": "user", "content": "go"}]
SCRIPT = {"tokens": 90, "reasoning_tokens": 5, "tool_call": {}, "ttft_ms": 1, "interval_ms": 1}
STREAMS, CUTS = 4, 30
OWN_FIELDS = {"id", "created", "created_at", "x_sim", "sequence_number", "item_id", "call_id", "tool_call_id"}


class Cuts:
    """Gives each connection a cut of its own, until a number of them was given."""

    def __init__(self, seed, hang=0.02):
        self._random = random.Random(seed)
        self._hang = hang

    def __call__(self):
        how = "hang" if self._random.random() < self._hang else self._random.choice(["rst", "fin"])
        return Cut(self._random.choice([self._random.randint(0, 900), self._random.randint(900, 9000)]), how)


@asynccontextmanager
async def behind_proxies(plan):
    """Run a provider and two edges with a cutting proxy in front of each: the world, and the proxies."""
    async with AsyncExitStack() as stack:
        two = await stack.enter_async_context(world())
        yield two, [await stack.enter_async_context(CuttingProxy(url, plan)) for url in two.urls]


def bare(value):
    """Give what an SDK made of an event, without what is new in every answer."""
    return _bare(value.to_dict())


def _bare(value):
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key not in OWN_FIELDS}
    return [_bare(item) for item in value] if isinstance(value, list) else value


async def chat(client):
    """Give the chunks of one Chat Completions stream."""
    more = {"stream_options": {"include_usage": True}, "extra_body": {"simulate": SCRIPT}}
    stream = await client.chat.completions.create(model="sim-fast", messages=ASKED, stream=True, **more)
    return [bare(chunk) async for chunk in stream]


async def messages(client):
    """Give the events of one Messages stream; pings are not content."""
    stream = await client.messages.create(
        model="sim-fast", messages=ASKED, max_tokens=1000, stream=True, extra_body={"simulate": SCRIPT}
    )
    return [bare(event) async for event in stream if event.type != "ping"]


async def responses(client):
    """Give the events of one Responses stream."""
    stream = await client.responses.create(
        model="sim-fast", input="go", stream=True, extra_body={"simulate": SCRIPT}
    )
    return [bare(event) async for event in stream]


def sdk(call, url, **options):
    """Give the SDK of a call at an address, without retries of its own."""
    options = {"api_key": KEY, "max_retries": 0, **options}
    if call is messages:
        return anthropic.AsyncAnthropic(base_url=url, **options)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", **options)


@pytest.mark.parametrize("call", [chat, messages, responses], ids=lambda call: call.__name__)
async def test_an_unmodified_sdk_sees_no_cut(call):
    """Random cuts by RST, FIN and silence, at any byte of head and body: every event once, and one call for each of ours."""
    async with behind_proxies(Cuts(call.__name__)) as (two, proxies):
        async with sdk(call, two.direct) as direct:
            expected = await call(direct)
        ours = tokentrail_client.async_http_client(edges=[proxy.url for proxy in proxies], times=TIMES)
        async with sdk(call, proxies[0].url, http_client=ours) as through:
            while sum(proxy.cuts for proxy in proxies) < CUTS:
                for got in await asyncio.gather(*(call(through) for _ in range(STREAMS))):
                    assert got == expected


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_the_blocking_sdk_sees_no_cut(library):
    """The same under the blocking SDK, over either HTTP library that it takes, and the text's hash is equal."""
    hashes = set()

    def text(client):
        with client.chat.completions.stream(
            model="sim-fast", messages=ASKED, extra_body={"simulate": SCRIPT}
        ) as stream:
            for _ in stream:
                continue
            (choice,) = stream.get_final_completion().choices
        said = f"{choice.message.content}|{choice.message.tool_calls[0].function.arguments}"
        return hashlib.sha256(said.encode()).hexdigest()

    async with behind_proxies(Cuts(5)) as (two, proxies):
        with openai.OpenAI(base_url=f"{two.direct}/v1", api_key="any", max_retries=0) as direct:
            hashes.add(await asyncio.to_thread(text, direct))
        ours = tokentrail_client.http_client(
            edges=[proxy.url for proxy in proxies], times=TIMES, library=library
        )
        with openai.OpenAI(
            base_url=f"{proxies[0].url}/v1", api_key=KEY, max_retries=0, http_client=ours
        ) as through:
            while sum(proxy.cuts for proxy in proxies) < CUTS // 3:
                hashes.update(await asyncio.gather(*(asyncio.to_thread(text, through) for _ in range(2))))
    assert len(hashes) == 1


async def test_an_answer_in_one_piece_survives_its_cut():
    """A call without a stream whose head or body was cut gives the whole answer."""
    plans = iter([Cut(0), Cut(60, "fin"), Cut(420, "fin"), Cut(500), WHOLE])
    async with behind_proxies(lambda: next(plans, WHOLE)) as (two, proxies):
        ours = tokentrail_client.async_http_client(edges=[proxy.url for proxy in proxies], times=TIMES)
        async with sdk(chat, proxies[0].url, http_client=ours) as client:
            answer = await client.chat.completions.create(
                model="sim-fast", messages=ASKED, extra_body={"simulate": SCRIPT}
            )
        assert answer.choices[0].message.tool_calls[0].function.name == "get_weather"
        assert sum(proxy.cuts for proxy in proxies) == 4
        assert len(two.simulator.requests) == 1


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("path", ["/chat/completions", "/messages", "/responses"])
async def test_iterators_see_no_cut(blocking, path, tmp_path):
    """Our own iterators, in every dialect: the same text, the tool call once and whole, and a journal without a hole."""
    body = {"model": "sim-fast", "simulate": SCRIPT, "max_tokens": 1000}
    body |= {"input": "go"} if path == "/responses" else {"messages": ASKED}

    def read_blocking(urls, store):
        with Client(urls, KEY, store=store, times=TIMES) as client, client.stream(path, body) as session:
            return list(session), session.name

    async def read(urls, store):
        if blocking:
            return await asyncio.to_thread(read_blocking, urls, store)
        async with (
            AsyncClient(urls, KEY, store=store, times=TIMES) as client,
            client.stream(path, body) as session,
        ):
            return [item async for item in session], session.name

    async with behind_proxies(Cuts(3)) as (two, proxies):
        with Store(tmp_path / "s.db") as store:
            whole, _ = await read(two.urls, store)
            text = "".join(item.text for item in whole if isinstance(item, Text))
            calls = 1
            while sum(proxy.cuts for proxy in proxies) < CUTS // 4:
                calls += 1
                items, name = await read([proxy.url for proxy in proxies], store)
                assert "".join(item.text for item in items if isinstance(item, Text)) == text
                assert [item.parsed()["days"] for item in items if isinstance(item, ToolCall)] == [3]
                journal = [frame.seq for frame in store.events(name)]
                assert journal == list(range(len(journal)))
        assert len(two.simulator.requests) == calls


@pytest.mark.parametrize("call", [chat, messages, responses], ids=lambda call: call.__name__)
async def test_a_refusal_that_was_cut_is_the_sdks_own_error(call):
    """Cut within its body it is asked for again: the SDK raises its own error with what the edge says."""
    async with behind_proxies(lambda: WHOLE) as (two, (line, _)):
        cuts = iter([Cut(await refused_head_bytes(two.urls[0]) + 20)] * 2)
        line.plan = lambda: next(cuts, WHOLE)
        ours = tokentrail_client.async_http_client(times=TIMES)
        async with sdk(call, line.url, http_client=ours, api_key="nobody's") as through:
            with pytest.raises(Exception, match="this API key is not known here") as caught:
                await call(through)
        assert (caught.value.status_code, line.cuts) == (401, 2)


async def test_an_sdks_connection_error_has_ours_as_its_cause():
    """A stream that can be had no more: the SDK names the connection only, the cause begins with our code."""
    http = tokentrail_client.vendor.Flavour().http
    page = http.MockTransport(lambda _: http.Response(200, html="<html>sign in</html>"))
    ours = tokentrail_client.async_http_client(times=replace(TIMES, call_tries=2), transport=page)
    with pytest.raises(openai.APIConnectionError) as caught:
        await chat(sdk(chat, "http://edge.test", http_client=ours))
    assert str(caught.value.__cause__).startswith("not_an_edge: ")


async def test_both_edges_away_for_a_while():
    """A stream whose edges cannot be reached goes on when they can, and says meanwhile that it is resuming."""
    moves = []
    async with behind_proxies(lambda: WHOLE) as (two, proxies):
        ours = tokentrail_client.async_http_client(
            edges=[proxies[1].url], times=TIMES, on_state=lambda change: moves.append(change.new.value)
        )
        slow = {"tokens": 60, "interval_ms": 5}
        async with sdk(chat, proxies[0].url, http_client=ours) as client:
            stream = await client.chat.completions.create(
                model="sim-fast", messages=ASKED, stream=True, extra_body={"simulate": slow}
            )
            seen = []
            async for chunk in stream:
                seen.append(chunk.choices[0].delta.content or "" if chunk.choices else "")
                if len(seen) == 10:
                    for proxy in proxies:
                        proxy.refusing = True
                        proxy.sever()
                    asyncio.get_running_loop().call_later(
                        0.3, lambda: [setattr(p, "refusing", False) for p in proxies]
                    )
        async with sdk(chat, two.direct) as direct:
            stream = await direct.chat.completions.create(
                model="sim-fast", messages=ASKED, stream=True, extra_body={"simulate": slow}
            )
            expected = [c.choices[0].delta.content or "" if c.choices else "" async for c in stream]
    assert "".join(seen) == "".join(expected)
    assert moves[:3] == ["streaming", "paused", "resuming"]
    assert moves.count("paused") > 1
    assert moves[-1] == "completed"


async def test_leaving_a_stream_reaches_the_provider():
    """A stream that the application leaves in the middle: the provider's socket is closed, long before any grace time."""
    async with behind_proxies(lambda: WHOLE) as (two, proxies):
        ours = tokentrail_client.async_http_client(times=TIMES)
        async with sdk(chat, proxies[0].url, http_client=ours) as client:
            stream = await client.chat.completions.create(model="sim-long", messages=ASKED, stream=True)
            async with stream:
                await anext(aiter(stream))
            await until(lambda: two.simulator.requests[-1].aborted_by_client, 5)


class Noting:
    """A transport that notes what acknowledgements are answered; it may spoil their checksums."""

    def __init__(self, *, spoil):
        self._inner = tokentrail_client.vendor.Flavour().transport(blocking=False)
        self._spoil = spoil
        self.answers = []

    async def handle_async_request(self, request):
        """Send a request."""
        if not request.url.path.endswith("/ack"):
            return await self._inner.handle_async_request(request)
        said = json.loads(request.content)
        if self._spoil:
            said["ranges"] = [[first, last, "00000000"] for first, last, _ in said["ranges"]]
        headers = [(k, v) for k, v in request.headers.items() if k != "content-length"]
        changed = type(request)(
            "POST", request.url, headers=headers, json=said, extensions=request.extensions
        )
        response = await self._inner.handle_async_request(changed)
        self.answers.append((response.status_code, json.loads(await response.aread())))
        return response

    async def aclose(self):
        """Close what is below."""
        await self._inner.aclose()


@pytest.mark.parametrize("spoil", [False, True])
async def test_an_edge_takes_our_acknowledgements(spoil, tmp_path):
    """What was stored is what the edge has; where a checksum differs the events come again, and no item twice."""
    body = {"model": "sim-fast", "simulate": SCRIPT, "messages": ASKED}
    noting = Noting(spoil=spoil)
    async with behind_proxies(lambda: WHOLE) as (two, _):
        with Store(tmp_path / "s.db") as store:
            options = {"store": store, "times": TIMES, "acks": True, "transport": noting}
            async with (
                AsyncClient(two.urls, KEY, **options) as client,
                client.stream("/chat/completions", body, session="one") as session,
            ):
                cursors = [item.cursor async for item in session if item.cursor]
            journal = [frame.seq for frame in store.events("one")]
    assert len(set(cursors)) == len(cursors)
    assert journal == list(range(len(journal)))
    assert len(noting.answers) > 2
    assert {status for status, _ in noting.answers} == {200}
    again = [answer for _, answer in noting.answers if answer["resent"] or answer["nack"]]
    assert len(again) == (len(noting.answers) if spoil else 0)
