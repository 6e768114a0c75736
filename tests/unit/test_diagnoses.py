"""The six diagnoses: when each holds, at its limits, and what it shows for evidence."""

import json

import pytest
from msgspec import structs

from pipeline.diagnoses import (
    AFTER_CANCEL_US_MAX,
    JITTER_EVENTS_MIN,
    NAMES,
    PAUSE_US_MIN,
    RETRY_STORM_ATTEMPTS,
    SLOW_FIRST_TOKEN_US,
    SOFT_TOKENS_MAX,
)
from schemas.events import (
    CancelRequested,
    EndedBy,
    Gap,
    Kind,
    LatencyBreakdown,
    Outcome,
    Released,
)
from tests.support.events import log_event
from tests.support.folding import at, attempt_end, attempt_start, content, end, failure, row_of, start

STEADY_MS = tuple(range(100, 1_100, 100))
SLOW_MS = SLOW_FIRST_TOKEN_US // 1000
CLOSED = [Released(resource="upstream_socket", at_us=500_000)]


def found(records):
    """Give the diagnoses of the row that these records make: name → evidence."""
    return {d.name: json.loads(d.evidence) for d in row_of(records).diagnoses}


def stream(times_ms, *, latency=None, attempt=0, ended=None, last=None, before=(), **ends):
    """Give a generation with content at these times."""
    seq = len(times_ms) + 1
    return [
        start(),
        *before,
        attempt_start(attempt),
        *(content(i, ms, attempt=attempt) for i, ms in enumerate(times_ms, 1)),
        attempt_end(attempt, ms=times_ms[-1] + 5 if times_ms else 500, **(ended or {})),
        last or end(seq, ms=times_ms[-1] + 6 if times_ms else 501, latency=latency, **ends),
    ]


def tries(count, **last):
    """Give so many attempts, of which the last is the answer."""
    records = [start()]
    for attempt in range(count - 1):
        records += [attempt_start(attempt, reason="first" if attempt == 0 else "retry")]
        records += [attempt_end(attempt, outcome=Outcome.FAILED, error_code="overloaded", usage=None)]
    records += [attempt_start(count - 1, reason="retry" if count > 1 else "first")]
    records += [content(1, 300, attempt=count - 1), attempt_end(count - 1, **last), end(2)]
    return records


def test_nothing_is_wrong_with_a_good_stream():
    """No rule holds of a quick, even, whole answer of the first attempt."""
    assert found(stream(STEADY_MS)) == {}


def test_there_are_six():
    """The names are those that people are told."""
    assert NAMES == (
        "slow_first_token",
        "jittery_stream",
        "cost_after_cancel",
        "answer_changed_after_retry",
        "json_broken_at_end",
        "retry_storm",
    )


@pytest.mark.parametrize(("first_ms", "slow"), [(SLOW_MS, False), (SLOW_MS + 1, True)])
def test_slow_is_above_the_limit(first_ms, slow):
    """Exactly at the limit the first token is not slow."""
    assert ("slow_first_token" in found(stream((first_ms, first_ms + 10)))) is slow


@pytest.mark.parametrize(
    ("parts", "segment"),
    [
        ({"gateway_us": 2_900_000}, "gateway"),
        ({"gateway_us": 1_000, "queue_us": 2_000_000}, "queue"),
        ({"gateway_us": 1_000, "prefill_us": 2_500_000}, "prefill"),
        ({"gateway_us": 1_000}, "provider"),
        ({"gateway_us": 1_000, "first_event_us": 9_000_000}, "emit"),
        (None, "provider"),
    ],
)
def test_the_largest_segment_is_named(parts, segment):
    """Of the wait for the first token, what took longest; what nobody explains is the provider's."""
    latency = LatencyBreakdown(**parts) if parts is not None else None
    evidence = found(stream((3_000, 3_010), latency=latency))["slow_first_token"]
    assert evidence["segment"] == segment
    assert sum(evidence["segments_us"].values()) == evidence["waited_us"]


def test_the_attempts_before_are_a_segment():
    """The time that was lost on attempts which failed is told as such."""
    failed = [
        attempt_start(0),
        attempt_end(0, ms=2_400, outcome=Outcome.FAILED, error_code="overloaded", usage=None),
    ]
    records = stream((3_000, 3_010), attempt=1, ended={"dispatched_us": 2_500_000}, before=failed)
    assert found(records)["slow_first_token"]["segment"] == "earlier_attempts"


