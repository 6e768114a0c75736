"""Each row of the table of definitions, at its edges: which side of a limit a figure falls on."""

import pytest
from msgspec import structs

from pipeline.finalize import SAMPLING_CHARS_MAX
from schemas.events import (
    CancelRequested,
    Canonical,
    EndedBy,
    Gap,
    Heartbeat,
    Kind,
    Outcome,
    PartType,
    RuntimeSnapshot,
    Stage,
    Usage,
    UsageSource,
)
from tests.support.events import log_event
from tests.support.folding import at, attempt_end, attempt_start, content, end, failure, row_of, start

THRESHOLD_MS = 2_000


def row(times_ms, *, output=50, reasoning=None, sampling=None, extra=(), last=None, **usage):
    """Give the row of a generation with content at these times."""
    first = start()
    if sampling is not None:
        opening = structs.replace(first.message_start, runtime_snapshot=RuntimeSnapshot(sampling=sampling))
        first = structs.replace(first, message_start=opening)
    said = Usage(input=5, output=output, reasoning=reasoning, source=UsageSource.REPORTED, **usage)
    records = [first, attempt_start(), *(content(i, ms) for i, ms in enumerate(times_ms, 1)), *extra]
    seq = len(times_ms) + 1
    return row_of([*records, attempt_end(usage=None), last or end(seq, ms=60_000, usage=said)])


def test_first_tokens_are_of_any_content_and_of_text():
    """Reasoning is content: it is the first token; the first text is told beside it."""
    thought = log_event(Kind.DELTA, 1, canonical=[Canonical(type=PartType.REASONING, text="hm")], **at(100))
    records = [start(), attempt_start(), thought, content(2, 400), attempt_end(), end(3)]
    timings = row_of(records).timings
    assert (timings.ttft_us, timings.attempt_ttft_us, timings.attempt_ttft_text_us) == (
        100_000,
        99_000,
        399_000,
    )


def test_the_wall_is_never_overwritten():
    """generation_ms keeps every stall and every pause of ours; active_generation_ms leaves the stalls out."""
    timings = row((100, 200, 3_200, 3_300)).timings
    assert (timings.generation_us, timings.active_generation_us) == (3_200_000, 200_000)
    assert (timings.stall_us, timings.stall_count, timings.longest_stall_us) == (3_000_000, 1, 3_000_000)


def test_end_marks_and_empty_chunks_are_no_content():
    """Frames and a late terminal move neither the end nor a gap."""
    frame = log_event(Kind.FRAME, 3, **at(9_000))
    records = [
        start(),
        attempt_start(),
        content(1, 100),
        content(2, 200),
        frame,
        attempt_end(),
        end(4, ms=9_900),
    ]
    timings = row_of(records).timings
    assert (timings.e2e_us, timings.stall_count) == (200_000, 0)


@pytest.mark.parametrize(
    ("output", "reasoning", "tpot_us"),
    [
        (11, None, 100_000),
        (2, None, 1_000_000),
        (1, None, None),
        (0, None, None),
        (12, 10, 1_000_000),
        (11, 10, None),
    ],
)
def test_time_per_token_needs_two_tokens(output, reasoning, tpot_us):
    """One interval fewer than tokens that were streamed; hidden reasoning was not; with less than two there is none."""
    assert row((100, 1_100), output=output, reasoning=reasoning).timings.tpot_us == tpot_us


@pytest.mark.parametrize(
    ("times_ms", "reason", "basis"),
    [
        ((100, 200, 300, 400), "too_few", None),
        ((100, 200, 300, 400, 500), None, "active"),
        (tuple(range(100, 301)), None, "active"),  # a mean gap of exactly 1 ms
        ((*[100] * 201, 300), "burst", None),
        ((100, 150, 200, 250, 300), None, "active"),  # exactly 200 ms
        ((100, 150, 200, 250, 299), "too_short", None),
        ((100, 600, 1_100, 1_600, 2_100, 4_101), "too_short", "wall"),  # active 2 000 ms, stall 2 001 ms
        ((100, 600, 1_100, 1_601, 2_101, 4_102), "too_short", "wall"),  # equal: not trusted either
        ((100, 600, 1_100, 1_603, 2_103, 4_104), None, "active"),
    ],
)
def test_which_rate_is_to_be_trusted(times_ms, reason, basis):
    """Five events, a mean gap of a millisecond, 200 ms of activity, and more activity than silence."""
    timings = row(times_ms).timings
    assert (timings.tps_null_reason, timings.tps_basis) == (reason, basis)


@pytest.mark.parametrize(
    ("n", "measured"), [("1", True), ("2", False), ("null", True), ('"2"', True), ("[]", True)]
)
def test_several_choices_that_were_asked_for(n, measured):
    """With n above 1 no gap means anything, also where only one choice came before the end."""
    found = row((100, 200, 3_200, 3_300, 3_400), sampling=f'{{"n":{n}}}')
    assert (found.timings.stall_count is not None) is measured
    assert (found.stalls != []) is measured
    assert measured or found.timings.tps_null_reason == "multiple_choices"
    assert found.timings.ttft_us == 100_000


