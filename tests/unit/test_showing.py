"""``tokentrail show``, ``diagnose`` and ``cancel`` in words: whole values in 80 columns, whatever a generation was.

Before this file: ``compose.showing``, ``compose.diagnosing``. After it: nothing.
"""

import re
from decimal import Decimal

import pytest

from compose.commands import show
from compose.commands.cancel import ended_in_words
from compose.diagnosing import evidence_lines
from compose.logs import Terminal
from compose.showing import FORGOTTEN, attempts_of_running, facts_of, facts_of_running
from compose.timeline import Scale, bar

ID = "01a229ca-377f-7623-abd9-6223591c8f8d"
PROVIDER, MODEL = "a-provider-in-europe", "a-model-with-a-long-name"
ROW = {
    "terminal": "message_end", "finish_reason": "stop", "error_code": None, "error_message": None, "tenant": "acme",
    "model": MODEL, "served_model": MODEL, "ttft_ms": 131.1, "e2e_ms": 3613.2, "stall_count": 1, "stall_ms": 2319.7,
    "usage_input": 4, "usage_cache_read": 0, "usage_output": 60000, "usage_source": "reported",
    "previous_generation_id": None, "lineage_kind": None, "request_id": "req-7", "edge_id": "edge-1",
    "cancel_at_ms": None, "latency_total_ms": 3632.0,
}  # fmt: skip
ATTEMPT = {
    "attempt": 0, "provider": PROVIDER, "model": MODEL, "outcome": "failed", "error_code": "upstream_error",
    "committed": True, "dispatched_ms": 5.0, "first_content_ms": 131.1, "last_content_ms": 3600.0, "elapsed_ms": 3627.0,
}  # fmt: skip
STALL = {"attempt": 0, "seq": 21, "start_ms": 512.7, "length_ms": 2319.7, "ended_by": "content"}


def line(side, amount, bucket="output", quantity=60000):
    return {
        "attempt": 0, "side": side, "bucket": bucket, "quantity": quantity, "unit_price": Decimal("0.000025"),
        "amount": None if amount is None else Decimal(amount), "currency": "USD", "status": "incomplete",
    }  # fmt: skip


def happened(kind, elapsed_ms, seq=None, said="", attempt=0, reason=""):
    return {"kind": kind, "seq": seq, "attempt": attempt, "elapsed_ms": elapsed_ms, "said": said, "reason": reason}  # fmt: skip


LEDGER = [line("provider_cost", "0.000024000000000001"), line("customer_charge", "0.000024")]
TIMELINE = [
    happened("message_start", 0.5, 0),
    happened("attempt_start", 0.8, reason="first"),
    happened("delta", 131.1, 2, "[b]so"),
    happened("message_end", 3632.0, 63),
]
STORED = {
    "generation": [ROW],
    "timeline": TIMELINE,
    "attempts": [ATTEMPT],
    "stalls": [STALL],
    "ledger": LEDGER,
}


@pytest.fixture
def shown(monkeypatch, capsys):
    """Print one generation in so many columns; its lines."""

    def print_it(live, stored, columns=80):
        monkeypatch.setattr(show, "out", Terminal(highlight=False, width=columns))
        show._print(ID, live, stored)
        return capsys.readouterr().out.splitlines()

    return print_it


@pytest.mark.parametrize("columns", [80, 120])
def test_no_value_is_folded(shown, columns):
    """Names, codes and exact amounts stand in one piece in 80 columns, and no line is longer."""
    lines = shown(None, STORED, columns)
    text = "\n".join(lines)
    for whole in (
        f"{PROVIDER}/",
        MODEL,
        "upstream_error",
        "0.000024000000000001",
        "60,000",
        "incomplete",
        "[b]so",
    ):
        assert whole in text
    assert max(len(one.rstrip()) for one in lines) <= columns


def test_what_happened_stands_in_its_order(shown):
    """Events and silences are one list by their time, and only signs that are drawn are explained."""
    lines = shown(None, STORED)
    at = [float(found[1].replace(",", "")) for one in lines if (found := re.match(r" +([\d,]+\.\d)  ", one))]
    assert at == sorted(at) == [0.5, 0.8, 131.1, 512.7, 3632.0]
    legend = [one for one in lines if "F first token" in one]
    assert legend == ["F first token  S stall  T terminal"]


def test_a_forgotten_one_says_so_first(shown):
    """Its words are gone, its figures are not; nothing of it pretends to be a timeline."""
    lines = shown(None, STORED | {"timeline": [happened("forgotten", None)]})
    assert lines[1].split()[0] == "forgotten"
    assert FORGOTTEN in lines[1]
    assert not any("Timeline" in one for one in lines)
    assert any(re.fullmatch(r" +F +T *", one) for one in lines)
    assert shown(None, {"timeline": [happened("forgotten", None)]})[1].split()[0] == "forgotten"


def test_what_has_no_price_is_no_zero():
    """A sum says how many lines have no price; it is exact where they have."""
    rows = [line("provider_cost", "0.1"), line("provider_cost", "0.2"), line("provider_cost", None)]
    facts = dict(facts_of(ROW, rows))
    assert facts["provider cost"] == "0.3 USD and 1 line without a price"
    assert "charge" not in facts


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({}, "complete: stop"),
        ({"finish_reason": "cancelled"}, "cancelled"),
        ({"terminal": "error", "finish_reason": "error", "error_code": "kv_oom"}, "failed: kv_oom"),
    ],
)
def test_the_outcome_is_said_in_one_place(more, outcome):
    """How it ended is one line, whatever the end was."""
    assert dict(facts_of(ROW | more, []))["outcome"] == outcome


