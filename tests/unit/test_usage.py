"""Usage reports of every dialect in disjoint buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import Usage, UsageSource
from schemas.usage import COUNT_MAX, as_partial, estimated, is_unusable, normalise, tokens_of_bytes

counts = st.integers(min_value=0, max_value=10**9)


def chat(prompt=None, completion=None, total=None, cached=None, reasoning=None):
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def test_nothing_reported_is_none():
    """No report, an empty one and one of nulls are all the same: unmeasured."""
    assert normalise("openai.chat", []) is None
    assert normalise("openai.chat", [{}]) is None
    assert normalise("openai.chat", [chat()]) is None


def test_openai_prompt_contains_the_cached_tokens():
    """Cached tokens are taken out of the prompt, and zero is kept apart from null."""
    usage = normalise("openai.chat", [chat(1000, 50, 1050, cached=800)])
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (200, 800, None, 50)
    assert normalise("openai.chat", [chat(1000, 50, cached=0)]).cache_read == 0


def test_responses_dialect_uses_its_own_names():
    """The Responses dialect reports the same figures under input and output."""
    report = {
        "input_tokens": 36,
        "output_tokens": 87,
        "total_tokens": 123,
        "input_tokens_details": {"cached_tokens": 6},
        "output_tokens_details": {"reasoning_tokens": 40},
    }
    usage = normalise("openai.responses", [report])
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (30, 6, 87, 40)


def test_anthropic_input_does_not_contain_the_cached_tokens():
    """Anthropic's buckets are disjoint already; a split of the writes and tool requests are kept."""
    report = {
        "input_tokens": 10,
        "cache_read_input_tokens": 6000,
        "cache_creation_input_tokens": 4000,
        "cache_creation": {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 3000},
        "server_tool_use": {"web_search_requests": 2},
        "output_tokens": 1,
    }
    usage = normalise("anthropic.messages", [report, {"output_tokens": 100}])
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (10, 6000, 4000, 100)
    assert (usage.cache_write_1h, usage.server_tool_requests) == (3000, 2)
    assert usage.flags == []


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=6))
def test_running_totals_are_never_summed(totals):
    """Of any series of reports the largest value of each field stands, in whatever order they come."""
    usage = normalise("anthropic.messages", [{"input_tokens": a, "output_tokens": b} for a, b in totals])
    assert (usage.input, usage.output) == (max(a for a, _ in totals), max(b for _, b in totals))


def test_totals_of_different_reports_are_not_compared():
    """The arithmetic is that of one report, so a prompt that shrank on the way is no contradiction."""
    usage = normalise("openai.chat", [chat(100, 0, 100), chat(40, 5, 45)])
    assert (usage.input, usage.output, usage.flags) == (100, 5, [])


@given(prompt=counts, completion=counts, cached=counts, reasoning=counts)
def test_openai_buckets_add_up_to_the_total_or_are_left_unmeasured(prompt, completion, cached, reasoning):
    """Under every convention that a total can express, the buckets add up to that total."""
    for total in {
        prompt + completion,
        prompt + completion + cached,
        prompt + completion + reasoning,
        prompt + completion + cached + reasoning,
    }:
        usage = normalise("openai.chat", [chat(prompt, completion, total, cached, reasoning)])
        if is_unusable(usage):
            assert usage.flags == ["usage_inconsistent"]
        else:
            assert usage.input + usage.cache_read + usage.output == total
            assert usage.reasoning is None or usage.reasoning <= usage.output


@pytest.mark.parametrize(
    ("report", "convention", "found"),
    [
        (chat(5000, 100, 6100, cached=1000), "standard", (5000, 1000, 100, None)),
        (chat(10, 100, cached=6000), "additive", (10, 6000, 100, None)),
        (chat(10, 100, 110, cached=5), "additive", (10, 5, 100, None)),
        (chat(100, 50, 300, reasoning=150), "standard", (100, None, 200, 150)),
        (chat(100, 20, 120, reasoning=27), "standard", (100, None, 20, None)),
        (chat(50, 20, 120, cached=50), "standard", (50, 50, 20, None)),
    ],
)
def test_conventions_of_gateways(report, convention, found):
    """The total, or else the provider's setting, tells what is a part and what comes on top."""
    usage = normalise("openai.chat", [report], convention=convention)
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == found


@pytest.mark.parametrize(
    "report",
    [
        chat(10, 100, cached=6000),  # more cached than prompt
        chat(10, 100, 999),  # a total of nothing that was named
        chat(100, 20, reasoning=27),  # part or addend: nothing tells, and the money differs
        chat(100, 100, 250, cached=50, reasoning=50),  # either of two could be on top
    ],
)
def test_what_does_not_add_up_is_unmeasured(report):
    """Contradicting counts are flagged, none of them is believed, and the report is kept as it came."""
    usage = normalise("openai.chat", [report])
    assert is_unusable(usage)
    assert (usage.input, usage.cache_read, usage.output) == (None, None, None)
    assert usage.flags == ["usage_inconsistent"]
    assert usage.source is UsageSource.REPORTED
    assert '"prompt_tokens"' in usage.raw


@pytest.mark.parametrize("count", [-5, "12", 1e3, True, COUNT_MAX + 1, 2**63, [], {"n": 1}])
def test_what_is_no_count_is_malformed(count):
    """A negative, textual, fractional, boolean or absurd count makes the whole report unusable."""
    usage = normalise("openai.chat", [chat(12, count)])
    assert is_unusable(usage)
    assert usage.flags == ["usage_malformed"]


@pytest.mark.parametrize("report", [[], "12", {"prompt_tokens": 1, "prompt_tokens_details": [3]}])
def test_a_report_of_another_shape_is_malformed(report):
    """Where an object is expected, anything else is malformed and raises nothing."""
    assert normalise("openai.chat", [report]).flags == ["usage_malformed"]


def test_a_bucket_that_is_missing_makes_the_report_partial():
    """Without completion tokens the prompt is measured and the source says partial."""
    usage = normalise("openai.chat", [{"prompt_tokens": 9}])
    assert (usage.input, usage.output, usage.source) == (9, None, UsageSource.PARTIAL_REPORTED)


def test_a_stream_that_broke_off_has_a_partial_report():
    """as_partial lowers the source of a whole report and leaves estimates and quarantined ones alone."""
    whole = normalise("anthropic.messages", [{"input_tokens": 25, "output_tokens": 1}])
    assert as_partial(whole).source is UsageSource.PARTIAL_REPORTED
    assert as_partial(whole).output == 1
    assert as_partial(estimated(8, 8)).source is UsageSource.ESTIMATED
    broken = Usage(source=UsageSource.REPORTED, flags=["usage_malformed"])
    assert as_partial(broken) == broken


def test_estimates_round_up():
    """Bytes/4, so that the first byte of an answer is a token."""
    assert [tokens_of_bytes(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    usage = estimated(prompt_bytes=40, output_bytes=6)
    assert (usage.input, usage.output, usage.source) == (10, 2, UsageSource.ESTIMATED)
