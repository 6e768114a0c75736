"""Calls with an Idempotency-Key on edges in memory that share one log, and what the log holds of them."""

import asyncio

from edge.clock import system_clock
from edge.dialects.spoken import dialect_of
from edge.idempotency.claims import Claim
from edge.idempotency.once import asked_of
from edge.log.memory import MemoryLog
from schemas.events import Kind
from tests.support.edge import logged
from tests.support.running import BODY, OWNER, RunningEdge
from tests.support.upstream import ScriptedUpstream

PARTITIONS = 4
DIALECT = "openai.chat"


def edges_on(event_log, *upstreams, clock=None, **sections):
    """Give edges on one log, each in front of its own upstream; not started."""
    return [
        RunningEdge(
            upstream,
            clock or system_clock(),
            event_log=event_log,
            **{"edge": {"id": f"edge-{i}"}, "retry": {"max_attempts": 1, "backoff_ms": 1}} | sections,
        )
        for i, upstream in enumerate(upstreams, 1)
    ]


def two_on_one(*scripts, event_log=None, **sections):
    """Give two edges in front of one provider of scripts."""
    upstream = ScriptedUpstream(*scripts)
    event_log = event_log or MemoryLog(lambda: system_clock().wall_us() // 1000, PARTITIONS)
    return edges_on(event_log, upstream, upstream, **sections)


async def call(edge, key="k", caller=OWNER, headers=None, **body):
    """Call as a POST with the key would: the generation's id, and whether it is an earlier call's."""
    dialect, asked_body = dialect_of(DIALECT), BODY | body
    asked = asked_of([key], caller.tenant, DIALECT, asked_body)
    request = dialect.request_of(asked_body)
    found = await edge.service.once.begin(caller, dialect, request, headers or {}, asked)
    if isinstance(found, Claim):
        return found.generation_id, True
    return found.generation.id, False


async def ended(edge, generation_id, within_s=10):
    """Wait until a generation of this edge is over; its records."""
    entry = edge.service.registry._entries[generation_id]
    await asyncio.wait_for(entry.generation.ended.wait(), within_s)
    return edge.records(entry)


def generations(log):
    """Give the kinds of each generation in log order, by id, without heartbeats and readers."""
    found = {}
    for key, partition in dict.fromkeys((r[2], p) for p, r in log.all_records()):
        kinds = [event for event in logged(log, partition, key) if event.kind in _TOLD]
        found[key.decode()] = kinds
    return found


_TOLD = {Kind.MESSAGE_START, Kind.ATTEMPT_START, Kind.DELTA, Kind.ATTEMPT_END, Kind.MESSAGE_END, Kind.ERROR}


def kinds(events):
    """Give the kinds of some events."""
    return [event.kind for event in events]
