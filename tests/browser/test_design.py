"""The page's form: both themes, a phone and a desk, the keyboard alone, contrast, and what a screen reader is told."""

import pytest

from compose.embedded.simulator.options import MARKDOWN
from tests.support.browser import NARROW, WIDE
from tests.support.dialects import KEY
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="package")
BROAD = f"{MARKDOWN}\n`{'x' * 300}` {'w' * 200}\n\n```\n{'long ' * 80}\n```\n\n| {' | '.join('abcdefghijkl')} |\n{'|---' * 12}|\n"

CONTRAST = """
() => {
  const parsed = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parsed(getComputedStyle(at).backgroundColor);
      if (colour.a === 1) return colour;
    }
    return { r: 255, g: 255, b: 255 };
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("title, desc, option, noscript")) continue;
    const style = getComputedStyle(element);
    const inPicture = element instanceof SVGElement;
    const under = element.matches(".in-stall") ? parsed(getComputedStyle(document.querySelector("#picture .stall")).fill) : ground(element);
    const [a, b] = [light(parsed(inPicture ? style.fill : style.color)), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const large = Number.parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) low.push([walker.currentNode.data.trim().slice(0, 30), ratio.toFixed(2)]);
  }
  return low;
}
"""
SIDEWAYS = """
() => [...document.querySelectorAll("body *")]
  .filter((e) => !e.closest("pre, .scroll, .hidden, .skip, svg, .name") && e.checkVisibility())
  .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
  .map((e) => `${e.tagName}#${e.id}.${e.className}`)
  .concat(document.documentElement.scrollWidth > innerWidth ? ["the page itself"] : [])
"""
FOCUS = """
() => {
  const at = document.activeElement;
  const style = getComputedStyle(at);
  const box = at.getBoundingClientRect();
  return {
    id: at.id || at.className || at.tagName,
    visible: style.outlineStyle !== "none" && Number.parseFloat(style.outlineWidth) >= 2 && box.width > 0,
  };
}
"""


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1440", "375"])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_it_fits_and_can_be_read(two, tab_on, theme, size):
    """In both themes and on both screens: nothing reaches over the side, and every text has a contrast of 4.5 to 1."""
    async with tab_on(two.urls[0], viewport=size, color_scheme=theme) as tab:
        await tab.page.click("#options summary")
        await tab.page.select_option("#model", "another one…")
        assert await tab.page.evaluate(CONTRAST) == []
        assert await tab.page.evaluate(SIDEWAYS) == []
        await tab.ask(text=BROAD, ttft_ms=0, interval_ms=1, stalls=[[5, 700]])
        await tab.said("in-words", "attempt 0 ended at")
        await tab.page.click(".timeline summary")
        assert await tab.page.evaluate(CONTRAST) == []
        assert await tab.page.evaluate(SIDEWAYS) == []
        await tab.page.click("#raw")
        assert await tab.page.evaluate(SIDEWAYS) == []
        shades = await tab.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert (shades == "rgb(17, 20, 19)") == (theme == "dark")


async def test_a_desk_shows_it_on_one_screen(two, tab_on):
    """At 1440 px the page does not scroll: its parts do."""
    async with tab_on(two.urls[0]) as tab:
        await tab.ask(text=BROAD * 4, ttft_ms=0, interval_ms=0)
        await tab.said("status", "Complete")
        assert await tab.page.evaluate("() => document.documentElement.scrollHeight <= innerHeight")
        assert await tab.page.evaluate(
            "() => { const a = document.getElementById('answer'); return a.scrollHeight > a.clientHeight; }"
        )


async def test_the_keyboard_alone(two, tab_on):
    """Everything can be reached and done with the keyboard, and the focus is seen wherever it is."""
    async with tab_on(two.urls[0], connect=False) as tab:
        keyboard, passed = tab.page.keyboard, []

        async def go_to(target):
            for _ in range(40):
                await keyboard.press("Tab")
                focus = await tab.page.evaluate(FOCUS)
                passed.append(focus)
                if focus["id"] == target:
                    return
            pytest.fail(f"no way to {target}: {[focus['id'] for focus in passed]}")

        await go_to("skip")
        await go_to("key")
        await keyboard.type(KEY)
        await keyboard.press("Enter")
        await tab.said("key-said", "Connected.")
        await go_to("model")
        await keyboard.type("sim-chat")
        await go_to("prompt")
        await keyboard.press("Control+a")
        await keyboard.type("go")
        await go_to("SUMMARY")
        await keyboard.press("Enter")
        await go_to("on-disconnect")
        await go_to("extra")
        await keyboard.type('{"simulate": {"tokens": 100000, "ttft_ms": 0, "interval_ms": 20}}')
        await go_to("send")
        await keyboard.press("Enter")
        await tab.has_events(5)
        await go_to("cut")
        await keyboard.press("Enter")
        await tab.said("status", "You cut the connection")
        assert (await tab.page.evaluate(FOCUS))["id"] == "cut"
        await go_to("resume")
        await keyboard.press("Space")
        await tab.said("status", "Streaming")
        await go_to("cancel")
        await keyboard.press("Enter")
        await tab.said("status", "Cancelled after")
        for target in ("raw", "copy", "answer", "facts"):
            await go_to(target)
        assert [focus["id"] for focus in passed if not focus["visible"]] == []


async def test_what_a_screen_reader_is_told(two, tab_on):
    """Whole sentences of the answer come in a polite region, the state in a status, and every field has its name."""
    async with tab_on(two.urls[0]) as tab:
        page = tab.page
        said = []

        def told(text):
            said.append(text)

        await page.expose_function("told", told)
        await page.evaluate(
            """() => new MutationObserver((changes) => changes.forEach((change) =>
                 change.addedNodes.forEach((node) => window.told(node.textContent))))
                 .observe(document.getElementById("spoken"), { childList: true })"""
        )
        sentences = "One sentence. Another one! And a third?\n" * 12
        await tab.ask(text=sentences, ttft_ms=0, interval_ms=15)
        await until(lambda: " ".join(" ".join(said).split()) == " ".join(sentences.split()))
        assert len(said) >= 2
        assert all(text.rstrip()[-1] in ".!?" for text in said)
        assert await page.get_attribute("#spoken", "aria-live") == "polite"
        nameless = """() => [...document.querySelectorAll("input, select, textarea")]
            .filter((e) => !e.labels.length && !e.ariaLabel).map((e) => e.id)"""
        assert await page.evaluate(nameless) == []
        untitled = (
            "() => [...document.querySelectorAll('button')].filter((e) => !e.textContent.trim()).length"
        )
        assert await page.evaluate(untitled) == 0
