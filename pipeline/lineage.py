"""How attempts and generations came from one another.

Within a generation each attempt comes from the one before it, by the reason of its own ``attempt_start``; across, a
generation comes from ``previous_generation_id``. An edge says what was not the same any more. Root, depth and storms are
views over these edges: a late parent changes them. Pure. Before: ``generation``. After: ``finalize`` puts the edges into
the record.
"""

from collections.abc import Mapping
from itertools import pairwise

from schemas.events import AttemptStart, LogEvent, MessageStart
from schemas.records import LineageEdge

DEFAULT_ACROSS = "retry"
"""A generation that names a previous one and says no more is the user's own "try again"."""

_KINDS = {
    "hedge_ttft": "hedge",
    "hedge_stall": "hedge",
    "first": "retry",
    "context_shrink": "shrink",
    "fallback_model": "fallback",
    "fallback_provider": "fallback",
}


def attempt_id(generation_id: str, attempt: int) -> str:
    """The name of an attempt where one text must say it."""
    return f"{generation_id}/{attempt}"


def changed_inputs(before: AttemptStart, after: AttemptStart) -> list[str]:
    """What differs between two attempts: what the later one says of itself, and what can be seen; sorted, each once."""
    seen = (
        ("provider", before.provider != after.provider),
        ("model", before.model != after.model),
        (
            "prompt",
            None not in (before.prompt_hash, after.prompt_hash) and before.prompt_hash != after.prompt_hash,
        ),
        ("context", bool(after.dropped_segments)),
    )
    return sorted({*after.changed_inputs, *(name for name, differs in seen if differs)})


def edges_of(
    generation_id: str,
    start: MessageStart | None,
    starts: Mapping[int, LogEvent],
    successor: str | None = None,
) -> list[LineageEdge]:
    """The edges that end at this generation or at one of its attempts, the generation's own first.

    One that was superseded has no attempt; its edge leads to the generation that stands in its place.
    """
    edges: list[LineageEdge] = []
    if start is not None and start.previous_generation_id:
        edges.append(
            LineageEdge(
                kind=start.lineage_kind or DEFAULT_ACROSS,
                from_id=start.previous_generation_id,
                to_id=generation_id,
            )
        )
    begun = {
        number: event.attempt_start for number, event in starts.items() if event.attempt_start is not None
    }
    for before, number in pairwise(sorted(begun)):
        reason = begun[number].reason
        edges.append(
            LineageEdge(
                kind=_KINDS.get(reason, reason),
                from_id=attempt_id(generation_id, before),
                to_id=attempt_id(generation_id, number),
                changed_inputs=changed_inputs(begun[before], begun[number]),
            )
        )
    if successor is not None:
        edges.append(LineageEdge(kind="superseded", from_id=generation_id, to_id=successor))
    return edges
