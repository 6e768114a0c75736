"""The picture of a generation: bars on one scale, and the words for what was wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.diagnosing import finding
from compose.timeline import AFTER, CONTENT, STALLED, WAITING, Mark, Scale, bar, draw, marked
from pipeline.diagnoses import NAMES

times = st.floats(0, 1e7, allow_nan=False)


def attempt(number=0, dispatched=0.0, first=100.0, last=300.0, elapsed=400.0, outcome="ok", **fields):
    return {
        "attempt": number,
        "provider": "sim",
        "model": "m",
        "dispatched_ms": dispatched,
        "first_content_ms": first,
        "last_content_ms": last,
        "elapsed_ms": elapsed,
        "outcome": outcome,
        "error_code": None,
        "committed": outcome == "ok",
    } | fields


def stall(start_ms, length_ms, attempt=0):
    return {"attempt": attempt, "start_ms": start_ms, "length_ms": length_ms}


def test_a_bar_has_its_stretches_in_order():
    """Blank before the dispatch, waiting, content, silence inside it, what came after, the end."""
    row = attempt(dispatched=100.0, first=200.0, last=800.0, elapsed=800.0)
    drawn = bar(row, [stall(400.0, 300.0)], Scale(1_000.0, 10))
    assert drawn == f" {WAITING}{CONTENT * 3}{STALLED * 2}{CONTENT * 2}■"


@pytest.mark.parametrize(
    ("outcome", "end"), [("ok", "■"), ("failed", "✗"), ("cancelled", "✗"), ("lost", "✗")]
)
def test_the_end_says_how(outcome, end):
    """A proper end and any other are different signs."""
    assert bar(attempt(outcome=outcome), [], Scale(400.0, 8)).endswith(end)


def test_without_content_it_waited():
    """An attempt that never spoke is one stretch of waiting."""
    row = attempt(first=None, last=None, elapsed=400.0, outcome="failed")
    assert bar(row, [], Scale(400.0, 8)) == WAITING * 7 + "✗"


@given(
    st.lists(times, min_size=4, max_size=4).map(sorted), times, st.lists(st.tuples(times, times), max_size=3)
)
def test_every_bar_is_as_wide_as_the_scale(instants, more, silences):
    """Whatever the times are: one width, exactly one end, and no sign that is not in the legend."""
    dispatched, first, last, end = instants
    row = attempt(dispatched=dispatched, first=first, last=last, elapsed=end - dispatched)
    drawn = bar(row, [stall(*silence) for silence in silences], Scale(end + more, 40))
    assert len(drawn) == 40
    assert drawn.count("■") == 1
    assert set(drawn) <= {" ", WAITING, CONTENT, STALLED, AFTER, "■"}


@given(st.lists(st.tuples(times, st.sampled_from("FSCRT")), max_size=9))
def test_marks_keep_their_order(happened):
    """Letters stand in the order in which things happened, none beyond the bar."""
    marks = sorted(Mark(*one) for one in happened)
    line = marked(marks, Scale(1e7, 60))
    assert len(line) <= 60
    assert line.replace(" ", "") == "".join(mark.letter for mark in marks)


def test_marks_at_the_end_stand_side_by_side():
    """A cancel just before the terminal is not hidden by it; more marks than columns lose the first."""
    assert marked([Mark(0.0, "F"), Mark(99.0, "C"), Mark(100.0, "T")], Scale(100.0, 10)) == "F       CT"
    assert marked([Mark(1.0, letter) for letter in "FSCT"], Scale(100.0, 3)) == "SCT"


@pytest.mark.parametrize("columns", [20, 40, 80, 300])
def test_a_picture_fits_where_it_can(columns):
    """Two attempts, their marks and the scale, lines of one width; a narrow terminal gets the narrowest bar."""
    rows = [
        attempt(0, outcome="failed", error_code="overloaded", first=None, last=None),
        attempt(1, dispatched=450.0, first=500.0),
    ]
    lines = draw(rows, [], [Mark(500.0, "F"), Mark(850.0, "T")], columns)
    assert [line.plain.split()[:2] for line in lines[:2]] == [["attempt", "0"], ["attempt", "1"]]
    assert "overloaded" in lines[0].plain
    assert lines[2].plain.split() == ["F", "T"]
    assert lines[3].plain.rstrip().endswith("850 ms")
    assert all(len(line.plain) <= max(columns, 90) for line in lines)


@pytest.mark.parametrize("rows", [[], [attempt(dispatched=None)]])
def test_nothing_to_draw(rows):
    """Without an attempt that was sent there is no picture."""
    assert draw(rows, [], [Mark(1.0, "T")], 80) == []


def test_a_long_name_is_cut():
    """A model's long name takes no more than its place."""
    (label, *_) = draw([attempt(model="x" * 200)], [], [], 100)
    assert "…" in label.plain


EVIDENCE = {
    "slow_first_token": {"segment": "prefill", "segments_us": {"prefill": 2_500_000}, "waited_us": 3_000_000, "ttft_us": 1},
    "jittery_stream": {"cause": "edge_pause", "stall_count": 1, "stall_us": 2_000_000, "pauses_us": 5_000_000},
    "cost_after_cancel": {"mode": "soft", "reason": "user_abort", "tokens_after": 3, "after_us": 9_000, "socket_released": True},
    "answer_changed_after_retry": {"attempt": 1, "answered": "q/n", "first": "p/m", "changed": ["model"]},
    "json_broken_at_end": {"result": "truncated", "finish_reason": "length"},
    "retry_storm": {"tries": 3, "by_error": {"overloaded": 2}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("slow_first_token", "2,500 ms"),
        ("jittery_stream", "stopped reading"),
        ("cost_after_cancel", "3 tokens"),
        ("answer_changed_after_retry", "model"),
        ("json_broken_at_end", "cut off (length)"),
        ("retry_storm", "2× overloaded"),
    ],
)
def test_every_diagnosis_has_words(name, word):
    """Each of the six is a sentence from its evidence, and a next step."""
    found = finding(name, json.dumps(EVIDENCE[name]))
    assert word in found.says
    assert found.next_step
    assert found.evidence == EVIDENCE[name]


@pytest.mark.parametrize("name", NAMES)
def test_words_need_no_evidence(name):
    """A diagnosis of an older or newer version, whose evidence has other fields, is said all the same."""
    assert finding(name, "{}").says.endswith(".")


@pytest.mark.parametrize("evidence", ["", "[]", "null", "{"])
def test_what_is_no_evidence_is_shown_as_it_is(evidence):
    """Nothing that stands in a row ends the command."""
    assert finding("slow_first_token", evidence).says


def test_an_unknown_diagnosis_is_shown():
    """A rule of a newer version has no words here, but its evidence."""
    found = finding("of_tomorrow", '{"a":1}')
    assert found.evidence == {"evidence": {"a": 1}}


def test_across_generations_the_other_one_is_named():
    """The two rules that look beyond one generation say which other, or which minute."""
    other = {"previous_generation_id": "g1", "changed": "model,prompt"}
    assert "g1" in finding("answer_changed_after_retry", json.dumps(other)).says
    storm = {"minute": "12:01", "retries": "10", "attempts": "15", "provider": "down"}
    assert "10 of 15 calls to down" in finding("retry_storm", json.dumps(storm)).says
