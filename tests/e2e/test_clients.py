"""Every client that people use, unmodified: what it accumulates through us equals what it accumulates directly.

One matrix: client × what the provider says, in each dialect, against an edge process on a real Kafka. The providers are
scripts with everything that a gateway could lose (``tests/support/answers.py``) and ``llmock``, which nobody here wrote.
The edge's heartbeat is shorter than the silences of the scripts, so that it speaks in between. What is left out of the
comparison is named: the number that is our seq in Responses, and what ``llmock`` draws anew for each answer.
"""

import asyncio
import contextlib
import hashlib
import json
import re

import httpx
import pytest
import pytest_asyncio
from httpx_sse import aconnect_sse

from compose.faults import FaultProxy
from tests.support import sdk_python
from tests.support.answers import ANSWERS, ERRORS, PATHS
from tests.support.drivers import Driver, litellm_command, node_command
from tests.support.llmock import running_llmock
from tests.support.processes import HEADERS, KEY, Edge, environment
from tests.support.scripted import ScriptedProvider

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]

OPENAI = ("openai.chat", "openai.responses")
CLIENTS = {  # client: (where it runs, the dialects that it speaks)
    "openai": ("here", OPENAI),
    "openai sync": ("here", OPENAI),
    "anthropic": ("here", ("anthropic.messages",)),
    "httpx-sse": ("here", tuple(PATHS)),
    "openai.mjs": ("node", OPENAI),
    "anthropic.mjs": ("node", ("anthropic.messages",)),
    "ai.mjs": ("node", ("openai.chat", "anthropic.messages")),
    "eventsource.mjs": ("node", tuple(PATHS)),
    "litellm": ("litellm", tuple(PATHS)),
}
LLMOCK = {"llmock": "plain", "llmock tools": "tools", "llmock json": "json"}
AGENTS = ("anthropic", "openai.mjs", "anthropic.mjs", "ai.mjs")
"""Clients that call tools themselves until the model is done."""
ASKED = {"tools": "tools", "no arguments": "tools", "json": "json"}
SHOWN = {
    "text": "the end.", "length": "你好", "stop": "the end.", "json": "rich", "refusal": "won't", "reasoning": "think",
    "tools": "get_weather", "no arguments": "get_weather", "choices": "content_filter", "citations": "é", "audio": "stop", "silent": "the end.",
    "in band": ("said", "Grüße"), **{str(status): str(status) for status in ERRORS}, "llmock": "Zürich", "llmock tools": "mock-city", "llmock json": "mock-city",
}  # fmt: skip
"""What must be seen of each answer, so that nothing is compared with nothing."""
DRAWN = frozenset(
    {"id", "created", "created_at", "call_id", "item_id", "tool_call_id", "tool_use_id", "toolCallId"}
)
QUICK_S = 0.05
"""The heartbeat of the edge that speaks in every silence; failures come to the other, before any heartbeat is due."""
ALWAYS_ASKED = {"TOKENTRAIL_RETRY__MAX_ATTEMPTS": "1", "TOKENTRAIL_BREAKER__FAILURES": "1000000"}
"""Each call is one call of the provider, however often it failed in the tests before."""
BEFORE_THE_HEAD = frozenset(str(status) for status in ERRORS)
OBEDIENT = {"openai": "openai.chat", "anthropic": "anthropic.messages", "openai.mjs": "openai.responses",
            "anthropic.mjs": "anthropic.messages"}  # fmt: skip
"""Clients that do what ``x-should-retry`` says, and how each is asked."""


BY_THE_OTHER = ("length", "json", "refusal", "audio", "citations", "400", "429", "llmock json")
NOT_COMPARED = {
    **{("httpx-sse", script): "text as it came holds what is drawn anew" for script in LLMOCK},
    **{("eventsource.mjs", script): "it asks for nothing" for script in ("llmock tools", "llmock json")},
    **{(client, "llmock json"): "llmock knows an earlier field" for client in ("anthropic", "anthropic.mjs")},
    **{("litellm", script): "it asks for no shape" for script in ("json", "llmock json")},
    **{
        ("litellm", script): "as others"
        for script in ("length", "stop", "audio", "choices", "no arguments", "400")
    },
    **{("openai sync", script): "read as by the asynchronous one" for script in BY_THE_OTHER},
    **{
        (client, status): "as 400"
        for status in ("401", "500")
        for client in CLIENTS
        if client not in OBEDIENT
    },
}
CASES = [
    pytest.param(dialect, client, script, id=f"{client}-{dialect}-{script}")
    for client, (_, dialects) in CLIENTS.items()
    for dialect in dialects
    for script in [*ANSWERS[PATHS[dialect]], *LLMOCK]
    if script != "cut" and (client, script) not in NOT_COMPARED
]


