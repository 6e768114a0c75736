"""The clients of a drill: each asks for one answer over lines that cut, reads it to its end, and gives what it has.

Nothing here knows what the log holds. Before: ``world``. After: ``verdict``.
"""

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from functools import partial

import anthropic
import httpx
import openai
import tokentrail_client
from playwright.async_api import async_playwright
from tokentrail_client import AsyncClient, GenerationFailed, Text, Times, ToolCall

from edge.sse import SseDecoder
from tests.drill.verdict import Seen, said_by
from tests.support.browser import CHROMIUM
from tests.support.client import new_client
from tests.support.javascript import NODE_FOLDER, missing, node
from tests.support.processes import HEADERS, KEY

TIMES = Times(idle_s=6, read_s=120, session_s=300, backoff_s=0.02, backoff_max_s=0.2, call_tries=200)
MESSAGES = [{"role": "user", "content": "hi"}]
AGAIN_S = 0.05
ENDINGS = ("edge_lost", "log_unavailable")
"""How a stream may end whose edge died, or stood still."""


def asked(source, **more):
    """Give a request for an answer of random length, one in four with a tool call."""
    script = {"tokens": source.randint(10, 80), "interval_ms": 5, "ttft_ms": 5}
    script |= {"tool_call": {}} if source.random() < 0.25 else {}
    return {"model": "sim", "messages": MESSAGES, "stream": True, "simulate": script, **more}


async def resumer(world):
    """A client of thirty lines that sends Last-Event-ID."""
    source, last_id = world.source, None
    seen = world.reads(Seen("resumer", dialect="openai.chat", seqs=[]))
    key, body = f"{source.random()}", asked(world.source)
    async with new_client() as client:
        while True:
            url = source.choice(world.urls)
            if last_id is None:
                call = client.stream(
                    "POST", f"{url}/v1/chat/completions", json=body, headers={"idempotency-key": key}
                )
            else:
                at = f"{url}/v1/generations/{seen.generation_id}/events?dialect={seen.dialect}"
                call = client.stream("GET", at, headers={"last-event-id": last_id})
            decoder = SseDecoder(1 << 20)
            seen.trail.append(f"asks {world.urls.index(url)} behind {last_id}")
            with contextlib.suppress(httpx.TransportError):
                async with call as response:
                    seen.generation_id = response.headers.get("x-generation-id", seen.generation_id)
                    seen.trail.append(f"is answered {response.status_code}")
                    if response.status_code == httpx.codes.NO_CONTENT:
                        return seen
                    async for piece in response.aiter_raw():
                        for event in decoder.feed(piece):
                            if event.id is not None:
                                last_id = event.id
                                seen.seqs.append(int(event.id.partition("-")[0]))
                                seen.data.append(event.data)
                    if response.status_code == httpx.codes.OK:
                        continue
            await asyncio.sleep(AGAIN_S)  # the client's own pace


async def iterator(world):
    """The Python client's own iterator."""
    seen = world.reads(Seen("tokentrail_client"))
    async with AsyncClient(world.urls, KEY, times=TIMES) as client:
        async with client.stream("/chat/completions", asked(world.source)) as session:
            try:
                async for item in session:
                    seen.text += item.text if isinstance(item, Text) else ""
                    seen.arguments += item.arguments if isinstance(item, ToolCall) else ""
            except GenerationFailed:
                seen.arguments = None  # a call that is not complete is not handed over
        seen.generation_id = session.generation_id
    return seen


async def openai_python(world):
    """The unmodified openai SDK over our transport."""
    seen, body = world.reads(Seen("openai")), asked(world.source)
    ours = tokentrail_client.async_http_client(edges=world.urls, times=TIMES)
    async with openai.AsyncOpenAI(
        base_url=f"{world.urls[0]}/v1", api_key=KEY, max_retries=0, http_client=ours
    ) as client:
        script = {"simulate": body.pop("simulate")}
        raw = await client.chat.completions.with_raw_response.create(**body, extra_body=script)
        seen.generation_id = raw.headers["x-generation-id"]
        try:
            async for chunk in raw.parse():
                for choice in chunk.choices:
                    seen.text += choice.delta.content or ""
                    for call in choice.delta.tool_calls or ():
                        seen.arguments += call.function.arguments or ""
        except openai.APIError as error:
            seen.unended = None if error.code in ENDINGS else repr(error)
    return seen


async def anthropic_python(world):
    """The unmodified anthropic SDK over our transport."""
    seen, body = world.reads(Seen("anthropic")), asked(world.source, max_tokens=1000)
    ours = tokentrail_client.async_http_client(edges=world.urls, times=TIMES)
    async with anthropic.AsyncAnthropic(
        base_url=world.urls[0], api_key=KEY, max_retries=0, http_client=ours
    ) as client:
        script = {"simulate": body.pop("simulate")}
        raw = await client.messages.with_raw_response.create(**body, extra_body=script)
        seen.generation_id = raw.headers["x-generation-id"]
        try:
            async for event in await raw.parse():
                if event.type == "content_block_delta":
                    seen.text += getattr(event.delta, "text", "")
                    seen.arguments += getattr(event.delta, "partial_json", "")
        except anthropic.APIError as error:
            seen.unended = None if any(code in str(error) for code in ENDINGS) else repr(error)
    return seen


