"""A generation as a picture: what it shows of attempts, the first token, stalls, heartbeats, readers and the end."""

import pytest

from tests.support.browser import ENDLESS, NARROW, WIDE

pytestmark = pytest.mark.asyncio(loop_scope="package")
STALL_MS = 900


async def texts(tab, selector):
    """Give the texts of the picture's elements."""
    return await tab.page.locator(f"#picture {selector}").all_text_contents()


def as_ms(length):
    """Give a length as the picture words it, in milliseconds."""
    amount, unit = length.split()[:2]
    return float(amount) * (1000 if unit == "s" else 1)


async def boxes_of(tab, selector):
    """Give where all such elements are."""
    script = "(all) => all.map((one) => { const { x, width } = one.getBoundingClientRect(); return { x, width }; })"
    return await tab.page.locator(f"#picture {selector}").evaluate_all(script)


async def boxes(tab, *selectors):
    """Give where the first element of each is, all in one picture: it is drawn anew all the time."""
    script = """(selectors) => selectors.map((selector) => {
        const { x, width } = document.querySelector(`#picture ${selector}`).getBoundingClientRect();
        return { x, width };
    })"""
    return await tab.page.evaluate(script, list(selectors))


async def test_a_stall_and_the_end(two, tab_on):
    """A silence is a block as long as it was, between what was said; the first token and the end are marks with words.

    A busy machine may add silences of its own: the longest is the one that was asked for.
    """
    async with tab_on(two.urls[0]) as tab:
        await tab.ask(tokens=12, ttft_ms=40, interval_ms=5, stalls=[[6, STALL_MS]])
        await tab.said("in-words", "attempt 0 ended at")
        assert max(map(as_ms, await texts(tab, ".in-stall"))) > STALL_MS / 2
        (stream,), stalls = await boxes(tab, ".stream"), await boxes_of(tab, ".stall")
        stall = max(stalls, key=lambda box: box["width"])
        assert stream["x"] <= stall["x"]  # what was said before the silence may have come in one moment
        assert stall["x"] + stall["width"] < stream["x"] + stream["width"] + 1
        (first,), (end,) = await texts(tab, ".mark.first text"), await texts(tab, ".mark.complete text")
        assert first.startswith("first token")
        assert end.startswith("stop")
        assert await tab.page.locator("#picture .beat").count() >= 1
        words = await tab.page.locator("#in-words li").all_text_contents()
        assert [word for word in words if "attempt 0 silent for" in word]
        assert "complete: stop" in words[-1]
        described = await tab.page.locator("#picture desc").text_content()
        assert all(word in described for word in words)
        await tab.said("facts", "Stalls")


async def test_a_stall_is_seen_while_it_lasts(two, tab_on):
    """A silence that has not ended is drawn as it grows."""
    async with tab_on(two.urls[0]) as tab:
        await tab.ask(tokens=12, ttft_ms=0, interval_ms=5, hang_after=6)
        await tab.said("in-words", "silent since then")
        *_, at_first = await boxes_of(tab, ".stall")
        await tab.page.wait_for_function(
            "width => [...document.querySelectorAll('#picture .stall')].at(-1).getBoundingClientRect().width > width",
            arg=at_first["width"],
        )
        await tab.page.click("#cancel")
        await tab.said("in-words", "a cancel was asked for")
        await tab.said("in-words", "cancelled after")
        assert (await texts(tab, ".mark.cancelled text"))[0].startswith("cancelled")
        assert await texts(tab, ".mark.asked text") == ["cancel asked"]


async def test_who_read_it(two, tab_on):
    """Each connection is a bar in the readers' lane, and a resumed one says behind which event."""
    async with tab_on(two.urls[0]) as tab:
        await tab.ask(**ENDLESS)
        await tab.has_events(10)
        await tab.page.click("#cut")
        await tab.said("in-words", "a reader left")
        await tab.page.click("#resume")
        await tab.said("in-words", "a reader resumed behind event")
        assert await tab.page.locator("#picture .reader").count() == 2
        assert await tab.page.locator("#picture .arrow").count() == 1
        await tab.page.click("#cancel")
        await tab.said("status", "Cancelled after")


async def test_a_failed_attempt(two, tab_on):
    """An attempt that broke has a cross and its code, and the generation's end says so too."""
    async with tab_on(two.urls[0]) as tab:
        await tab.ask(tokens=12, ttft_ms=0, interval_ms=5, cut_after=6)
        await tab.said("in-words", "attempt 0 ended at")
        assert await tab.page.locator("#picture .mark.failed .cross").count() == 1
        (lane, *_) = await texts(tab, ".lane")
        assert lane.startswith("attempt 0 · chat")


async def test_what_followed_what(two, tab_on):
    """A generation that names the one before it shows that, and leads there."""
    async with tab_on(two.urls[0]) as tab:
        first = await tab.ask(tokens=2, ttft_ms=0, interval_ms=1)
        script = """
        async ([first, key]) => {
          const body = { model: "sim-chat", messages: [{ role: "user", content: "x" }], simulate: { tokens: 2, ttft_ms: 0 } };
          const headers = {
            authorization: `Bearer ${key}`, "content-type": "application/json", prefer: "respond-async",
            "x-previous-generation-id": first, "x-lineage-kind": "regenerate",
          };
          return (await (await fetch("/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body) })).json()).generation_id;
        }
        """
        second = await tab.page.evaluate(script, [first, "key"])
        await tab.page.fill("#find-id", second)
        await tab.page.press("#find-id", "Enter")
        await tab.said("facts", "regenerate of")
        await tab.page.click("#facts button.link")
        await tab.said("generation-id", first)


@pytest.mark.parametrize("viewport", [WIDE, NARROW])
async def test_no_name_and_no_figure_is_broken_in_its_middle(two, tab_on, viewport):
    """In the table of attempts a code breaks behind its underscore or not at all, and a length stays beside its unit."""
    lines = """(cells) => cells.flatMap((cell) => [...cell.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)
        .map((node) => {
          const range = document.createRange();
          range.selectNodeContents(node);
          return [node.textContent, new Set([...range.getClientRects()].map(({ top }) => top)).size];
        }))"""
    async with tab_on(two.urls[0], viewport=viewport) as tab:
        await tab.ask(tokens=6, ttft_ms=0, interval_ms=5, cut_after=3)
        await tab.said("status", "incomplete_upstream. ")
        await tab.page.locator("#facts tbody").filter(has_text="incomplete_upstream").wait_for()
        found = await tab.page.locator("#facts tbody :is(td, th)").evaluate_all(lines)
        assert {"incomplete_", "upstream"} <= {text for text, _ in found}
        assert [text for text, count in found if count != 1] == []
