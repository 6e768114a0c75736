"""The playground in a real browser: stream, break the network, resume, cancel, and compare with what the log holds."""

import asyncio
import json
import re

import httpx
import pytest
from playwright.async_api import expect

from tests.support.browser import ENDLESS, SHORT, STEADY
from tests.support.cutting import WHOLE, Cut
from tests.support.dialects import HEADERS
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def held(url, generation_id):
    """Give the text that a replay of the log gives, from the other edge."""
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as http:
        answer = await http.get(f"{url}/v1/generations/{generation_id}/result")
    return answer.json()["choices"][0]["message"]["content"]


async def whole(tab, two, generation_id, *, connections):
    """Hold what the page shows to the log, over at least so many connections, and its counters to it."""
    await tab.said("status", "Complete")
    assert await tab.as_sent() == await held(two.urls[1], generation_id)
    counts = await tab.page.text_content("#counts")
    events, lost, repeated, made = (int(number) for number in re.findall(r"\d+", counts))
    assert (lost, repeated) == (0, 0)
    assert made >= connections
    assert events == two.services[0].registry.get(generation_id).terminal.event.seq + 1


async def test_an_answer_streams(two, tab_on):
    """A question is streamed to its end: the text is the log's, and it is said how it ended and what it took."""
    async with tab_on(two.urls[0]) as tab:
        generation_id = await tab.ask(**SHORT)
        await whole(tab, two, generation_id, connections=1)
        assert tab.page.url.endswith(f"#g={generation_id}")
        for words in ("complete: stop", "sim-fast", "openai.chat", "edge-1"):
            await tab.said("facts", words)


async def test_the_facts_follow_the_stream(two, tab_on):
    """What is said of a running generation is what its stream says now, also while the edge is not asked."""
    async with tab_on(two.urls[0]) as tab:
        await tab.page.route(re.compile(r"/v1/generations/[0-9a-f-]+$"), lambda route: route.abort())
        await tab.ask(tokens=40, ttft_ms=100, interval_ms=10, stalls=[[20, 3000]])
        await tab.said("facts", "statestreaming")
        await tab.has_events(20)
        await tab.said("facts", "and still, since")
        facts = await tab.page.text_content("#facts")
        assert int(re.search(r"outputabout (\d+) so far", facts)[1]) > 10
        assert re.search(r"first token\d+ ms", facts)
        assert "so far" in facts
        assert "when it has ended" in facts
        await tab.said("facts", "outcomecomplete: stop")
        await tab.said("facts", "output40")
        assert "and still, since" not in await tab.page.text_content("#facts")


@pytest.mark.parametrize("dialect", ["openai.chat", "openai.responses", "anthropic.messages"])
async def test_every_dialect(two, tab_on, dialect):
    """A model is asked by the call of its dialect; text, reasoning and a tool's arguments are each shown as what they are."""
    text, arguments = "Some **bold** text, and `code`.", '{"city": "Zürich", "days": 3}'
    script = {
        "text": text,
        "ttft_ms": 0,
        "interval_ms": 2,
        "tool_call": {"name": "weather", "arguments": arguments},
    }
    if dialect != "anthropic.messages":
        script["reasoning_tokens"] = 5
    async with tab_on(two.urls[0]) as tab:
        page = tab.page
        await page.select_option("#model", "another one…")
        await page.fill("#model-name", "of-the-default-route")
        await page.select_option("#model-dialect", dialect)
        await page.click("#options summary")
        await page.fill("#extra", json.dumps({"simulate": script}))
        await page.click("#send")
        await tab.said("status", "Complete")
        await tab.said("facts", dialect)
        await page.locator(".text strong", has_text="bold").wait_for()
        await expect(page.locator(".tool_call summary")).to_have_text("Tool call: weather")
        await expect(page.locator(".tool_call pre")).to_have_text(arguments)
        await expect(page.locator(".reasoning details:not([open])")).to_have_count(
            int("reasoning_tokens" in script)
        )
        assert await tab.as_sent() == text