def test_what_was_stopped_says_what_it_gave_back():
    """Who asked and when each thing went; what there was none of is left out, and a proper end says nothing of it."""
    released = {
        "released_admission_slot_ms": 651.2,
        "released_upstream_socket_ms": 640.0,
        "released_claim_ms": None,
    }
    asked = {
        "cancel_at_ms": 639.0,
        "cancel_mode": "hard",
        "cancel_reason": "user_abort",
        "cancel_requested_by": "key-1",
        "cancel_stage": "decode",
    }
    facts = dict(facts_of(ROW | released | asked | {"finish_reason": "cancelled"}, []))
    assert facts["cancelled"] == "at 639 ms in decode: hard, user_abort, by key-1"
    assert facts["given back"] == "admission slot 651 ms, provider's socket 640 ms"
    late = {"finish_reason": "timeout", "terminal": "error", "error_code": "stall_timeout"}
    assert dict(facts_of(ROW | released | late, []))["given back"] == facts["given back"]
    assert "given back" not in dict(facts_of(ROW | released, []))


LIVE = {
    "state": "streaming", "edge_id": "edge-1", "started_us": 1_000_000, "events": 1211, "last_content_us": 4_000_000,
    "first_content_us": 113_330, "start": {"model": "m", "request_id": "r"},
    "attempts": [{"attempt": 0, "provider": "p", "model": "m", "reason": "first", "opened_us": 5_000}],
    "stalls": [{"attempt": 0, "start_us": 1_000_000, "length_us": 2_500_000, "seq": 3}],
}  # fmt: skip


def test_a_running_one_is_drawn_up_to_now(shown):
    """Before ClickHouse has a row, the edge's own word is shown in the same form, with a bar that is open."""
    facts = dict(facts_of_running(LIVE, now_us=6_000_000))
    assert facts["outcome"] == "running: streaming"
    assert (facts["first token"], facts["so far"]) == ("113 ms", "5,000 ms")
    assert facts["silent"] == "2,500 ms in 1 stall"
    (attempt,) = attempts_of_running(LIVE, now_us=6_000_000)
    assert (attempt["elapsed_ms"], attempt["outcome"]) == (4_995.0, "runs")
    assert re.fullmatch(r"░+█+─*▸", bar(attempt, [], Scale(5_000, 50)))
    lines = shown(LIVE, {})
    assert any("▸  runs" in one for one in lines)
    assert not any("started_us" in one for one in lines)


def test_of_two_that_race_neither_is_given_the_content():
    """Which of two running attempts is delivered the edge does not say yet; one opened behind the content is not it."""
    racing = LIVE["attempts"] + [
        LIVE["attempts"][0] | {"attempt": 1, "reason": "hedge_ttft", "opened_us": 90_000}
    ]
    late = [
        LIVE["attempts"][0] | {"outcome": "failed"},
        LIVE["attempts"][0] | {"attempt": 1, "opened_us": 200_000},
    ]
    for attempts in (racing, late):
        drawn = attempts_of_running(LIVE | {"attempts": attempts}, now_us=6_000_000)
        assert not [one for one in drawn if one.get("committed") or one["first_content_ms"] is not None]


def test_a_clock_that_is_behind_draws_nothing_backwards():
    """Where the wall of this machine is behind the edge's, it has run at least to its last content."""
    (attempt,) = attempts_of_running(LIVE, now_us=0)
    assert attempt["elapsed_ms"] == 3_995.0


@pytest.mark.parametrize(
    ("terminal", "said"),
    [
        (
            {"kind": "message_end", "finish_reason": "cancelled", "latency": {"total_us": 18_894_153},
             "tokens_generated": 1584, "tokens_delivered": 1581, "cancel": {"stage": "decode"}},
            "Cancelled after 18,894 ms, in decode; about 1,584 tokens were generated, 1,581 of them delivered.",
        ),
        ({"kind": "message_end", "finish_reason": "cancelled"}, "Cancelled."),
        ({"kind": "message_end", "finish_reason": "stop"}, "It had ended before it could be cancelled: stop."),
        ({"kind": "error", "finish_reason": "error", "code": "kv_oom"}, "It had ended before it could be cancelled: kv_oom."),
        (None, "Ended."),
    ],
)  # fmt: skip
def test_a_cancel_is_answered_in_words(terminal, said):
    """What became of it is a sentence, never the answer's body; an end that came before it is no cancel."""
    assert ended_in_words({"terminal": terminal}) == said


def test_evidence_is_said_with_its_units():
    """Each field by its name, times in milliseconds, what was not measured left out, what is nested in one line."""
    evidence = {
        "waited_us": 3_000_000, "segments_us": {"queue": 500_000}, "waited_ms": 250, "socket_released": False,
        "by_error": {"overloaded": 2}, "ended_by": ["cut", "end"], "unclosed_us": None, "output_tokens": 1277,
        "changed": [], "us": 1,
    }  # fmt: skip
    assert evidence_lines(evidence) == [
        ("waited", "3,000 ms"), ("segments", "queue 500 ms"), ("waited", "250 ms"), ("socket released", "no"),
        ("by error", "overloaded 2"), ("ended by", "cut, end"), ("output tokens", "1,277"), ("changed", "none"),
        ("us", "1"),
    ]  # fmt: skip