class World:
    """A scripted provider, llmock, two edges in front of both, and the clients."""

    def __init__(self, scripted, mock, edges, drivers, stack):
        self.scripted = scripted
        self.quick, self.usual = edges
        self._mock_url = mock.base_url.removesuffix("/v1")
        self._drivers = drivers
        self._stack = stack
        self._opened = {}

    def urls(self, dialect, script):
        """Where the provider is, and the edge in front of it, as an SDK takes it without ``/v1``."""
        edge = self.usual if script in BEFORE_THE_HEAD else self.quick
        if script not in LLMOCK:
            return self.scripted.url, edge.url
        return self._mock_url + ("/anthropic" if dialect == "anthropic.messages" else ""), edge.url

    async def ask(self, client, url, dialect, model, asked):
        """What a client makes of it: {way: outcome}."""
        where, _ = CLIENTS[client]
        if where == "here":
            opened = self._opened.get((client, url))
            if opened is None:
                opened = self._opened[client, url] = sdk_python.OPENED[client](url)
                self._stack.push_async_callback(closed, opened)
            return await sdk_python.SPEAKS[client](opened, dialect, model, asked)
        if where not in self._drivers:
            pytest.skip(f"the clients of {where} are not installed here (make test installs them)")
        question = {"client": client, "url": url, "dialect": dialect, "model": model, "asked": asked}
        return await self._drivers[where].ask(**question, key=KEY)

    async def both(self, client, dialect, script, model, asked):
        """The same client at the provider and at an edge."""
        urls = self.urls(dialect, script)
        answers = await asyncio.gather(*(self.ask(client, url, dialect, model, asked) for url in urls))
        drawn = script in LLMOCK or client == "litellm"
        return [compared(json.loads(json.dumps(answer)), drawn=drawn) for answer in answers]

    def calls_of(self, model):
        """How often the scripted provider was asked for a model."""
        return sum(seen.model == model for seen in self.scripted.seen)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(topics, tmp_path_factory):
    """Give the two providers, two edge processes in front of them on the session's Kafka, and the clients."""
    folder = tmp_path_factory.mktemp("clients")
    async with contextlib.AsyncExitStack() as stack:
        mock = stack.enter_context(running_llmock(folder))
        scripted = await stack.enter_async_context(ScriptedProvider(ANSWERS))
        (folder / "tokentrail.toml").write_text(config(scripted, mock))
        edges = []
        for name, heartbeat in (("quick", {"TOKENTRAIL_STREAM__HEARTBEAT_S": str(QUICK_S)}), ("usual", {})):
            edge = Edge(folder, environment(topics, ALWAYS_ASKED | heartbeat), name)
            stack.callback(edge.stop)
            edge.start()
            edges.append(edge)
        drivers = {}
        for name, command in (("node", node_command()), ("litellm", litellm_command())):
            if command is not None:
                drivers[name] = await stack.enter_async_context(Driver(command, folder / f"{name}.log"))
        for edge in edges:
            await edge.until_ready()
        yield World(scripted, mock, edges, drivers, stack)


async def closed(client):
    """Close a client, whichever way it wants it."""
    ending = client.aclose() if hasattr(client, "aclose") else client.close()
    if ending is not None:
        await ending


def config(scripted, mock):
    """The edge's configuration: llmock by name, every other model is the scripted provider's."""
    mock_url = mock.base_url.removesuffix("/v1")
    urls = {
        "scripted": (f"{scripted.url}/v1", scripted.url),
        "llmock": (mock.base_url, f"{mock_url}/anthropic"),
    }
    lines, route = [], []
    for who, (openai_url, anthropic_url) in urls.items():
        for dialect in PATHS:
            name = f"{who}_{dialect.partition('.')[2]}"
            url = anthropic_url if dialect == "anthropic.messages" else openai_url
            lines += [f'[providers.{name}]\ndialect = "{dialect}"\nbase_url = "{url}"']
            if who == "llmock":
                lines += [f'[[models."llmock {dialect}"]]\nprovider = "{name}"']
            else:
                route += [f'{{provider = "{name}"}}']
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    lines += [f'[[keys]]\nid = "k1"\ntenant = "acme"\nsha256 = "{digest}"']
    return "\n".join([f"default_route = [{', '.join(route)}]", *lines])


def compared(value, *, drawn):
    """What is compared of an outcome: all but the number that is ours.

    ``drawn``: also but what is drawn for each answer, and what is null: where usage was asked for, which we always do,
    llmock says on every chunk that it is null.
    """
    if isinstance(value, dict):
        left_out = {"sequence_number"} | (DRAWN if drawn else set())
        kept = {key: compared(item, drawn=drawn) for key, item in value.items() if key not in left_out}
        return {key: item for key, item in kept.items() if item is not None} if drawn else kept
    return [compared(item, drawn=drawn) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("dialect", "client", "script"), CASES)
