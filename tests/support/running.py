"""A whole edge in memory for tests: its service on a log in memory, in front of a provider of a script."""

import asyncio

from edge.clock import system_clock
from edge.dialects.spoken import dialect_of
from edge.log.memory import MemoryLog
from edge.service import EdgeService
from schemas.events import TERMINALS, Kind
from schemas.settings import ApiKey, Provider, Route
from tests.support.edge import CODEC, SECRET, logged, settings_of
from tests.support.upstream import ScriptedUpstream
from tests.support.waiting import until

SHORT = {"ttft_timeout_s": 5, "stall_timeout_s": 5, "stall_threshold_ms": 40, "usage_grace_s": 5}
"""Streaming times in which a test can end; each test sets the one that it is about."""
OWNER = ApiKey(id="key-1", tenant="acme", sha256="0" * 64, roles=("caller", "operator"))
ONE_ROUTE = (Route(provider="one"),)
BODY = {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def edge_settings(**sections):
    """Give the settings of an edge with two routes and short waits; a test's own sections replace single fields."""
    usual = {
        "secrets": {"cursor": [SECRET.decode()]},
        "providers": {name: Provider(base_url="http://127.0.0.1:1/v1") for name in ("one", "two")},
        "default_route": (Route(provider="one"), Route(provider="two")),
        "retry": {"backoff_ms": 10},
        "cancel": {"soft_ms": 60},
        "edge": {"id": "edge-1", "drain_s": 0.05},
    }
    for name, value in sections.items():
        usual[name] = usual.get(name, {}) | value if isinstance(value, dict) else value
    return settings_of(**usual)


class RunningEdge:
    """An edge service with its log; ``upstream`` is a ScriptedUpstream (or anything with its calls), None: its own."""

    def __init__(self, upstream, clock, event_log=None, **sections):
        self.settings = edge_settings(**sections)
        self.clock = clock
        self.log = event_log or MemoryLog(lambda: clock.wall_us() // 1000, 4)
        self.service = EdgeService(self.settings, self.log, CODEC, clock)
        if upstream is not None:
            self.service.upstream = upstream
        self.upstream = self.service.upstream

    async def __aenter__(self):
        await self.service.start()
        return self

    async def __aexit__(self, *_):
        await asyncio.wait_for(self.service.stop(), 10)

    async def begin(self, headers=None, caller=OWNER, **body):
        """Begin a generation as a POST would; its entry."""
        dialect = dialect_of("openai.chat")
        request = dialect.request_of(BODY | body)
        return await self.service.begin(caller, dialect, request, headers or {})

    def records(self, entry=None):
        """Give the records of a generation (of the only one, if there is one) in log order."""
        if entry is None:
            (key, partition), *more = {(r[2], p) for p, r in self.log.all_records()} or {(None, 0)}
            assert not more
            return logged(self.log, partition, key)
        identity = entry.generation.identity
        return logged(self.log, identity.partition, identity.generation_id.encode())

    def kinds(self, entry=None):
        """Give the kinds in log order, without what stands anywhere (heartbeats, readers)."""
        anywhere = {Kind.HEARTBEAT, Kind.CLIENT_ATTACHED, Kind.CLIENT_DETACHED}
        return [event.kind for event in self.records(entry) if event.kind not in anywhere]

    async def over(self, entry, within_s=10):
        """Wait until the driver is done and everything has settled; the generation's records, held to the rules."""
        await until(lambda: entry.finished and not self.service._tasks, within_s)
        records = self.records(entry)
        check(records)
        return records


def edge_with(*scripts, clock=None, **sections):
    """Give an edge in front of a provider of scripts."""
    return RunningEdge(ScriptedUpstream(*scripts), clock or system_clock(), **sections)


async def run(*scripts, **sections):
    """Run one generation to its end: its records and the edge."""
    async with edge_with(*scripts, **sections) as edge:
        entry = await edge.begin()
        return await edge.over(entry), edge


def ends_of(records):
    """Give the attempts' ends in order."""
    return [event.attempt_end for event in records if event.kind is Kind.ATTEMPT_END]


def starts_of(records):
    """Give the attempts' starts in order."""
    return [event.attempt_start for event in records if event.kind is Kind.ATTEMPT_START]


def check(records, edge_id="edge-1"):
    """Hold a finished generation of one edge to what must be true of every one, whatever happened to it."""
    own = [event for event in records if event.edge_id == edge_id]
    numbered = [event for event in own if event.seq is not None]
    assert own[0].kind is Kind.MESSAGE_START
    assert [event.seq for event in numbered] == sorted({event.seq for event in numbered})
    terminals = [event for event in records if event.kind in TERMINALS]
    assert terminals, "no terminal"
    assert numbered[-1].kind in TERMINALS or terminals[0].edge_id != edge_id
    assert sum(event.kind in TERMINALS for event in own) <= 1
    started = [event.attempt for event in own if event.kind is Kind.ATTEMPT_START]
    ended = [event.attempt for event in own if event.kind is Kind.ATTEMPT_END]
    assert sorted(ended) == started == list(range(len(started)))
    last_end = max(i for i, event in enumerate(own) if event.kind is Kind.ATTEMPT_END)
    ends = [i for i, event in enumerate(own) if event.kind in TERMINALS]
    assert all(last_end < i for i in ends)