def test_a_first_token_that_never_came_is_slow_too():
    """Without any content it is the whole wait that counts."""
    latency = LatencyBreakdown(gateway_us=1_000, total_us=300_000_000)
    timed_out = failure(1, code="ttft_timeout")
    timed_out = structs.replace(timed_out, error=structs.replace(timed_out.error, latency=latency))
    evidence = found(stream((), last=timed_out, ended={"outcome": Outcome.FAILED}))["slow_first_token"]
    assert evidence["waited_us"] == 300_000_000
    assert "ttft_us" not in evidence


@pytest.mark.parametrize(
    ("ended_by", "cause"),
    [(EndedBy.CUT, "network"), (EndedBy.DISCONNECT, "reader"), (EndedBy.WATCHDOG, "provider")],
)
def test_who_let_it_stall(ended_by, cause):
    """A silence that a broken connection ended is the network's, one without readers the reader's, others the provider's."""
    gap = Gap(content_index=9, start_us=1_000_000, length_us=9_000_000, ended_by=ended_by)
    ended = {"outcome": Outcome.FAILED, "gaps": [gap]}
    evidence = found(stream(STEADY_MS, ended=ended, last=failure(11)))["jittery_stream"]
    assert (evidence["cause"], evidence["unclosed_us"]) == (cause, 9_000_000)
    assert evidence["ended_by"] == [ended_by.value]


def test_a_stall_within_is_the_providers():
    """A gap that content closed again is silence of the provider."""
    evidence = found(stream((100, 200, 2_900, 3_000)))["jittery_stream"]
    assert (evidence["cause"], evidence["stall_count"], evidence["longest_stall_us"]) == (
        "provider",
        1,
        2_700_000,
    )


@pytest.mark.parametrize(("paused_us", "jittery"), [(PAUSE_US_MIN - 1, False), (PAUSE_US_MIN, True)])
def test_the_edges_own_pause(paused_us, jittery):
    """What the edge held up is no stall of the provider, and its readers noticed it all the same."""
    records = stream(STEADY_MS)
    records[4] = structs.replace(records[4], paused_us=paused_us)
    evidence = found(records).get("jittery_stream")
    assert (evidence is not None) is jittery
    assert not jittery or evidence["cause"] == "edge_pause"


@pytest.mark.parametrize(("events", "jittery"), [(JITTER_EVENTS_MIN, False), (JITTER_EVENTS_MIN + 1, True)])
def test_uneven_gaps_need_enough_of_them(events, jittery):
    """Below the threshold of a stall, one long gap among few says nothing of a percentile."""
    times = [100 + 10 * i for i in range(events - 1)]
    records = stream((*times, times[-1] + 1_500))
    assert ("jittery_stream" in found(records)) is jittery


