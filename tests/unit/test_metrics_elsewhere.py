"""The same timestamps by other tools' formulas: where the numbers are equal, and where they differ on purpose.

The formulas are written down from their definitions, not their code (``docs/metrics.md`` has the table):

- AIPerf (``ai-dynamo/aiperf``, its metrics reference): TTFT = first response with content − request start; ITL =
  (request latency − TTFT) / (output sequence length − 1); ICL = differences of consecutive responses.
- guidellm (``vllm-project/guidellm``, its request statistics): TTFT = first iteration − request start; ITL = (last −
  first iteration) / (output tokens − 1); TPOT = (last iteration − request start) / output tokens.
- pi-tps (``monotykamary/pi-tps``, its README): a gap of at least the threshold between updates is a stall; its whole
  length counts; consecutive stalled updates are one event.

``tests/support/metrics_elsewhere.json`` holds what the released code of AIPerf and guidellm says of some streams: their
per-request formulas were run over its timestamps, and only the numbers were kept.
"""

import json
from fractions import Fraction
from itertools import groupby, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import Usage, UsageSource
from tests.support.folding import attempt_end, attempt_start, content, end, row_of, start

VECTORS = json.loads((Path(__file__).parents[1] / "support" / "metrics_elsewhere.json").read_text())[
    "vectors"
]
DISPATCH_MS = 1
"""When ``attempt_end`` of the test's support says that the attempt was sent."""
THRESHOLD_MS = 500

times_ms = st.lists(st.integers(1, 1_200), min_size=2, max_size=40).map(
    lambda gaps: [DISPATCH_MS + sum(gaps[: i + 1]) for i in range(len(gaps))]
)
tokens = st.integers(2, 2_000)


def ours(times, output):
    """Give the timings of a generation with content at these times and so many output tokens."""
    usage = Usage(input=5, output=output, source=UsageSource.REPORTED)
    records = [start(), attempt_start(), *(content(i, ms) for i, ms in enumerate(times, 1))]
    records += [attempt_end(usage=None), end(len(times) + 1, usage=usage)]
    return row_of(records, stall_threshold_us=THRESHOLD_MS * 1000).timings


def aiperf(times, output):
    """Give TTFT, ITL and ICL in ms by AIPerf's definitions."""
    ttft = times[0] - DISPATCH_MS
    request_latency = times[-1] - DISPATCH_MS
    itl = Fraction(request_latency - ttft, output - 1)
    return ttft, itl, [later - earlier for earlier, later in pairwise(times)]


def guidellm(times, output):
    """Give TTFT, ITL and TPOT in ms by guidellm's definitions."""
    ttft = times[0] - DISPATCH_MS
    itl = Fraction(times[-1] - times[0], output - 1)
    return ttft, itl, Fraction(times[-1] - DISPATCH_MS, output)


def pi_tps(times):
    """Give stall time in ms and stall events by pi-tps' rules."""
    stalled = [(later - earlier >= THRESHOLD_MS, later - earlier) for earlier, later in pairwise(times)]
    events = sum(is_stall for is_stall, _ in groupby(flag for flag, _ in stalled))
    return sum(gap for flag, gap in stalled if flag), events


def is_rounded(found_us, exact_ms):
    """Whether an integer of microseconds is the exact value, to half of one."""
    return abs(found_us - exact_ms * 1000) <= Fraction(1, 2)


@given(times_ms, tokens)
def test_ttft_and_itl_are_those_of_both(times, output):
    """From the dispatch to the first content, and from token to token: the same numbers as AIPerf's and guidellm's."""
    found = ours(times, output)
    for ttft, itl, _ in (aiperf(times, output), guidellm(times, output)):
        assert found.attempt_ttft_us == ttft * 1000
        assert is_rounded(found.tpot_us, itl)


@given(times_ms, tokens)
def test_chunk_gaps_are_aiperfs(times, output):
    """Gaps between content events are AIPerf's inter-chunk latency: the same longest, and each percentile is one of them."""
    found = ours(times, output)
    gaps = aiperf(times, output)[2]
    assert found.icl_max_us == max(gaps) * 1000
    assert {found.icl_p50_us, found.icl_p95_us, found.icl_p99_us} <= {gap * 1000 for gap in gaps}
    assert found.icl_p50_us == sorted(gaps)[-(-len(gaps) // 2) - 1] * 1000


@given(times_ms, tokens)
def test_guidellms_tpot_has_the_first_token_in_it(times, output):
    """It divides the whole time by all tokens: ours, without the first, is what it calls ITL. Both give the same total."""
    found = ours(times, output)
    ttft, itl, tpot = guidellm(times, output)
    assert tpot * output == ttft + itl * (output - 1)
    assert abs(found.tpot_us * (output - 1) + ttft * 1000 - tpot * output * 1000) <= output


@given(times_ms, tokens)
def test_stalls_are_pi_tps_but_at_the_threshold(times, output):
    """Where no gap is exactly the threshold: the same stall time, and its merged count is our runs."""
    found = ours(times, output)
    if THRESHOLD_MS not in aiperf(times, output)[2]:
        assert (found.stall_us, found.stall_runs) == (pi_tps(times)[0] * 1000, pi_tps(times)[1])
    assert found.stall_count >= found.stall_runs


@pytest.mark.parametrize("gap_ms", [THRESHOLD_MS - 1, THRESHOLD_MS, THRESHOLD_MS + 1])
def test_a_gap_of_the_threshold_is_theirs_alone(gap_ms):
    """pi-tps counts a gap of exactly the threshold, we and the casebook do not."""
    times = [10, 10 + gap_ms]
    assert (ours(times, 9).stall_count, pi_tps(times)[1]) == (gap_ms > THRESHOLD_MS, gap_ms >= THRESHOLD_MS)


def test_one_response_has_a_first_token_and_no_gap():
    """A single content event: a first token, and null where AIPerf and guidellm divide nothing by the tokens and say 0."""
    found = ours([40], 7)
    assert (found.attempt_ttft_us, found.tpot_us, found.icl_max_us) == (39_000, None, None)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_released_code_says_the_same(vector):
    """AIPerf's and guidellm's own code over the same timestamps: the same first token, gaps, and time per token."""
    times = [at_ns // 1_000_000 for at_ns in vector["content_ns"]]
    assert vector["dispatched_ns"] == DISPATCH_MS * 1_000_000
    found, aiperf_, guidellm_ = ours(times, vector["output_tokens"]), vector["aiperf"], vector["guidellm"]
    assert found.attempt_ttft_us == aiperf_["ttft_ns"] // 1000
    assert found.attempt_ttft_us / 1000 == pytest.approx(guidellm_["time_to_first_token_ms"])
    assert found.e2e_us == aiperf_["request_latency_ns"] // 1000 + DISPATCH_MS * 1000
    if len(times) == 1:
        assert (found.tpot_us, aiperf_["icl_ns"]) == (None, None)
        assert aiperf_["itl_ns"] == guidellm_["inter_token_latency_ms"] == 0
        return
    assert is_rounded(found.tpot_us, Fraction(aiperf_["itl_ns"]) / 1_000_000)
    assert found.tpot_us / 1000 == pytest.approx(guidellm_["inter_token_latency_ms"], abs=0.0005)
    assert found.icl_max_us == max(aiperf_["icl_ns"]) // 1000
    assert found.icl_p50_us * 1000 in aiperf_["icl_ns"]
