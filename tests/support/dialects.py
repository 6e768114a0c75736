"""Two edges in memory on one log, in front of the simulator in all its dialects, as unmodified clients reach them."""

import contextlib

from compose.embedded.simulator import Simulator
from edge.log.memory import MemoryLog
from schemas.settings import ApiKey, Settings
from tests.casebook.edges import running_edge, wall_ms

KEY, KEY_SHA256 = "key", "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"
OTHER, OTHER_SHA256 = "other", "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
HEADERS = {"authorization": f"Bearer {KEY}"}
HEARTBEAT_S = 0.15
PATIENT_S = 10.0  # of an edge whose head waits for the provider's first word, however busy the machine is
QUICK = {"ttft_ms": 0, "interval_ms": 1}


class World:
    """The simulator and two edges; ``url`` is what an SDK takes as ``base_url``, without ``/v1``."""

    def __init__(self, simulator, edges):
        self.simulator = simulator
        self.direct = simulator.base_url.removesuffix("/v1")
        self.urls = [f"http://127.0.0.1:{edge.port}" for edge in edges]
        self.services = [edge.service for edge in edges]


@contextlib.asynccontextmanager
async def world(heartbeat_s=HEARTBEAT_S, **sections):
    """Run them until the block is left."""
    log = MemoryLog(wall_ms)
    async with Simulator(port=0) as simulator, contextlib.AsyncExitStack() as stack:
        edges = [
            await stack.enter_async_context(
                running_edge(_settings(simulator, name, heartbeat_s, sections), log)
            )
            for name in ("edge-1", "edge-2")
        ]
        yield World(simulator, edges)


def _settings(simulator, edge_id, heartbeat_s, sections):
    sections = dict(sections)
    base_url = simulator.base_url
    providers = {
        "chat": {"base_url": base_url, "api_key": "of-the-provider"},
        "responses": {"base_url": base_url, "dialect": "openai.responses", "api_key": "of-the-provider"},
        "messages": {
            "base_url": base_url.removesuffix("/v1"), "dialect": "anthropic.messages", "api_key": "of-the-provider",
        },
    }  # fmt: skip
    return Settings(
        edge={"id": edge_id, "drain_s": 0} | sections.pop("edge", {}),
        stream={"heartbeat_s": heartbeat_s, "stall_threshold_ms": 100},
        retry={"max_attempts": 1},
        secrets={"cursor": ["a test's secret"]},
        providers=providers,
        models={"sim-chat": [{"provider": "chat", "model": "sim-fast"}]},
        default_route=[{"provider": name} for name in providers],
        keys=[
            ApiKey(id="key-1", tenant="acme", sha256=KEY_SHA256),
            ApiKey(id="key-2", tenant="other", sha256=OTHER_SHA256),
        ],
        **sections,
    )
