"""The browser's own EventSource, which can set no header: a ticket opens a generation, and a broken connection mends itself."""

import json

import httpx
import pytest

from tests.support.cutting import WHOLE, Cut
from tests.support.dialects import HEADERS

pytestmark = pytest.mark.asyncio(loop_scope="package")
READ = """
([path, ticket]) => new Promise((resolve) => {
  window.seen = [];
  const source = new EventSource(`${path}?ticket=${encodeURIComponent(ticket)}`);
  for (const name of ["message_start", "frame", "delta", "message_end", "generation_error"]) {
    source.addEventListener(name, (event) => window.seen.push([event.lastEventId, name, event.data]));
  }
  window.opened = 0;
  source.onopen = () => (window.opened += 1);
  source.onerror = () => source.readyState === EventSource.CLOSED && resolve([window.seen, window.opened]);
})
"""


async def test_an_event_source_with_a_ticket(two, proxy, browser):
    """Cut in the middle it comes back with the id of its last event, has every event once, and stops by itself at the end."""
    script = {"tokens": 60, "ttft_ms": 0, "interval_ms": 20}
    asked = {"model": "sim-chat", "messages": [{"role": "user", "content": "go"}], "simulate": script}
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as http:
        answer = await http.post(
            f"{two.urls[0]}/v1/chat/completions", json=asked, headers={"prefer": "respond-async"}
        )
    begun = answer.json()
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(proxy.url)
    proxy.sever("fin")
    before = proxy.cuts
    # A browser opens connections in advance: which of them the stream takes is not ours to say.
    proxy.plan = lambda: Cut(after_bytes=3000) if proxy.cuts == before else WHOLE
    seen, opened = await page.evaluate(READ, [begun["events_url"], begun["ticket"]])
    await context.close()
    assert opened == 1 + proxy.cuts - before > 1
    numbers = [json.loads(data)["seq"] for _, _, data in seen]
    assert numbers == list(range(len(numbers)))
    assert [name for _, name, _ in seen if name in ("message_end", "generation_error")] == ["message_end"]
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as http:
        result = await http.get(two.urls[1] + begun["result_url"])
    said = [part["text"] for _, name, data in seen if name == "delta" for part in json.loads(data)["parts"]]
    assert "".join(said) == result.json()["choices"][0]["message"]["content"]
