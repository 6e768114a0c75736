"""Whole answers of each dialect, damaged: events lost, doubled, in another order, with values that are of another type.

The property tests of the dialects make up shapes; these begin with streams that are right, so that what is wrong in them
stands deep inside.
"""

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.dialects.spoken import dialect_of
from edge.sse import SseEvent
from tests.support.answers import ANSWERS, PATHS, events_of
from tests.support.events import log_event, proper_end
from tests.support.records import CODEC

ODD = st.sampled_from([None, 1, -1, 1e9, True, "x", "", [], {}, [1], [{}], {"a": 1}, {"type": "text"}])


STREAMS = {
    path: [events_of(answer) for answer in ANSWERS[path].values() if answer.stream] for path in ANSWERS
}


def odd_at(value, path, odd):
    """The value with something else at a place within it; the path says how to get there, as far as there is a way."""
    if not path or not isinstance(value, dict | list) or not value:
        return odd
    if isinstance(value, dict):
        key = sorted(value)[path[0] % len(value)]
        return value | {key: odd_at(value[key], path[1:], odd)}
    at = path[0] % len(value)
    return [*value[:at], odd_at(value[at], path[1:], odd), *value[at + 1 :]]


@st.composite
def damaged(draw, dialect):
    """A stream with up to three faults."""
    events = list(draw(st.sampled_from(STREAMS[PATHS[dialect]])))
    for fault in draw(st.lists(st.sampled_from(["lost", "foreign", "moved", "odd"]), max_size=3)):
        at, to = draw(st.integers(0, len(events) - 1)), draw(st.integers(0, len(events)))
        if fault == "lost" and len(events) > 1:
            del events[at]
        elif fault == "foreign":
            events.insert(to, draw(st.sampled_from(draw(st.sampled_from(STREAMS[PATHS[dialect]])))))
        elif fault == "moved":
            events.insert(to, events.pop(at))
        else:
            path = draw(st.lists(st.integers(0, 20), min_size=1, max_size=5))
            events[at] = odd_at(events[at], path, draw(ODD))
    return events


@pytest.mark.parametrize("dialect", PATHS)
def test_no_damage_is_a_bug(dialect):
    """However a stream is damaged, its events are captured, can be put in the log, and can be assembled."""
    spoken = dialect_of(dialect)

    @settings(max_examples=150)
    @given(damaged(dialect))
    def holds(values):
        state, captured = spoken.new_state(), []
        for value in values:
            name = value.get("type") if isinstance(value, dict) else None
            event = SseEvent(name if isinstance(name, str) else None, json.dumps(value), None, None)
            captured += state.capture(event)
        kept = [c for c in captured if c.kind is not None and c.failure is None]
        events = [
            log_event(c.kind, seq, raw=c.raw, raw_event=c.raw_event, canonical=list(c.canonical))
            for seq, c in enumerate(kept, 1)
        ]
        for event in events:
            CODEC.encode(event)
        orjson.dumps(spoken.assemble([*events, proper_end(len(events) + 1)]))

    holds()
