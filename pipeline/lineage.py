"""How attempts and generations came from one another.

Within a generation each attempt comes from the one before it, by the reason of its own ``attempt_start``; across, a
generation comes from ``previous_generation_id``. Root, depth and storms are views over these edges: a late parent
changes them. Pure. Before: ``generation``. After: ``finalize`` puts the edges into the record.
"""

from collections.abc import Mapping
from itertools import pairwise

from schemas.events import LogEvent, MessageStart
from schemas.records import LineageEdge

DEFAULT_ACROSS = "retry"
"""A generation that names a previous one and says no more is the user's own "try again"."""

_KINDS = {"hedge_ttft": "hedge", "hedge_stall": "hedge", "first": "retry"}


def attempt_id(generation_id: str, attempt: int) -> str:
    """The name of an attempt where one text must say it."""
    return f"{generation_id}/{attempt}"


def edges_of(
    generation_id: str, start: MessageStart | None, starts: Mapping[int, LogEvent]
) -> list[LineageEdge]:
    """The edges that end at this generation or at one of its attempts, the generation's own first."""
    edges: list[LineageEdge] = []
    if start is not None and start.previous_generation_id:
        edges.append(
            LineageEdge(
                kind=start.lineage_kind or DEFAULT_ACROSS,
                from_id=start.previous_generation_id,
                to_id=generation_id,
            )
        )
    numbers = sorted(starts)
    for before, number in pairwise(numbers):
        attempt = starts[number].attempt_start
        if attempt is None:
            continue
        edges.append(
            LineageEdge(
                kind=_KINDS.get(attempt.reason, attempt.reason),
                from_id=attempt_id(generation_id, before),
                to_id=attempt_id(generation_id, number),
                changed_inputs=attempt.changed_inputs,
            )
        )
    return edges