async def test_a_cut_by_hand_is_no_cancel(two, tab_on):
    """Cut, the page reads no more and the generation runs on; resumed, the text goes on where it stopped."""
    async with tab_on(two.urls[0]) as tab:
        generation_id = await tab.ask(**STEADY)
        await tab.has_events(20)
        await tab.page.click("#cut")
        await tab.said("status", "You cut the connection")
        generation = two.services[0].registry.get(generation_id)
        await until(lambda: generation.readers == 0)
        at_cut = await tab.page.text_content("#counts")
        seq = generation.window[-1].event.seq
        await until(lambda: generation.window[-1].event.seq > seq + 5)
        assert await tab.page.text_content("#counts") == at_cut
        await tab.page.click("#resume")
        await whole(tab, two, generation_id, connections=2)
        await tab.said("in-words", "a reader resumed behind event")


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_a_broken_connection_is_resumed(two, proxy, tab_on, how):
    """Whatever way a connection breaks, the page says that it resumes, does so by itself, and loses nothing."""
    async with tab_on(proxy.url) as tab:
        await tab.page.evaluate(
            """() => {
              window.states = new Set();
              const status = document.getElementById("status");
              new MutationObserver(() => window.states.add(status.textContent)).observe(status, { childList: true });
            }"""
        )
        cuts = iter([Cut(after_bytes=4000, how=how)] * 8)
        proxy.plan = lambda: next(cuts, WHOLE)
        proxy.sever(how)
        generation_id = await tab.ask(**SHORT)
        await whole(tab, two, generation_id, connections=3)
        states = await tab.page.evaluate("() => [...window.states]")
        assert "Connection lost, resuming…" in states


async def test_a_browser_that_goes_offline(two, tab_on):
    """Offline the page says that it resumes; online again it goes on, and the text is whole."""
    async with tab_on(two.urls[0]) as tab:
        generation_id = await tab.ask(**STEADY)
        await tab.has_events(20)
        await tab.context.set_offline(True)
        await tab.page.evaluate(
            "() => document.getElementById('cut').click()"
        )  # offline spares open connections
        await tab.page.click("#resume")
        await tab.said("status", "resuming…")
        await tab.context.set_offline(False)
        await whole(tab, two, generation_id, connections=2)


async def test_a_question_whose_answer_is_lost(two, proxy, tab_on):
    """A call whose answer was lost is made again under its key: one generation, not two."""
    async with tab_on(proxy.url) as tab:
        seen = len(two.simulator.requests)
        proxy.plan = lambda: Cut(after_bytes=20)
        proxy.sever("fin")
        asking = asyncio.ensure_future(tab.ask("a question of its own", **SHORT))
        await tab.said("ask-said", "asking again")
        await until(lambda: len(two.simulator.requests) == seen + 1)
        proxy.plan = lambda: WHOLE
        generation_id = await asking
        await whole(tab, two, generation_id, connections=1)
        assert len(two.simulator.requests) == seen + 1


async def test_a_cancel(two, tab_on):
    """Cancel ends it at the provider, the page says so, and nothing can be done to it any more."""
    async with tab_on(two.urls[0]) as tab:
        generation_id = await tab.ask(**ENDLESS)
        await tab.has_events(10)
        await tab.page.click("#cancel")
        await tab.said("status", "Cancelled after")
        await until(lambda: two.services[0].registry.get(generation_id).terminal is not None)
        await until(lambda: two.simulator.requests[-1].end == "aborted")
        for button in ("cut", "resume", "cancel"):
            assert await tab.page.get_attribute(f"#{button}", "aria-disabled") == "true"
        await tab.said("in-words", "cancel was asked for")
        await tab.said("facts", "outcomecancelledmodel")
        facts = await tab.page.text_content("#facts")
        assert re.search(r"tokensnot reportedoutputabout \d+, as it went by", facts)


async def test_a_cancel_behind_a_cut(two, tab_on):
    """Who cut the connection can cancel too, and is shown the end."""
    async with tab_on(two.urls[0]) as tab:
        await tab.ask(**ENDLESS)
        await tab.has_events(5)
        await tab.page.click("#cut")
        await tab.said("status", "You cut the connection")
        await tab.page.click("#cancel")
        await tab.said("status", "Cancelled after")


