"""The stack that faults are injected into: a simulator, two edges, a pipeline worker, on the session's Kafka."""

import pytest

from compose.embedded.simulator import Simulator
from tests.support.client import new_client
from tests.support.processes import Process, environment, two_edges


@pytest.fixture
async def provider():
    """A simulated provider."""
    async with Simulator(port=0) as simulator:
        yield simulator


@pytest.fixture
async def edges(topics, provider, tmp_path):
    """Two edges of the test's own."""
    async with two_edges(topics, provider, tmp_path) as started:
        yield started


@pytest.fixture
async def worker(topics, tmp_path):
    """A pipeline worker that is ready; the finder is in it."""
    process = Process("pipeline", tmp_path, environment(topics), "pipeline")
    process.start()
    try:
        await process.until_said("pipeline ready")
        yield process
    finally:
        process.stop()


@pytest.fixture
async def client():
    """An HTTP client with the test's key."""
    async with new_client() as opened:
        yield opened
