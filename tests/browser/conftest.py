"""A real Chromium on the page of two edges in memory, with a proxy between them that breaks connections.

Chromium is the distribution's own (``make test`` installs it where it can); without it these tests are skipped by name.
All of it runs on one loop, so that a test breaks the network and looks at the page in turn.
"""

import contextlib

import pytest
import pytest_asyncio

from tests.support.browser import CHROMIUM, WIDE, Tab
from tests.support.cutting import CuttingProxy
from tests.support.dialects import world


def pytest_collection_modifyitems(items):
    """Without a browser each test of this folder is skipped by its name."""
    skip = pytest.mark.skip(reason="no chromium on this machine")
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) and CHROMIUM is None:
            item.add_marker(skip)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser():
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--disable-dev-shm-usage"])
        yield started
        await started.close()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def two():
    """Two edges in memory and a simulator; stalls from 0.1 s on, heartbeats often."""
    async with world(disconnect={"grace_s": 15}) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="package")
async def proxy(two):
    """What the browser takes for the first edge: a way to it that a test may break."""
    async with CuttingProxy(two.urls[0]) as between:
        yield between


@pytest.fixture
def tab_on(browser):
    """Give a way to open the page at an address: a context manager of a Tab, connected, without a fault at its end."""

    @contextlib.asynccontextmanager
    async def opened(url, *, connect=True, **context):
        made = await browser.new_context(**({"viewport": WIDE} | context))
        try:
            tab = Tab(await made.new_page(), made)
            await tab.page.goto(url)
            if connect:
                await tab.connect()
            yield tab
            assert tab.faults == []
        finally:
            await made.close()

    return opened
