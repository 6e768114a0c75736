"""The stack under a drill: a broker, a provider, two edge processes, a worker; lines that cut; edges that die and freeze.

Before: ``__main__``. After: ``readers``.
"""

import asyncio
import hashlib
import random
import signal
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from compose.embedded.simulator import Simulator
from compose.topics import apply
from schemas.settings import Resume
from tests.support.cutting import Cut, CuttingProxy
from tests.support.kafka import session_kafka
from tests.support.processes import KEY, Edge, Process, environment

CUT_BYTES = (200, 4_000)
QUIET_S = (2.0, 5.0)
FROZEN_S = (0.3, 4.5)
"""Beyond the orphan time of three seconds too."""
GRACE_S = 10
"""Longer than any freeze or restart: no client of a drill has gone for good, and what becomes of one is not the question."""
RESTART_WITHIN_S = 120
WATCH_S = 1.0
COMPLAINTS = ("Traceback", "ERROR", "never awaited", "was destroyed but it is pending", '"level": "error"')
FORGIVEN = ("GroupCoordinatorNotAvailableError",)
"""A broker that has just begun has no coordinator for a moment; the client library calls that an error."""


class World:
    """What a drill runs on. ``urls`` are the lines that cut, ``edges`` the processes behind them."""

    def __init__(self, edges, proxies, provider, source):
        self.edges = edges
        self.proxies = proxies
        self.provider = provider
        self.source = source
        self.kills = self.freezes = 0
        self.cutting = True
        self._watched = {}
        self._reading = {}

    @property
    def urls(self):
        """Give the lines' addresses."""
        return [proxy.url for proxy in self.proxies]

    @property
    def cuts(self):
        """Give how many connections were cut so far."""
        return sum(proxy.cuts for proxy in self.proxies)

    def plan(self):
        """Give the next connection's cut."""
        if not self.cutting:
            return Cut()
        return Cut(self.source.randint(*CUT_BYTES), self.source.choice(["rst", "fin"]))

    def reads(self, seen):
        """A client begins to read: should it stick, this is asked where."""
        self._reading[asyncio.current_task()] = seen
        return seen

    def stuck(self):
        """Give where the client of this task stands."""
        seen = self._reading.get(asyncio.current_task())
        return "" if seen is None else f"{seen.generation_id}, {len(seen.trail)} tries: {seen.trail[-8:]}"

    async def chaos(self):
        """Kill -9 or freeze one edge at a time, until cancelled; whatever was done is undone."""
        while True:
            await asyncio.sleep(
                self.source.uniform(*QUIET_S)
            )  # the pace of the faults, not a wait for anything
            edge = self.source.choice(self.edges)
            if self.source.random() < 0.5:
                edge.kill()
                self.kills += 1
                edge.start()
                await edge.until_ready(RESTART_WITHIN_S)
            else:
                edge.signal(signal.SIGSTOP)
                self.freezes += 1
                try:
                    await asyncio.sleep(self.source.uniform(*FROZEN_S))  # so long is it frozen
                finally:
                    edge.signal(signal.SIGCONT)

    async def watch(self):
        """Look at the edges' memory and descriptors, until cancelled."""
        while True:
            for edge in self.edges:
                with suppress(OSError, IndexError):  # it is just being killed
                    of = Path(f"/proc/{edge.child.pid}")
                    rss_kib = int((of / "status").read_text().partition("VmRSS:")[2].split()[0])
                    lives = self._watched.setdefault(edge.name, {})
                    lives.setdefault(edge.child.pid, []).append((rss_kib, len(list((of / "fd").iterdir()))))
            await asyncio.sleep(WATCH_S)  # the pace of looking

    def watched(self):
        """Give, for each edge, the longest life between two kills: memory and descriptors after five seconds, and at its end."""
        told = {}
        for name, lives in sorted(self._watched.items()):
            longest = max(lives.values(), key=len)
            begin, end = longest[min(5, len(longest) - 1)], longest[-1]
            told[name] = {
                "life_s": round(len(longest) * WATCH_S),
                "rss_mib": [round(begin[0] / 1024), round(end[0] / 1024)],
                "descriptors": [begin[1], end[1]],
            }
        return told


def complaints(folder):
    """Give what the processes' logs have that should not be there, the first lines of it."""
    found = []
    for log in sorted(folder.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        found += [
            f"{log.name}: {line[:300]}"
            for line in lines
            if any(word in line for word in COMPLAINTS) and not any(word in line for word in FORGIVEN)
        ]
    return found[:20]


def _config(provider_url):
    """Give a tokentrail.toml: the provider in two dialects, one key."""
    return f"""
default_route = [{{provider = "chat"}}, {{provider = "messages"}}]
[providers.chat]
base_url = "{provider_url}"
[providers.messages]
base_url = "{provider_url.removesuffix("/v1")}"
dialect = "anthropic.messages"
[[keys]]
id = "k1"
tenant = "acme"
sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
roles = ["caller", "operator"]
"""


@asynccontextmanager
async def running(folder, seed):
    """Run the stack below a folder."""
    source = random.Random(seed)
    async with AsyncExitStack() as stack:
        kafka = await asyncio.to_thread(stack.enter_context, session_kafka(folder))
        await apply(kafka.bootstrap_servers, window_days=Resume().window_days)
        provider = await stack.enter_async_context(Simulator(port=0))
        (folder / "tokentrail.toml").write_text(_config(provider.base_url))
        environ = environment(
            kafka.bootstrap_servers,
            {"TOKENTRAIL_EDGE__CORS_ORIGINS": '["*"]', "TOKENTRAIL_DISCONNECT__GRACE_S": f"{GRACE_S}"},
        )
        edges = [Edge(folder, environ, f"edge-{number}") for number in (1, 2)]
        worker = Process("pipeline", folder, environ, "pipeline")
        for process in (*edges, worker):
            stack.callback(process.stop)
            process.start()
        for edge in edges:
            await edge.until_ready()
        await worker.until_said("pipeline ready")
        world = World(edges, [], provider, source)
        world.proxies = [
            await stack.enter_async_context(CuttingProxy(edge.url, world.plan)) for edge in edges
        ]
        yield world
