"""The JS client library in a real browser: its modules as they are, its store in IndexedDB, a page that is reloaded."""

import pytest
import pytest_asyncio

from tests.support.dialects import KEY, QUICK
from tests.support.javascript import CLIENT
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="package")
SLOW = QUICK | {"tokens": 60, "interval_ms": 15}
HELD = SLOW | {"stalls": [[40, 60_000]]}  # goes on when the simulator is told to
STREAMED = "connections => window.told.filter((state) => state === 'STREAMING').length === connections"
BEGIN = """async ([edge, key, simulate]) => {
  const tokentrail = await import("/client/index.js");
  const store = tokentrail.indexedDBStore();
  const body = { model: "sim-chat", messages: [{ role: "user", content: "go" }], simulate };
  window.told = [];
  window.seen = [];
  const onState = ({ state }) => window.told.push(state);
  const stream = (await tokentrail.resume("chat-7", { store, apiKey: key, onState }))
    ?? tokentrail.generate({ edge, apiKey: key, body, store, session: "chat-7", onState });
  window.reading = (async () => {
    for await (const { seq } of stream) window.seen.push(seq);
    return { text: stream.text, told: window.told, seen: window.seen, sessions: (await store.list()).length };
  })();
}"""
TRANSPORT = """async ([edge, key, simulate]) => {
  const tokentrail = await import("/client/index.js");
  const told = (window.told = []);
  window.abort = new AbortController();
  const fetch = tokentrail.fetch({ onState: ({ state }) => told.push(state) });
  const body = JSON.stringify({ model: "sim-chat", stream: true, messages: [{ role: "user", content: "go" }], simulate });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const response = await fetch(`${edge}/v1/chat/completions`, { method: "POST", headers, body, signal: window.abort.signal });
  window.reading = (async () => {  // as an SDK reads
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let read = await reader.read(); !read.done; read = await reader.read()) text += read.value;
    return { text, told };
  })().catch(({ name }) => ({ name, told }));
}"""


@pytest_asyncio.fixture(loop_scope="package")
async def blank(browser):
    """Give a way to open a page without a script at an edge's address, whose `/client/` is the library's own files."""
    contexts = []

    async def opened(url):
        context = await browser.new_context()
        contexts.append(context)

        async def ours(route):
            name = route.request.url.partition("/client/")[2]
            await route.fulfill(path=CLIENT / "src" / name, content_type="text/javascript")

        await context.route(f"{url}/client/**", ours)
        page = await context.new_page()
        await page.goto(
            f"{url}/healthz"
        )  # really from there: what a test makes up is no page of this machine to Chromium
        return page

    yield opened
    for context in contexts:
        await context.close()


async def text_of(page, url):
    """What an uncut stream of the same question says."""
    await page.evaluate(TRANSPORT, [url, KEY, SLOW])
    return (await page.evaluate("window.reading"))["text"]


async def test_a_page_that_is_reloaded_goes_on_from_its_store(two, proxy, blank):
    """Cut, then reloaded in the middle: the page has its items again from IndexedDB and the rest from the log, each once."""
    page = await blank(proxy.url)
    await page.evaluate(BEGIN, [proxy.url, KEY, HELD])
    await page.wait_for_function("window.seen.length > 10")
    proxy.sever("rst")
    await page.wait_for_function(STREAMED, arg=2)
    await page.wait_for_function("window.seen.length > 20")
    before = await page.evaluate("window.seen.length")
    await page.reload()
    proxy.refusing = True
    await page.evaluate(BEGIN, [proxy.url, KEY, HELD])
    await page.wait_for_function(f"window.seen.length >= {before}")
    proxy.refusing = False
    two.simulator.release()
    got = await page.evaluate("window.reading")
    assert got["seen"] == sorted(set(got["seen"]))
    assert got["told"][0] == "RESUMING"
    assert got["told"][-1] == "COMPLETED"
    assert got["sessions"] == 1
    again = await blank(two.urls[1])
    await again.evaluate(BEGIN, [two.urls[1], KEY, HELD])
    assert (await again.evaluate("window.reading"))["text"] == got["text"]


async def test_the_fetch_survives_a_cut_in_a_browser(two, proxy, blank):
    """Called from a page of another origin, over a line that is cut twice, the stream is that of a line that is not cut."""
    page = await blank(two.urls[1])
    await page.evaluate(TRANSPORT, [proxy.url, KEY, HELD])
    for connection, how in ((2, "rst"), (3, "fin")):
        assert proxy.sever(how) == 1
        await page.wait_for_function(STREAMED, arg=connection)
    two.simulator.release()
    got = await page.evaluate("window.reading")
    assert got["told"].count("RESUMING") >= 2
    assert bare(got["text"]) == bare(await text_of(await blank(two.urls[1]), two.urls[1]))


async def test_an_abort_in_a_browser_ends_the_generation(two, proxy, blank):
    """An abort in a page of another origin is a cancel: the provider's socket closes, well before the grace time is over."""
    before = len(two.simulator.requests)
    page = await blank(two.urls[1])
    await page.evaluate(TRANSPORT, [proxy.url, KEY, SLOW | {"tokens": 5_000}])
    await page.evaluate("window.abort.abort()")
    assert await page.evaluate("window.reading") == {"name": "AbortError", "told": ["STREAMING", "CANCELLED"]}
    (seen,) = list(two.simulator.requests)[before:]
    await until(lambda: seen.finished_s is not None, within_s=2)
    assert seen.aborted_by_client


def bare(text):
    """The data of a stream without what is new in every answer."""
    lines = [line for line in text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [line.partition('"choices"')[2] for line in lines]