async def test_a_generation_of_another_edge(two, tab_on):
    """What another edge runs is read, cut, resumed and cancelled here all the same."""
    async with httpx.AsyncClient(headers=HEADERS | {"prefer": "respond-async"}, timeout=20) as http:
        asked = {"model": "sim-chat", "messages": [{"role": "user", "content": "go"}], "simulate": ENDLESS}
        begun = (await http.post(f"{two.urls[1]}/v1/chat/completions", json=asked)).json()
    async with tab_on(two.urls[0]) as tab:
        await tab.page.fill("#find-id", begun["generation_id"])
        await tab.page.press("#find-id", "Enter")
        await tab.has_events(10)
        await tab.page.click("#cut")
        await tab.page.click("#resume")
        await tab.has_events(30)
        await tab.page.click("#cancel")
        await tab.said("status", "Cancelled after")
        await tab.said("counts", " 0 lost · 0 repeated · 2 connections")


async def test_what_runs_is_listed(two, tab_on):
    """What this tenant runs on this edge is in the list and opens from there; when it ends the list says so."""
    async with tab_on(two.urls[0]) as first, tab_on(two.urls[0]) as second:
        generation_id = await first.ask(**ENDLESS)
        row = second.page.locator("#live .pick", has_text=generation_id[-6:])
        await row.click()
        await second.has_events(5)
        await second.page.click("#cancel")
        await first.said("status", "Cancelled after")
        await row.locator(".chip", has_text="ended").wait_for()


async def test_how_it_ended(two, tab_on):
    """An end that is none, a refusal, a cut answer and a short one are said for what they are."""
    ends = {
        "upstream_error": {"error_after": 3},
        "incomplete_upstream": {"cut_after": 3},
        "bad_request": {"status": 400},
        "length": {"finish_reason": "length"},
    }
    async with tab_on(two.urls[0]) as tab:
        for word, script in ends.items():
            await tab.ask(**{"tokens": 6, "ttft_ms": 0, "interval_ms": 5} | script)
            await tab.said("status", f": {word}")
            status = await tab.page.text_content("#status")
            assert status.startswith("Complete after" if word == "length" else "Failed after")


async def test_a_wrong_key_and_a_wrong_request(two, tab_on):
    """What the edge refuses is said in its own words, and nothing is kept of a key that its owner did not want kept."""
    async with tab_on(two.urls[0], connect=False) as tab:
        await tab.page.fill("#key", "wrong")
        await tab.page.press("#key", "Enter")
        await tab.said("key-said", "not known here")
        await tab.connect()
        await tab.page.click("#options summary")
        await tab.page.fill("#extra", "{")
        await tab.page.press("#prompt", "Control+Enter")
        await tab.said("ask-said", "not JSON")
        assert await tab.page.evaluate("() => sessionStorage.length + localStorage.length") == 0
        await tab.page.check("#keep")
        await tab.page.reload()
        await tab.said("key-said", "Connected.")
        await tab.page.uncheck("#keep")
        await tab.page.reload()
        await tab.page.wait_for_load_state()
        assert await tab.page.input_value("#key") == ""
        assert "wrong" not in tab.page.url


async def test_a_generation_that_there_is_not(two, tab_on):
    """An id that nobody knows, or another tenant's, is said to be none, and is not asked for again and again."""
    async with tab_on(two.urls[0]) as tab:
        asked = []
        tab.page.on("request", lambda request: asked.append(request.url))
        await tab.page.fill("#find-id", "0199c0de-0000-7000-8000-000000000000")
        await tab.page.press("#find-id", "Enter")
        await tab.said("status", "It cannot be read")
        assert await tab.page.get_attribute("#resume", "aria-disabled") == "false"
        await until(
            lambda: sum("state=any" in url for url in asked) >= 2
        )  # the list is asked for all the same
        assert sum("0199c0de" in url for url in asked) == 2
        await tab.page.fill("#find-id", "no id")
        await tab.page.press("#find-id", "Enter")
        await tab.said("live-said", "not a generation id")


async def test_a_link_opens_its_generation(two, tab_on):
    """The address names the generation that is open: given the key, it shows the same, and back leads back."""
    async with tab_on(two.urls[0]) as tab:
        first = await tab.ask("one", tokens=3, ttft_ms=0, interval_ms=1)
        second = await tab.ask("two", tokens=4, ttft_ms=0, interval_ms=1)
        await tab.said("status", "Complete")
        await tab.page.go_back()
        await tab.said("generation-id", first)
        async with tab_on(f"{two.urls[0]}/#g={second}") as again:
            await again.said("generation-id", second)
            await again.said("status", "Complete")
