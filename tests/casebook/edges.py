"""An edge in this process: the product's service and routes behind a real server, on a log in memory.

``settings_of`` maps a vector's scaled-down times to the product's own settings, whose asserted relations hold here too.
Before it: a vector. After it: ``form_upstream`` and ``form_resume`` talk to it over HTTP.
"""

import asyncio
import contextlib
import functools
import hashlib
import time

import uvicorn

from edge.app import build_app, listen
from edge.asgi.connection import bounded
from edge.asgi.direct import Direct
from edge.clock import system_clock
from edge.log import LogAway
from edge.log.memory import MemoryLog
from edge.service import EdgeService
from schemas.codec import Codec
from schemas.settings import ApiKey, Settings

DEFAULTS_MS = {
    "stall_threshold_ms": 200,
    "stall_timeout_ms": 1000,
    "ttft_timeout_ms": 2000,
    "queue_timeout_ms": 2000,
    "request_timeout_ms": 20000,
    "usage_grace_ms": 200,
    "heartbeat_ms": 500,
    "disconnect_grace_ms": 500,
    "backoff_ms": 20,
}
OTHER_SETTINGS = frozenset({"max_attempts", "continuation", "max_frame_bytes", "log_max_record_bytes"})
FRAME_BYTES = 8 << 20
KEYS = {"A": "key-of-a", "B": "key-of-b"}
CURSOR_SECRETS = ["casebook secret in force"]


@functools.cache
def codec():
    """One for all tests: building it parses every schema."""
    return Codec()


def wall_ms():
    """The append time of a record."""
    return time.time_ns() // 1_000_000


def settings_of(vector, base_url="", edge_id="edge-1"):
    """The product's settings for a vector; a setting that nobody here knows is an error."""
    given = vector.get("settings", {})
    unknown = given.keys() - DEFAULTS_MS.keys() - OTHER_SETTINGS
    assert not unknown, f"settings that no runner maps: {unknown}"
    ms = {name: given.get(name, default) for name, default in DEFAULTS_MS.items()}
    request_s = ms["request_timeout_ms"] / 1000
    ttft_s = min(ms["ttft_timeout_ms"] / 1000, request_s / 2)  # the whole cannot be shorter than its parts
    attempts = given.get("max_attempts", len(vector.get("attempts", [None])))
    return Settings(
        edge={"id": edge_id, "drain_s": 0},
        stream={
            "heartbeat_s": ms["heartbeat_ms"] / 1000,
            "stall_threshold_ms": ms["stall_threshold_ms"],
            "stall_timeout_s": ms["stall_timeout_ms"] / 1000,
            "ttft_timeout_s": ttft_s,
            "usage_grace_s": ms["usage_grace_ms"] / 1000,
        },
        timeout={
            "queue_s": ms["queue_timeout_ms"] / 1000,
            "request_s": request_s,
            "decode_s": request_s - ttft_s,
        },
        disconnect={"grace_s": ms["disconnect_grace_ms"] / 1000},
        retry={"backoff_ms": ms["backoff_ms"], "max_attempts": attempts},
        limit={"frame_bytes": given.get("max_frame_bytes", FRAME_BYTES)},
        secrets={"cursor": CURSOR_SECRETS},
        providers={"player": _provider(vector.get("dialect", "openai.chat"), base_url)},
        default_route=[{"provider": "player"}],
        keys=[
            ApiKey(id=f"key-{tenant}", tenant=tenant, sha256=hashlib.sha256(text.encode()).hexdigest())
            for tenant, text in KEYS.items()
        ],
    )


def _provider(dialect, base_url):
    """A provider's ``base_url`` is what the dialect's SDK takes as such: Anthropic's goes without ``/v1``."""
    if dialect == "anthropic.messages":
        base_url = base_url.removesuffix("/v1")
    return {"dialect": dialect, "base_url": base_url}


def authorized(tenant="A"):
    """The headers of a tenant's client."""
    return {"authorization": f"Bearer {KEYS[tenant]}"}


class BoundedLog(MemoryLog):
    """A log in memory whose broker refuses a record above its limit, as a real one does."""

    def __init__(self, record_bytes_max):
        super().__init__(wall_ms)
        self.record_bytes_max = record_bytes_max
        self.refused = 0

    def append(self, partition, key, values, on_ack, on_fail):
        """See EventLog."""
        if max(map(len, values)) + len(key) > self.record_bytes_max:
            self.refused += 1
            self.fail_next(LogAway("the record is above the broker's limit"))
        super().append(partition, key, values, on_ack, on_fail)


class Edge:
    """A running edge: where it listens, and its service."""

    def __init__(self, service, port):
        self.service = service
        self.port = port


@contextlib.asynccontextmanager
async def running_edge(settings, log):
    """Serve until the block is left; every test's clients are closed by then."""
    service = EdgeService(settings, log, codec(), system_clock())
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        Direct(build_app(service)),
        http=bounded(settings.limit),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        lifespan="on",
    )
    server = uvicorn.Server(config)
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            assert not serving.done(), "the edge did not start"
            await asyncio.sleep(0.002)
        yield Edge(service, listening.getsockname()[1])
    finally:
        server.should_exit = True
        await serving
        listening.close()
