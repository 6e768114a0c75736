"""A Responses answer in the background on real edges and a real Kafka: found, read and ended by its id on another edge.

What the other edge knows it was told on control, also after it was killed and started again.
"""

import openai
import pytest

from compose.embedded.simulator import Simulator
from tests.support.processes import KEY, UNHURRIED, two_edges
from tests.support.waiting import until

pytestmark = pytest.mark.services
ASKED = {"model": "sim-fast", "input": "go", "background": True}


@pytest.fixture
async def simulator():
    """Give a provider in this process."""
    async with Simulator(port=0, first=500_000) as running:
        yield running


@pytest.fixture
async def edges(topics, simulator, tmp_path):
    """Give two edge processes whose one provider speaks Responses."""
    spoken = UNHURRIED | {"TOKENTRAIL_PROVIDERS__SIM__DIALECT": "openai.responses"}
    async with two_edges(topics, simulator, tmp_path, spoken) as started:
        yield started


def sdk(edge):
    """Give an SDK client of an edge."""
    return openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key=KEY, max_retries=0)


async def test_by_its_id_on_another_edge(edges, simulator):
    """The other edge finds it while it runs, streams the rest, and again after kill -9; a cancel there ends it here."""
    here, there = edges
    async with sdk(here) as owner, sdk(there) as other:
        script = {"ttft_ms": 100, "interval_ms": 25, "tokens": 40}
        begun = await owner.responses.create(**ASKED, extra_body={"simulate": script})
        assert (await other.responses.retrieve(begun.id)).status == "in_progress"
        stream = await other.responses.retrieve(begun.id, stream=True, starting_after=1)
        numbers = [event.sequence_number async for event in stream]
        assert numbers == list(range(2, numbers[-1] + 1))
        there.kill()
        there.start()
        await there.until_ready()
        ended = [await client.responses.retrieve(begun.id) for client in (owner, other)]
        assert ended[0] == ended[1]
        assert (ended[0].status, ended[0].usage.output_tokens) == ("completed", 40)
        endless = await owner.responses.create(**ASKED, extra_body={"simulate": script | {"tokens": 4000}})
        assert (await other.responses.cancel(endless.id)).status == "cancelled"
        await until(lambda: simulator.requests[-1].aborted_by_client)
        assert (await owner.responses.retrieve(endless.id)).status == "cancelled"