async def test_what_a_client_accumulates(world, dialect, client, script):
    """Plain calls, events one by one, the SDK's own accumulators and parsers, and the errors that it raises are equal."""
    model = f"llmock {dialect}" if script in LLMOCK else script
    asked = LLMOCK.get(script) or ASKED.get(script, "plain")
    direct, through = await world.both(client, dialect, script, model, asked)
    if (
        script == "in band"
    ):  # a provider that fails before it answers in one piece has a status: tried elsewhere
        direct.pop("whole", None), through.pop("whole", None)
    assert through == direct
    shown, said = SHOWN[script], json.dumps(direct, ensure_ascii=False)
    assert any(mark in said for mark in (shown if isinstance(shown, tuple) else (shown,)))


@pytest.mark.parametrize("client", AGENTS)
async def test_an_agent_runs_to_its_end(world, client):
    """A client that calls the tools itself and asks again does through us what it does directly: two calls, one answer."""
    dialect = CLIENTS[client][1][0]
    direct, through = await world.both(client, dialect, "llmock", f"llmock {dialect}", "agent")
    assert through == direct
    assert '"city"' in json.dumps(direct)


@pytest.mark.parametrize(
    ("client", "dialect"), [(c, d) for c, (_, spoken) in CLIENTS.items() for d in spoken]
)
async def test_a_stream_that_was_cut(world, client, dialect):
    """No client takes a stream that was cut for a whole answer, whichever way it reads; the failure is named."""
    came = await world.ask(client, world.quick.url, dialect, "cut", "plain")
    for way, outcome in came.items():
        said = json.dumps(outcome)
        assert '"raised"' in said or "incomplete_upstream" in said, way
    assert re.search("incomplete_upstream|without a terminal", json.dumps(came))


async def test_a_background_answer_is_found_by_its_id(world):
    """The SDK begins an answer that runs on by itself, takes up its stream behind an event, and has the whole of it."""
    direct, url = world.urls("openai.responses", "text")
    plain = await world.ask("openai.mjs", direct, "openai.responses", "text", "plain")
    found = (await world.ask("openai.mjs", url, "openai.responses", "text", "background"))["found"]
    assert found["ended"] == plain["whole"]
    assert found["begun"] in ("in_progress", "completed")
    assert found["numbers"] == list(range(3, 3 + len(found["numbers"])))


@pytest.mark.parametrize("client", OBEDIENT)
async def test_tries_are_not_multiplied(world, client):
    """A failure that our own tries were spent on is not tried again by an SDK; one that may be is, as it says."""
    dialect = OBEDIENT[client]
    once, again = f"500@{client}", f"429@{client}"
    came = await asyncio.gather(
        *(world.ask(client, world.usual.url, dialect, m, "retry") for m in (once, again))
    )
    assert ["said 500" in json.dumps(came[0]), "said 429" in json.dumps(came[1])] == [True, True]
    assert world.calls_of(once) == 1
    assert world.calls_of(again) > 1


@pytest.mark.parametrize("dialect", PATHS)
async def test_the_silences_were_filled(world, dialect):
    """In the silences of the script the edge spoke: before the first event, and in the middle of the stream."""
    mark = "event: ping" if dialect == "anthropic.messages" else ": heartbeat"
    body = {"model": "silent", "messages": [{}], "input": "x", "max_tokens": 9, "stream": True}
    found = set()
    async with httpx.AsyncClient(headers=HEADERS) as http:
        for _ in range(5):  # a machine that is busy for as long as a silence lasts swallows it
            text = (await http.post(world.quick.url + PATHS[dialect], json=body)).text
            before, *between = re.split(r"^id:", text, flags=re.MULTILINE)
            found |= {
                place
                for place, frames in (("before", [before]), ("in it", between[:-1]))
                if mark in "".join(frames)
            }
            if len(found) > 1:
                break
    assert found == {"before", "in it"}


async def test_an_event_source_reconnects(world):
    """A browser's client that was cut comes back by itself with its last id, and has every event once, in order."""
    path = "events?dialect=openai.chat"
    body = {"model": "silent", "messages": [{}], "stream": True}
    async with httpx.AsyncClient(headers=HEADERS, timeout=30) as http:
        head = (await http.post(f"{world.usual.url}/v1/chat/completions", json=body)).headers
        url = f"/v1/generations/{head['x-generation-id']}/{path}"
        _, replay = await read(http, world.quick.url + url)
    async with FaultProxy("127.0.0.1", world.quick.port) as proxy:
        proxy.cut_after(1_500)
        came = await world.ask("eventsource.mjs", proxy.url + url, "openai.chat", "silent", "resume")
    *events, last = came["events"]
    assert [tuple(event) for event in events] == replay
    assert last == {"opened": 2}


async def read(http, url):
    """The headers and the events of a stream, as (id, event, data)."""
    async with aconnect_sse(http, "GET", url) as source:
        return source.response.headers, [(e.id, e.event, e.data) async for e in source.aiter_sse()]