@pytest.mark.parametrize("sampling", ["", "{", "[]", "null", '{"n":1e99}'])
def test_sampling_that_cannot_be_read_asks_for_one(sampling):
    """Whatever stands there, the generation is finalized."""
    assert row((100, 200), sampling=sampling).timings.stall_count == 0


@pytest.mark.parametrize(("chars", "whole"), [(SAMPLING_CHARS_MAX, True), (SAMPLING_CHARS_MAX + 1, False)])
def test_long_sampling_is_a_hash(chars, whole):
    """A client's own size never becomes the row's; two that are equal still are."""
    sampling = '{"n":2,"logit_bias":"' + "x" * (chars - 23) + '"}'
    assert len(sampling) == chars
    found = row((100, 200), sampling=sampling)
    assert (found.sampling == sampling) is whole
    assert whole or found.sampling.startswith("sha256:")
    assert found.timings.tps_null_reason == "multiple_choices"


@pytest.mark.parametrize(("cache_read", "hit"), [(None, None), (0, False), (1, True)])
def test_a_cache_hit_is_reported(cache_read, hit):
    """Null where the provider does not say, never false."""
    assert row((100, 200), cache_read=cache_read).cache_hit is hit


def test_unknown_usage_says_nothing_of_the_cache():
    """Without usage there is no answer to the question."""
    bare = row_of([start(), attempt_start(), content(1, 100), attempt_end(usage=None), end(2, usage=None)])
    assert bare.cache_hit is None


@pytest.mark.parametrize("stage", [Stage.TOOL, Stage.POSTPROCESS])
def test_a_stall_stands_in_a_stage(stage):
    """What a heartbeat within the gap said; one before the gap says nothing of it."""
    before = log_event(Kind.HEARTBEAT, after_seq=1, heartbeat=Heartbeat(stage=stage), **at(150))
    within = log_event(Kind.HEARTBEAT, after_seq=2, heartbeat=Heartbeat(stage=stage), **at(900))
    assert row((100, 200, 3_200), extra=[before]).stalls[0].stage is Stage.DECODE
    assert row((100, 200, 3_200), extra=[within]).stalls[0].stage is stage


def test_a_stall_is_where_it_was():
    """Its row has the seq and the index of the content before it, its start, length and who ended it."""
    (stall,) = row((100, 200, 3_200)).stalls
    assert (stall.seq, stall.content_index, stall.start_us, stall.length_us) == (2, 1, 200_000, 3_000_000)
    assert (stall.ended_by, stall.counted, stall.attempt) == (EndedBy.CONTENT, True, 0)


@pytest.mark.parametrize(
    ("code", "reason", "ended_by"),
    [
        ("stall_timeout", None, EndedBy.WATCHDOG),
        ("cancelled", "user_abort", EndedBy.CANCEL),
        ("cancelled", "client_disconnect", EndedBy.DISCONNECT),
        ("incomplete_upstream", None, EndedBy.CUT),
    ],
)
def test_who_ended_the_last_gap(code, reason, ended_by):
    """Watchdog, cancel, a client that had gone, or a cut: a row, and in none of the sums."""
    ended = {"outcome": Outcome.FAILED, "error_code": code, "elapsed_us": 9_000_000}
    records = [start(), attempt_start(), content(1, 100), content(2, 200)]
    if reason is not None:
        cancel = CancelRequested(reason=reason)
        records.append(log_event(Kind.CANCEL_REQUESTED, after_seq=2, cancel=cancel, **at(9_000)))
    found = row_of([*records, attempt_end(usage=None, **ended), failure(3, code=code)])
    assert [(stall.ended_by, stall.counted) for stall in found.stalls] == [(ended_by, False)]
    assert (found.timings.stall_count, found.timings.stall_us) == (0, 0)


def test_a_losers_figures_stay_on_its_attempt():
    """Gaps of a hedge that lost are rows of its attempt, and in no sum of the generation."""
    gap = Gap(content_index=0, start_us=50_000, length_us=4_000_000, ended_by=EndedBy.HEDGE)
    records = [
        start(),
        attempt_start(0),
        attempt_start(1, reason="hedge_stall"),
        content(1, 100, attempt=1),
        content(2, 200, attempt=1),
        attempt_end(0, outcome=Outcome.CANCELLED, gaps=[gap], content_events=1),
        attempt_end(1),
        end(3),
    ]
    found = row_of(records)
    assert [(stall.attempt, stall.ended_by, stall.counted) for stall in found.stalls] == [
        (0, EndedBy.HEDGE, False)
    ]
    assert (found.timings.stall_count, found.committed_attempt) == (0, 1)


def test_no_duration_is_of_the_wall():
    """Wall clocks that jump change nothing but ``clock_skew``."""
    straight = row((100, 200, 3_200)).timings
    records = [start(), attempt_start(), content(1, 100), content(2, 200, wall_us=1), content(3, 3_200)]
    jumped = row_of(
        [
            *records,
            attempt_end(usage=None),
            end(4, ms=60_000, usage=Usage(input=5, output=50, source=UsageSource.REPORTED)),
        ]
    )
    assert jumped.timings == straight
    assert "clock_skew" in jumped.flags
