"""What follows an answer that broke off after content, where its client asked for that: a new, linked generation.

``restart`` asks the same again; ``continue`` shows the model what it said and asks for the rest, so no text comes twice
(what the model itself repeats is the model's own, and is not edited). The new one is in the log before the old one's
terminal names it (``successor``), so whoever reads that name finds it. It has the old one's request id, key and reader
policy, what is left of its deadline, and no follower of its own: one is enough to tell. Before:
``policy.succession`` says which. After: ``service`` begins it, ``ending`` names it.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from edge.dialects import BadRequest, ClientRequest
from edge.driving.wishes import CONTINUE
from edge.follow import Hole, LogSilent, OffsetGone
from edge.generation import Follows
from edge.policy.changes import go_on
from schemas.errors import TokentrailError
from schemas.events import LogEvent, PartType

if TYPE_CHECKING:
    from edge.driver import Driver
    from edge.service import EdgeService
    from schemas.settings import ApiKey

log = structlog.get_logger()
_KEPT = ("x-client-id", "x-priority", "x-risk-tier", "x-prompt-version", "traceparent")


async def begin_successor(
    service: "EdgeService", caller: "ApiKey", driver: "Driver", headers: Mapping[str, str], kind: str
) -> str | None:
    """Begin it; its id, or None where it cannot be: nothing to go on from, or no provider, log or time for it."""
    generation, recorder, request = driver.generation, driver.recorder, driver.request
    start = generation.identity.start
    asked: ClientRequest | None = request
    point = None
    try:
        if kind == CONTINUE:
            async with asyncio.timeout(driver.settings.log.delivery_s):
                text = plain_text(await _shown(service, driver))
            asked = None if text is None else go_on(driver.dialect, request, text)
            point = recorder.next_seq - 1
        if asked is None or driver.ending:  # it was cancelled meanwhile
            return None
        follows = Follows(start.request_id, recorder.digest.output_hash(), point)
        given = {name: headers[name] for name in _KEPT if name in headers} | {
            "x-request-id": start.request_id,
            "x-previous-generation-id": generation.id,
            "x-lineage-kind": kind,
            "x-tokentrail-on-disconnect": generation.on_disconnect,
        }
        if start.request_deadline_ms is not None:
            given["x-deadline-ms"] = str(max(1, start.request_deadline_ms - recorder.elapsed_us() // 1000))
        entry = await service.begin(caller, driver.dialect, asked, given, follows)
    except (BadRequest, TokentrailError, Hole, LogSilent, OffsetGone, TimeoutError) as error:
        log.warning("nothing follows a broken answer", generation_id=generation.id, error=repr(error))
        return None
    if driver.cancel is not None:
        service.registry.cancel(entry.generation.id, driver.cancel)
        return None
    service.registry.await_reader(entry)
    return entry.generation.id


async def _shown(service: "EdgeService", driver: "Driver") -> list[LogEvent]:
    """Every event that the log has acknowledged of the generation so far: from memory, or from the log."""
    generation, last_seq = driver.generation, driver.recorder.next_seq - 1
    await driver.recorder.settled(driver.settings.log.delivery_s)
    follower = service.desk.begun_here(generation)
    events: list[LogEvent] = []
    try:
        while not follower.ended and follower.reading.next_seq <= last_seq:
            events += [delivered.event for delivered in await follower.read()]
    finally:
        follower.close()
    return events


def plain_text(events: list[LogEvent]) -> str | None:
    """The text so far; None where there is more than one choice, or a tool call, which nobody can go on with."""
    parts = [part for event in events for part in event.canonical]
    if any(part.choice_index or part.type is PartType.TOOL_CALL for part in parts):
        return None
    return "".join(part.text for part in parts if part.type is PartType.TEXT) or None
