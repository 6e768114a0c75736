"""Where the time went: what providers say of it, and parts that add up whatever anybody says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.driving.timing import (
    CLAIM_US_MAX,
    NOTHING_SAID,
    Marks,
    ProviderTiming,
    breakdown,
    of_body,
    of_headers,
)
from schemas.payloads import LATENCY_PARTS

VLLM = {"metrics": {"queue_time_ms": 12.5, "time_to_first_token_ms": 80.25, "generation_time_ms": 900.0}}
LLAMA_CPP = {"timings": {"cache_n": 3, "prompt_n": 9, "prompt_ms": 30.958, "predicted_ms": 661.064}}
GROQ_USAGE = {"queue_time": 0.0223, "prompt_time": 0.0027, "completion_time": 0.06, "prompt_tokens": 21}

times = st.none() | st.integers(0, 10**12)


@st.composite
def marks(draw):
    """Instants in the order in which they happen, any of them missing."""
    first, own, content, last, emitted, total = sorted(draw(st.integers(0, 10**10)) for _ in range(6))
    maybe = st.booleans()
    dispatched = draw(maybe)
    spoke = dispatched and draw(maybe)
    return Marks(
        total_us=total,
        first_dispatched_us=first if dispatched else None,
        dispatched_us=own if dispatched else None,
        first_content_us=content if spoke else None,
        last_content_us=last if spoke else None,
        emitted_us=emitted if spoke and draw(maybe) else None,
        admission_us=draw(times),
        context_ms=draw(st.none() | st.integers(1, 10**6)),
    )


@given(marks(), st.builds(ProviderTiming, times, times, times))
def test_the_parts_add_up(seen, said):
    """Whatever happened and whatever a provider claims: the parts and the rest are the whole, and none is negative."""
    found = breakdown(seen, said)
    parts = [getattr(found, name) for name in LATENCY_PARTS]
    assert sum(part or 0 for part in parts) + found.unattributed_us == found.total_us == seen.total_us
    assert all(part >= 0 for part in [*parts, found.unattributed_us] if part is not None)


def test_what_was_not_observed_is_null():
    """Nobody called, nothing said, nobody there to be written to: null, never zero, and all of it is unattributed."""
    found = breakdown(Marks(total_us=500))
    assert {name for name in found.__struct_fields__ if getattr(found, name) is not None} == {
        "total_us",
        "unattributed_us",
    }
    assert found.unattributed_us == 500


def test_each_part_is_its_own_stretch():
    """Admission comes off the gateway, the provider's queue is added to it, and the wait that nobody explains is the rest."""
    seen = Marks(
        total_us=10_000,
        first_dispatched_us=1_000,
        dispatched_us=2_000,
        first_content_us=6_000,
        last_content_us=9_000,
        emitted_us=6_200,
        admission_us=400,
        context_ms=7,
    )
    found = breakdown(seen, ProviderTiming(queue_us=500, prefill_us=3_000, whole_us=8_000))
    assert (found.gateway_us, found.queue_us, found.prefill_us) == (600, 900, 3_000)
    assert (found.decode_us, found.postprocess_us) == (3_000, 1_000)
    assert found.unattributed_us == 1_500  # the first attempt's second, and half a millisecond of the network
    assert (found.first_event_us, found.ttft_us, found.ttft_emitted_us) == (200, 6_000, 6_200)
    assert (found.context_us, found.provider_us) == (7_000, 8_000)


@pytest.mark.parametrize(("prefill_us", "believed"), [(4_000, 4_000), (4_001, None)])
def test_a_provider_is_believed_as_far_as_it_was_seen(prefill_us, believed):
    """Queue and prefill that fill the wait to the first content exactly are taken; one microsecond more, and neither is."""
    seen = Marks(total_us=9_000, first_dispatched_us=0, dispatched_us=1_000, first_content_us=6_000)
    found = breakdown(seen, ProviderTiming(queue_us=1_000, prefill_us=prefill_us))
    assert found.prefill_us == believed
    assert found.queue_us == (None if believed is None else 1_000)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (VLLM, ProviderTiming(queue_us=12_500, prefill_us=80_250)),
        (LLAMA_CPP, ProviderTiming(prefill_us=30_958)),
        ({"usage": GROQ_USAGE}, ProviderTiming(queue_us=22_300, prefill_us=2_700)),
        ({"usage": None, "x_groq": {"usage": GROQ_USAGE}}, ProviderTiming(queue_us=22_300, prefill_us=2_700)),
        ({"metrics": {"queue_time_ms": None}}, ProviderTiming()),
        ({"usage": {"prompt_tokens": 1}}, None),
        ({"choices": []}, None),
    ],
)
def test_what_bodies_say(said, expected):
    """Each server's own words for its queue and its prefill, in its own unit."""
    assert of_body(said) == expected


@pytest.mark.parametrize(
    "value", [-1, True, "12", [], {}, None, float("nan"), float("inf"), CLAIM_US_MAX, 10**400]
)
def test_no_claim_that_cannot_be_a_time(value):
    """Negative, not a number, or longer than a day: as if nothing had been said."""
    assert of_body({"timings": {"prompt_ms": value}}) == NOTHING_SAID


@pytest.mark.parametrize(
    ("headers", "whole_us"),
    [
        ({"openai-processing-ms": "431"}, 431_000),
        ({"anthropic-processing-ms": "17.5"}, 17_500),
        ({"openai-processing-ms": "soon"}, None),
        ({"openai-processing-ms": "-3"}, None),
        ({"x-request-id": "1"}, None),
    ],
)
def test_what_heads_say(headers, whole_us):
    """The providers' headers for the whole of their processing."""
    assert of_headers(headers) == ProviderTiming(whole_us=whole_us)


def test_two_places_are_joined():
    """What the body says stands beside what the head said, and instead of it where both speak."""
    head = ProviderTiming(queue_us=1, whole_us=5)
    assert head.joined(None) == head
    assert head.joined(ProviderTiming(queue_us=2, prefill_us=3)) == ProviderTiming(2, 3, 5)
