"""How attempts and generations came from one another.

Within a generation each attempt comes from the one that it names, else from the one before it, by the reason of its own
``attempt_start``; across, a generation comes from ``previous_generation_id``, and one that was given up for another leads
there (superseded). An edge says what was not the same any more. Root, depth and storms are views over these edges: a late
parent changes them. Pure. Before: ``generation``. After: ``finalize`` puts the edges into the record.
"""

from collections.abc import Collection, Mapping
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

_SEEN = frozenset({"provider", "model", "prompt", "context"})
_DIGITS_MAX = 9


def attempt_id(generation_id: str, attempt: int) -> str:
    """The name of an attempt where one text must say it."""
    return f"{generation_id}/{attempt}"


def changed_inputs(before: AttemptStart, after: AttemptStart) -> list[str]:
    """What differs between two attempts, sorted: what can be seen, and what the later one alone can say.

    An attempt says of itself how it differs from the first of its generation; here it is the one before it that counts.
    """
    shrunk = after.dropped_segments is not None
    both = (before.prompt_hash, after.prompt_hash)
    seen = (
        ("provider", before.provider != after.provider),
        ("model", before.model != after.model),
        ("prompt", None not in both and both[0] != both[1] and not shrunk),
        ("context", shrunk),
    )
    own = {name for name in after.changed_inputs if name not in _SEEN and name not in before.changed_inputs}
    return sorted(own | {name for name, differs in seen if differs})


def edges_of(
    generation_id: str,
    start: MessageStart | None,
    starts: Mapping[int, LogEvent],
    successor: str | None = None,
) -> list[LineageEdge]:
    """The edges of a generation: where it comes from, where its attempts do, and what stands in its place."""
    edges: list[LineageEdge] = []
    if start is not None and start.previous_generation_id:
        kind, before = start.lineage_kind or DEFAULT_ACROSS, start.previous_generation_id
        edges.append(LineageEdge(kind=kind, from_id=before, to_id=generation_id))
    begun = {
        number: event.attempt_start for number, event in starts.items() if event.attempt_start is not None
    }
    for earlier, number in pairwise(sorted(begun)):
        attempt = begun[number]
        follows = _followed(generation_id, attempt, begun.keys(), number)
        from_number = earlier if follows is None else follows
        edges.append(
            LineageEdge(
                kind=_KINDS.get(attempt.reason, attempt.reason),
                from_id=attempt_id(generation_id, from_number),
                to_id=attempt_id(generation_id, number),
                changed_inputs=changed_inputs(begun[from_number], attempt),
            )
        )
    if successor:
        edges.append(LineageEdge(kind="superseded", from_id=generation_id, to_id=successor))
    return edges


def _followed(generation_id: str, attempt: AttemptStart, known: Collection[int], number: int) -> int | None:
    """The earlier attempt that this one says it follows."""
    owner, _, said = (attempt.previous_request_id or "").rpartition("/")
    if owner != generation_id or not said.isdecimal() or len(said) > _DIGITS_MAX:
        return None
    return int(said) if int(said) in known and int(said) < number else None