class Node:
    """One Node process: each line asks for a stream of the JS SDKs over our fetch, each line of its answer is what it has."""

    def __init__(self, child):
        self._child = child
        self._waiting = {}
        self._count = 0
        self._pump = asyncio.create_task(self._read())

    async def _read(self):
        async for line in self._child.stdout:
            said = json.loads(line)
            waiter = self._waiting.pop(said["number"])
            if not waiter.done():  # who waited may have given up
                waiter.set_result(said)

    async def read(self, sdk, world):
        """Read one stream."""
        self._count += 1
        number = self._count
        self._waiting[number] = asyncio.get_running_loop().create_future()
        case = {
            "number": number,
            "sdk": sdk,
            "urls": world.urls,
            "key": KEY,
            "body": asked(world.source, max_tokens=1000),
        }
        self._child.stdin.write(json.dumps(case).encode() + b"\n")
        said = await self._waiting[number]
        return Seen(
            f"js {sdk}",
            said.get("generationId"),
            text=said.get("text", ""),
            arguments=said.get("arguments", ""),
            refused=said.get("refused"),
            unended=said.get("raised"),
        )

    async def stop(self):
        """End it."""
        self._child.stdin.close()
        await self._child.wait()
        self._pump.cancel()


class Browser:
    """Native EventSources in a page of Chromium, and the application's server that begins for them what they read."""

    def __init__(self, page, world):
        self._page = page
        self._world = world

    async def open(self):
        """Let the page ask its application for another ticket."""
        await self._page.expose_function("anotherTicket", self._ticket)
        return self

    async def read(self):
        """Begin a generation as an application's server does, and read it with a ticket."""
        world = self._world
        seen = world.reads(Seen("EventSource"))
        headers = {"prefer": "respond-async", "idempotency-key": f"{world.source.random()}"}
        begun = await self._asked("/v1/chat/completions", httpx.codes.ACCEPTED, asked(world.source), headers)
        seen.generation_id = begun["generation_id"]
        lines = [url + begun["events_url"] for url in world.urls]
        events = await self._page.evaluate(
            _READ, [seen.generation_id, lines, begun["ticket"], world.source.randint(0, 1)]
        )
        seen.seqs = [int(said[0].partition("-")[0]) for said in events]
        seen.data = [said[1] for said in events]
        seen.text, seen.arguments = said_by(seen.data)
        return seen

    async def _ticket(self, generation_id):
        created = await self._asked(f"/v1/generations/{generation_id}/tickets", httpx.codes.CREATED)
        return created["ticket"]

    async def _asked(self, path, status, body=None, headers=None):
        """Ask either edge until one answers as is wanted."""
        async with httpx.AsyncClient(headers=HEADERS, timeout=60) as client:
            while True:
                url = self._world.source.choice(self._world.urls)
                with contextlib.suppress(httpx.TransportError):
                    answer = await client.post(f"{url}{path}", json=body, headers=headers)
                    if answer.status_code == status:
                        return answer.json()
                await asyncio.sleep(AGAIN_S)  # the client's own pace


_READ = """
([id, lines, ticket, first]) => new Promise((resolve) => {
  const seen = [], names = ["message_start", "frame", "delta", "tool_call_delta", "citation_delta"];
  let at = first;
  const open = () => {
    const last = seen.length ? `&after=${encodeURIComponent(seen[seen.length - 1][0])}` : "";
    const source = new EventSource(`${lines[at++ % lines.length]}?ticket=${ticket}${last}`);
    const take = ({ lastEventId, data }) => { if (lastEventId && data) seen.push([lastEventId, data]); };
    for (const name of names) source.addEventListener(name, take);
    for (const name of ["message_end", "generation_error"]) {
      source.addEventListener(name, (event) => {
        if (JSON.parse(event.data).seq === undefined) return; // broken off: it has no id, and is no end
        take(event);
        source.close();
        resolve(seen);
      });
    }
    source.onerror = async () => {
      if (source.readyState !== EventSource.CLOSED) return;
      ticket = await anotherTicket(id); // it may have been too old
      setTimeout(open, 200);
    };
  };
  open();
})
"""


@asynccontextmanager
async def all_of(world):
    """Give every kind of client that can run here, by name, and why the others cannot."""
    kinds = {
        "resumer": partial(resumer, world),
        "tokentrail_client": partial(iterator, world),
        "openai": partial(openai_python, world),
        "anthropic": partial(anthropic_python, world),
    }
    skipped = {}
    async with async_playwright() as playwright:
        node_process = browser = None
        if missing() is None:
            child = await asyncio.create_subprocess_exec(
                *node(), "drilled.mjs", cwd=NODE_FOLDER, stdin=-1, stdout=-1, limit=1 << 24
            )
            node_process = Node(child)
            kinds |= {
                f"js {sdk}": partial(node_process.read, sdk, world) for sdk in ("openai", "anthropic", "ai")
            }
        else:
            skipped["js"] = missing()
        if CHROMIUM is not None:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            kinds["EventSource"] = (await Browser(await browser.new_page(), world).open()).read
        else:
            skipped["EventSource"] = "Chromium is not installed here (make test installs it as root)"
        try:
            yield kinds, skipped
        finally:
            if node_process is not None:
                await node_process.stop()
            if browser is not None:
                await browser.close()