def cancelled(*, at_us, tokens, released=CLOSED, generated=10, mode="hard", **fields):
    """Give a generation that was cancelled, the provider's socket released at half a second."""
    cancel = CancelRequested(mode=mode, reason="user_abort", at_us=at_us, tokens_generated=tokens)
    asked = log_event(Kind.CANCEL_REQUESTED, after_seq=3, cancel=cancel, **at(at_us // 1000))
    ended = {"outcome": Outcome.CANCELLED, "error_code": "cancelled", "released": released} | fields
    said = {"finish_reason": "cancelled", "cancel": cancel, "tokens_generated": generated}
    records = stream((100, 200, 300), ended=ended, **said)
    return [*records[:-2], asked, *records[-2:]]


@pytest.mark.parametrize(
    ("at_us", "tokens", "holds"),
    [
        (490_000, 10, False),
        (490_000, 9, True),
        (500_000 - AFTER_CANCEL_US_MAX, 10, False),
        (500_000 - AFTER_CANCEL_US_MAX - 1_000, 10, True),
    ],
)
def test_tokens_or_time_after_a_cancel(at_us, tokens, holds):
    """A token that came after it, or a socket that was held longer than a soft cancel may, costs."""
    evidence = found(cancelled(at_us=at_us, tokens=tokens)).get("cost_after_cancel")
    assert (evidence is not None) is holds
    if evidence is not None:
        assert evidence["socket_released"]
        assert evidence["tokens_after"] == 10 - tokens
        assert evidence["after_us"] == 500_000 - at_us


@pytest.mark.parametrize(("more", "holds"), [(SOFT_TOKENS_MAX, False), (SOFT_TOKENS_MAX + 1, True)])
def test_a_soft_cancel_waits_for_the_read_in_progress(more, holds):
    """What that brings is no finding; more than it is."""
    records = cancelled(at_us=490_000, tokens=0, generated=more, mode="soft")
    assert ("cost_after_cancel" in found(records)) is holds


def test_a_socket_that_nobody_is_known_to_have_closed():
    """An attempt that was lost, or whose end says nothing of it, may still be generating."""
    evidence = found(cancelled(at_us=490_000, tokens=10, released=[]))["cost_after_cancel"]
    assert (evidence["socket_released"], evidence["attempts_not_released"]) == (False, [0])
    assert "after_us" not in evidence
    never_sent = cancelled(at_us=490_000, tokens=10, released=[], dispatched_us=None)
    assert "cost_after_cancel" not in found(never_sent)


def test_an_older_edges_cancel_has_the_instant_of_its_record():
    """Where the cancel does not say when it was taken, its record does."""
    later = [Released(resource="upstream_socket", at_us=700_000)]
    records = cancelled(at_us=1_000, tokens=10, released=later)
    plain = CancelRequested(mode="soft", reason="user_abort")
    records[-3] = log_event(Kind.CANCEL_REQUESTED, after_seq=3, cancel=plain, **at(1))
    row = row_of(records)
    assert row.cancel.at_us == 1_000
    assert json.loads(row.diagnoses[0].evidence)["after_us"] == 699_000


def test_another_attempts_answer_and_what_differed():
    """The first attempt had begun to answer, another provider and model finished: both are told."""
    records = [
        start(),
        attempt_start(0),
        attempt_end(0, outcome=Outcome.FAILED, error_code="stall_timeout", content_events=4),
        structs.replace(
            attempt_start(1),
            attempt_start=structs.replace(
                attempt_start(1, reason="fallback").attempt_start,
                provider="q",
                model="n",
                changed_inputs=["max_tokens"],
            ),
        ),
        content(1, 300, attempt=1),
        attempt_end(1),
        end(2),
    ]
    evidence = found(records)["answer_changed_after_retry"]
    assert evidence == {
        "answered": "q/n",
        "attempt": 1,
        "changed": ["max_tokens", "model", "provider"],
        "first": "p/m",
        "instead_of": [0],
        "reason": "fallback",
    }


def test_a_retry_of_the_same_changes_nothing():
    """The same provider, model and prompt again, nothing begun before: the answer did not change."""
    assert "answer_changed_after_retry" not in found(tries(2))


@pytest.mark.parametrize(("model", "changed"), [("m", False), ("n", True)])
def test_a_hedge_that_won_changed_the_answer_only_with_its_model(model, changed):
    """Another provider of the same model, nothing begun before: that is what the hedge was for."""
    hedge = attempt_start(1, reason="hedge_ttft")
    hedge = structs.replace(
        hedge, attempt_start=structs.replace(hedge.attempt_start, provider="q", model=model)
    )
    lost = attempt_end(0, outcome=Outcome.CANCELLED, usage=None)
    records = [start(), attempt_start(0), hedge, content(1, 300, attempt=1), lost, attempt_end(1), end(2)]
    assert ("answer_changed_after_retry" in found(records)) is changed


@pytest.mark.parametrize(
    ("word", "broken"),
    [("ok", False), ("not_applicable", False), (None, False), ("malformed", True), ("truncated", True)],
)
def test_broken_json(word, broken):
    """The edge's check at the end decides; what was not checked is not broken."""
    records = stream(STEADY_MS, postprocess_result=word, finish_reason="length")
    evidence = found(records).get("json_broken_at_end")
    assert (evidence is not None) is broken
    assert not broken or evidence["result"] == word
    assert not broken or evidence["finish_reason"] == "length"


def test_json_that_was_cancelled_is_not_broken():
    """Whoever stops an answer has no whole JSON and knows it."""
    records = stream(STEADY_MS, postprocess_result="truncated", finish_reason="cancelled")
    assert "json_broken_at_end" not in found(records)


@pytest.mark.parametrize("count", [RETRY_STORM_ATTEMPTS - 1, RETRY_STORM_ATTEMPTS])
def test_a_storm_of_one_generation(count):
    """So many tries are a storm, with who failed how often and what may have been billed."""
    evidence = found(tries(count)).get("retry_storm")
    assert (evidence is not None) is (count == RETRY_STORM_ATTEMPTS)
    if evidence is not None:
        assert (evidence["tries"], evidence["by_error"]) == (count, {"overloaded": count - 1})
        assert evidence["by_provider"] == {"p": count}


def test_hedges_are_no_retries():
    """Attempts that were started beside another one do not make a storm."""
    records = tries(3)
    records[3] = attempt_start(1, reason="hedge_ttft")
    assert "retry_storm" not in found(records)


def test_evidence_is_canonical():
    """Sorted keys, no spaces, nothing null: the same finding is the same bytes."""
    (diagnosis,) = row_of(stream(STEADY_MS, postprocess_result="malformed")).diagnoses
    assert diagnosis.evidence == json.dumps(
        json.loads(diagnosis.evidence), sort_keys=True, separators=(",", ":")
    )
    assert "null" not in diagnosis.evidence
