"""How attempts and generations came from one another: edges, kinds, and what was not the same any more."""

import pytest
from msgspec import structs

from pipeline.lineage import changed_inputs
from schemas.events import AttemptStart, ErrorEnd, Kind, Outcome
from tests.support.events import log_event
from tests.support.folding import GENERATION_ID, at, attempt_end, attempt_start, content, end, row_of, start


def begun(number, **fields):
    """Give an attempt_start with these fields of its own."""
    event = attempt_start(number, reason=fields.pop("reason", "first" if number == 0 else "retry"))
    return structs.replace(event, attempt_start=structs.replace(event.attempt_start, **fields))


def edges(*starts):
    """Give (kind, from, to, changed) of the attempts of one generation; the last of them answered."""
    last = len(starts) - 1
    ends = [attempt_end(n, outcome=Outcome.FAILED, usage=None) for n in range(last)]
    records = [start(), *starts, content(1, 300, attempt=last), *ends, attempt_end(last), end(2)]
    named = {f"{GENERATION_ID}/{n}": n for n in range(len(starts))}
    return [(e.kind, named[e.from_id], named[e.to_id], e.changed_inputs) for e in row_of(records).lineage]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("retry", "retry"),
        ("fallback", "fallback"),
        ("hedge_ttft", "hedge"),
        ("hedge_stall", "hedge"),
        ("repair", "repair"),
        ("shrink", "shrink"),
        ("first", "retry"),
        ("of_tomorrow", "of_tomorrow"),
    ],
)
def test_each_reason_has_a_kind(reason, kind):
    """The kinds are those of the documents; a reason that nobody knows yet is told as it is."""
    assert edges(begun(0), begun(1, reason=reason)) == [(kind, 0, 1, [])]


def test_an_attempt_comes_from_the_one_that_it_names():
    """A retry of the first beside a hedge that still runs comes from the first, not from the hedge."""
    hedge = begun(1, reason="hedge_ttft", previous_request_id=f"{GENERATION_ID}/0")
    again = begun(2, reason="retry", previous_request_id=f"{GENERATION_ID}/0")
    assert [edge[:3] for edge in edges(begun(0), hedge, again)] == [("hedge", 0, 1), ("retry", 0, 2)]


@pytest.mark.parametrize(
    "named",
    [
        "",
        "other/0",
        f"{GENERATION_ID}/7",
        f"{GENERATION_ID}/2",
        f"{GENERATION_ID}/x",
        f"{GENERATION_ID}/{'9' * 5000}",
    ],
)
def test_a_name_that_is_none_of_its_own(named):
    """Another generation's, an unknown, a later attempt, no number: then it comes from the one before."""
    assert [edge[1:3] for edge in edges(begun(0), begun(1), begun(2, previous_request_id=named))] == [
        (0, 1),
        (1, 2),
    ]


def test_what_changed_is_between_the_two():
    """Two attempts on the same fallback: only the first of them changed provider and model."""
    first = begun(0, prompt_hash="a")
    fallback = begun(
        1, reason="fallback", provider="q", model="n", prompt_hash="a", changed_inputs=["model", "provider"]
    )
    again = begun(2, provider="q", model="n", prompt_hash="a", changed_inputs=["model", "provider"])
    assert [edge[3] for edge in edges(first, fallback, again)] == [["model", "provider"], []]


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({}, {}, []),
        ({"prompt_hash": "a"}, {"prompt_hash": "b"}, ["prompt"]),
        ({"prompt_hash": "a"}, {}, []),
        ({"prompt_hash": "a"}, {"prompt_hash": "b", "dropped_segments": 2}, ["context"]),
        ({"changed_inputs": ["schema"]}, {"changed_inputs": ["schema", "max_tokens"]}, ["max_tokens"]),
    ],
)
def test_what_can_be_seen_and_what_must_be_said(before, after, changed):
    """A shorter context is no other prompt; what only the attempt knows it says itself."""
    plain = AttemptStart(provider="p", model="m")
    assert changed_inputs(structs.replace(plain, **before), structs.replace(plain, **after)) == changed


def test_a_superseded_generation_leads_to_its_successor():
    """The call that lost the claim has an edge to the generation that stands in its place."""
    error = ErrorEnd(code="superseded", message="x", successor="winner")
    given_up = log_event(Kind.ERROR, 1, error=error, raw="e", **at(5))
    (edge,) = row_of([start(), given_up]).lineage
    assert (edge.kind, edge.from_id, edge.to_id) == ("superseded", GENERATION_ID, "winner")
