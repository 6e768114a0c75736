"""The page in a real browser, as a test uses it: what is pressed, and what is waited for."""

import shutil

from tests.support.dialects import KEY

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 375, "height": 812}
SHORT = {"tokens": 100, "ttft_ms": 20, "interval_ms": 5}
STEADY = {"tokens": 250, "ttft_ms": 20, "interval_ms": 12}
ENDLESS = {"tokens": 100_000, "ttft_ms": 20, "interval_ms": 20}


class Tab:
    """The page in a browser context of its own; ``faults`` are what its console or its code complained of."""

    def __init__(self, page, context):
        self.page = page
        self.context = context
        self.faults = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda said: self._heard(said.type, said.text))

    def _heard(self, kind, text):
        if (
            kind == "error" and "Failed to load resource" not in text
        ):  # the browser's own word on a cut connection
            self.faults.append(text)

    async def connect(self):
        """Give the key and wait for the models."""
        await self.page.fill("#key", KEY)
        await self.page.press("#key", "Enter")
        await self.said("key-said", "Connected.")

    async def ask(self, prompt="go", **script):
        """Stream an answer of this script; its generation's id."""
        page = self.page
        before = await page.text_content("#generation-id")
        await page.select_option("#model", "sim-chat")
        await page.fill("#prompt", prompt)
        await page.evaluate(
            "script => { document.getElementById('extra').value = JSON.stringify({simulate: script}); }",
            script,
        )
        await page.click("#send")
        await page.wait_for_function(
            "before => !['', before].includes(document.getElementById('generation-id').textContent)",
            arg=before,
        )
        return await page.text_content("#generation-id")

    async def said(self, element, text, within_ms=15_000):
        """Wait until an element says a text."""
        await self.page.wait_for_function(
            "([id, text]) => document.getElementById(id).textContent.includes(text)",
            arg=[element, text],
            timeout=within_ms,
        )

    async def has_events(self, count):
        """Wait until so many events were read."""
        await self.page.wait_for_function(
            "count => Number.parseInt(document.getElementById('counts').textContent) >= count", arg=count
        )

    async def as_sent(self):
        """Give the answer letter by letter."""
        if await self.page.get_attribute("#raw", "aria-pressed") == "false":
            await self.page.click("#raw")
        return "".join(await self.page.locator(".text .as-sent").all_text_contents())
