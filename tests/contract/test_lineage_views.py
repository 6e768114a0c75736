"""The views across generations on the real engine: lineage, tries, storms, nodes, bad cases, service levels."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal

import pytest

from schemas.events import (
    AttemptStart,
    CancelRequested,
    Canonical,
    ErrorEnd,
    Kind,
    MessageEnd,
    Outcome,
    PartType,
    Resources,
    ToolStatus,
    Usage,
)
from schemas.records import AttemptSummary, Diagnosis, LineageEdge, Side, StallRow, Timings
from sinks import derived, rows
from tests.support.records import attempt, delta, event, generation, generation_id, ledger, start
from tests.support.warehouse import empty_database

MINUTE_US = 60_000_000
NOW_US = 1_796_000_040_000_000
"""A whole minute; rows of generations have no time to live."""


_tokens = itertools.count()
_FILLED = ("events", "attempts", "generations", "ledger", "slo_targets")


@pytest.fixture(scope="module")
def database(clickhouse):
    with empty_database(clickhouse) as real:
        yield real


@pytest.fixture
def store(database):
    """Give the shipped tables, empty: made once, since a test of a view needs no more."""
    for table in _FILLED:
        database.command(f"TRUNCATE TABLE {table}")
    return database


def gid(number):
    """Give the id of the n-th generation, a second after the one before."""
    return generation_id(number, NOW_US + number * 1_000_000)


_TABLES = {
    "GenerationRecord": (derived.GENERATIONS, derived.generation_row),
    "AttemptRecord": (derived.ATTEMPTS, derived.attempt_row),
    "LedgerLine": (derived.LEDGER, derived.ledger_row),
}


def put(store, *records):
    """Insert derived records (generations, attempts, ledger lines), a block for each table."""
    for name, (table, row) in _TABLES.items():
        block = [row(one, 0, offset) for offset, one in enumerate(records) if type(one).__name__ == name]
        if block:
            store.insert(table, block, f"{name}:{next(_tokens)}")


def log(store, *events):
    """Insert records of the log at consecutive offsets."""
    block = [rows.event_row(one, 0, offset) for offset, one in enumerate(events)]
    store.insert(rows.EVENTS, block, f"log:{next(_tokens)}")


def child(number, of, **changes):
    """Give a generation that names the one before it."""
    usual = {"previous_generation_id": gid(of) if isinstance(of, int) else of, "request_id": f"req-{number}"}
    return generation(gid(number), **(usual | changes))


def lineage(store):
    """Give generation number → (root number, depth)."""
    numbers = {gid(n): n for n in range(20)}
    return {
        numbers[str(row["generation_id"])]: (numbers[str(row["root"])], row["depth"])
        for row in store.query("SELECT generation_id, root, depth FROM lineage")
    }


def test_root_and_depth(store):
    """A chain and a fork: each generation knows the first of its line, and how far it is from it."""
    put(store, generation(gid(1)), child(2, 1), child(3, 2), child(4, 2), generation(gid(9)))
    assert lineage(store) == {1: (1, 0), 2: (1, 1), 3: (1, 2), 4: (1, 2), 9: (9, 0)}


def test_a_late_parent_changes_them(store):
    """Without its parent a generation is a root; when the parent comes, the whole line moves below it."""
    put(store, child(2, 1), child(3, 2))
    assert lineage(store) == {2: (2, 0), 3: (2, 1)}
    put(store, generation(gid(1)))
    assert lineage(store) == {1: (1, 0), 2: (1, 1), 3: (1, 2)}


@pytest.mark.parametrize(
    "named", ["", "not an id", "01931a2b-3c4d-7e5f-8a6b-0123456789ab", gid(2), gid(2).upper()]
)
def test_whatever_a_client_names(store, named):
    """Nothing, nonsense, an unknown id, its own id, another spelling: every generation has one row and some root."""
    put(store, generation(gid(1)), child(2, named))
    assert lineage(store) == {1: (1, 0), 2: (2, 0)}


def test_a_circle_ends(store):
    """Two that name one another are each their own root: no row is lost, and the question is answered."""
    put(store, child(1, 2), child(2, 1))
    assert lineage(store) == {1: (1, 0), 2: (2, 0)}


def test_a_parent_in_another_spelling_is_the_parent(store):
    """An id in capitals is the same id."""
    put(store, generation(gid(1)), child(2, gid(1).upper()))
    assert lineage(store) == {1: (1, 0), 2: (1, 1)}


def test_another_tenants_generation_is_no_parent(store):
    """Naming somebody else's generation tells nothing of it."""
    other = derived.generation_row(generation(gid(1)), 0, 0)
    tenant = derived.GENERATIONS.columns.index("tenant")
    row = (*other[:tenant], "globex", *other[tenant + 1 :])
    store.insert(derived.GENERATIONS, [row], f"other:{next(_tokens)}")
    put(store, child(2, 1))
    found = {
        str(r["generation_id"]): (r["depth"], r["parent_known"]) for r in store.query("SELECT * FROM lineage")
    }
    assert found == {gid(1): (0, 0), gid(2): (0, 0)}


def test_what_changed_from_the_one_before(store):
    """Prompt, version, model, sampling and context are compared; what either does not say is no change."""
    before = {"prompt_hash": "a", "prompt_version": "1", "sampling": "{}", "output_hash": "x"}
    after = {
        "prompt_hash": "b",
        "prompt_version": "2",
        "sampling": '{"n":1}',
        "output_hash": "y",
        "model": "other",
    }
    shrunk = [LineageEdge(kind="shrink", from_id="a/0", to_id="a/1", changed_inputs=["context"])]
    put(
        store,
        generation(gid(1), **before),
        child(2, 1, **after, lineage=shrunk),
        child(3, 1, **before),
        child(4, 1),
    )
    found = store.query("SELECT depth, kind, changed, answer_changed FROM lineage ORDER BY start")
    assert [row["changed"] for row in found] == [
        [],
        ["prompt", "prompt_version", "model", "sampling", "context"],
        [],
        [],
    ]
    assert [row["kind"] for row in found] == [None, "retry", "retry", "retry"]
    assert [row["answer_changed"] for row in found][1:] == [True, False, None]


def test_edges_of_both_levels(store):
    """Attempts and generations: from, to, kind and what changed."""
    edges = [
        LineageEdge(kind="continue", from_id=gid(1), to_id=gid(2)),
        LineageEdge(kind="fallback", from_id=f"{gid(2)}/0", to_id=f"{gid(2)}/1", changed_inputs=["model"]),
    ]
    put(store, child(2, 1, lineage=edges))
    found = store.query(
        "SELECT level, kind, from_id, to_id, changed_inputs FROM lineage_edges ORDER BY level"
    )
    assert [(row["level"], row["kind"], row["changed_inputs"]) for row in found] == [
        ("attempt", "fallback", ["model"]),
        ("generation", "continue", []),
    ]


def tried(number, of=None, *, seen=0, outcomes=("ok",), reasons=("first",), **changes):
    """Give a generation whose attempts ended like this."""
    attempts = [
        AttemptSummary(
            attempt=n, provider=f"p{n}", outcome=outcome, reason=reason, committed=n == seen, model="gpt-x"
        )
        for n, (outcome, reason) in enumerate(zip(outcomes, reasons, strict=True))
    ]
    usual = {
        "attempts": attempts,
        "committed_attempt": seen,
        "content_events": 3,
        "request_id": f"req-{number}",
    }
    if of is not None:
        usual["previous_generation_id"] = gid(of)
    return generation(gid(number), **(usual | changes))


def test_how_often_it_was_tried_what_it_cost_and_what_was_seen(store):
    """All tries of a request together: calls, hedges, exact cost, and the attempt whose answer came last."""
    price = {"side": Side.PROVIDER_COST, "revision": 1}
    put(
        store,
        tried(
            1,
            outcomes=("failed", "failed"),
            reasons=("first", "retry"),
            seen=None,
            content_events=0,
            terminal="error",
        ),
        tried(2, of=1, outcomes=("cancelled", "ok"), reasons=("first", "hedge_ttft"), seen=1),
        tried(3, of=2, outcomes=("failed",), seen=None, content_events=0, terminal="error"),
        tried(8),
        ledger(gid(1), "output", amount="0.1", **price),
        ledger(gid(2), "output", amount="0.025", **price),
        ledger(gid(2), "input", amount=None, quantity=None, **price),
        ledger(gid(2), "output", amount="7", side=Side.CUSTOMER_CHARGE, revision=1),
    )
    one, other = store.query("SELECT * FROM tries_by_request ORDER BY first_start")
    assert (one["request_id"], one["generations"], one["attempts"], one["hedges"]) == ("req-1", 3, 5, 1)
    assert (one["provider_cost"], one["lines_without_amount"], one["currencies"]) == (
        Decimal("0.125"),
        1,
        ["USD"],
    )
    assert (str(one["seen_generation_id"]), one["seen_attempt"], one["seen_provider"]) == (gid(2), 1, "p1")
    assert (one["failed_generations"], one["depth"], one["generations_with_content"]) == (2, 2, 1)
    assert (other["request_id"], other["attempts"], other["provider_cost"]) == ("req-8", 1, None)


def test_nothing_was_seen(store):
    """A request that never got an answer has no try that gave it: null, not an id of zeros."""
    put(store, tried(1, outcomes=("failed",), seen=None, content_events=0, terminal="error"))
    (found,) = store.query(
        "SELECT seen_generation_id, seen_attempt, seen_provider, seen_model FROM tries_by_request"
    )
    assert set(found.values()) <= {None, ""}
    assert found["seen_generation_id"] is None


def test_the_same_request_id_is_the_same_request(store):
    """A client that sends its request again under the same id tries it again, also without naming the first."""
    put(store, tried(1, request_id="mine"), tried(2, request_id="mine"), tried(3, of=2))
    (found,) = store.query("SELECT request_id, generations FROM tries_by_request")
    assert found == {"request_id": "mine", "generations": 3}


def calls(number, count, *, minute=0, hedged=False, failed=True):
    """Give a generation with so many calls to one provider in a minute."""
    reasons = ["first", *(["hedge_ttft" if hedged else "retry"] * (count - 1))]
    summary = tried(number, outcomes=["failed"] * count, reasons=reasons, seen=None)
    ends = [
        attempt(
            gid(number),
            n,
            provider="down",
            outcome=Outcome.FAILED if failed else Outcome.OK,
            error_code="overloaded" if failed else None,
            started_us=NOW_US + minute * MINUTE_US + n,
        )
        for n in range(count)
    ]
    return [summary, *ends]


def test_storms_per_provider_and_minute(store):
    """Ten repeats that are half of the calls are a storm; hedges are none, and another minute is another one."""
    storm = [record for n in range(5) for record in calls(n, 3)]
    put(store, *storm, *calls(6, 3, minute=1), *calls(7, 12, minute=2, hedged=True))
    found = store.query("SELECT * FROM retry_storms ORDER BY minute")
    assert [(r["provider"], r["attempts"], r["retries"], r["storm"]) for r in found] == [
        ("down", 15, 10, True),
        ("down", 3, 2, False),
    ]
    assert (found[0]["generations"], found[0]["failed"], found[0]["error_codes"]) == (5, 15, ["overloaded"])


@pytest.mark.parametrize("kind", [None, "regenerate", "restart"])
def test_a_users_own_retries_are_in_the_storm(store, kind):
    """The first call of a generation that repeats another one is a repeat, too."""
    put(store, *calls(1, 1))
    for number in range(2, 12):
        summary, *ends = calls(number, 1)
        put(store, tried(number, of=1, outcomes=("failed",), seen=None, lineage_kind=kind), *ends)
        assert summary.generation_id == gid(number)
    (found,) = store.query("SELECT attempts, retries, storm FROM retry_storms")
    assert found == {"attempts": 11, "retries": 10, "storm": True}


def test_diagnoses_across_generations(store):
    """The answer of a retry that is not the first one's, and every generation that called again within a storm."""
    storm = [record for n in range(10, 15) for record in calls(n, 3)]
    put(
        store,
        generation(gid(1), output_hash="x", content_events=3),
        child(2, 1, output_hash="y", content_events=3, model="other"),
        child(3, 1, output_hash="x", content_events=3),
        child(4, 1, output_hash="z", content_events=3, lineage_kind="continue"),
        *storm,
    )
    found = store.query("SELECT * FROM diagnoses_across ORDER BY name, start")
    changed, *stormy = found
    evidence = json.loads(changed["evidence"])
    assert (str(changed["generation_id"]), changed["name"]) == (gid(2), "answer_changed_after_retry")
    assert (evidence["changed"], evidence["previous_generation_id"]) == ("model", gid(1))
    assert [str(row["generation_id"]) for row in stormy] == [gid(n) for n in range(10, 15)]
    assert {row["name"] for row in stormy} == {"retry_storm"}
    assert json.loads(stormy[0]["evidence"])["retries"] == "10"


def said(text, kind=PartType.TEXT, tokens=None):
    """Give one canonical part."""
    return [Canonical(type=kind, text=text, tokens_estimate=tokens)]


def test_the_nodes_of_a_stream(store):
    """In order: start, first token, each delta, the second attempt, the cancel, the end; noise is none of them."""
    one = gid(1)
    log(
        store,
        start(one, elapsed_us=0),
        event(
            one, Kind.ATTEMPT_START, None, after_seq=0, attempt_start=AttemptStart(provider="p", model="m")
        ),
        event(one, Kind.FRAME, 1, raw="role"),
        event(one, Kind.DELTA, 2, canonical=said("")),
        event(
            one,
            Kind.ATTEMPT_START,
            None,
            attempt=1,
            attempt_start=AttemptStart(provider="q", model="n", reason="fallback"),
        ),
        delta(one, 3, "Hel", elapsed_us=100_000),
        event(one, Kind.HEARTBEAT, None, after_seq=3),
        event(one, Kind.DELTA, 4, canonical=said("lo", PartType.REASONING, 2), elapsed_us=350_000),
        event(one, Kind.DELTA, 4, canonical=said("again"), elapsed_us=400_000),
        event(
            one, Kind.CANCEL_REQUESTED, None, after_seq=4, cancel=CancelRequested(reason="policy_violation")
        ),
        event(one, Kind.MESSAGE_END, 5, message_end=MessageEnd(finish_reason="cancelled")),
        event(one, Kind.MESSAGE_END, 5, message_end=MessageEnd(finish_reason="stop")),
        delta(gid(2), 1, "another stream"),
    )
    found = store.query(
        "SELECT * FROM event_nodes WHERE generation_id = {id:UUID} ORDER BY position", {"id": one}
    )
    assert [(row["position"], row["node"], row["seq"]) for row in found] == [
        (0, "stream_start", 0),
        (1, "retry_or_fallback", None),
        (2, "first_token", 3),
        (3, "delta_emit", 4),
        (4, "cancel_or_timeout", None),
        (5, "stream_end", 5),
    ]
    assert [row["reason"] for row in found] == [None, "fallback", None, None, "policy_violation", "cancelled"]
    assert (found[0]["model"], found[1]["provider"], found[1]["model"]) == ("gpt-x", "q", "n")
    assert (found[3]["gap_ms"], found[3]["tokens_estimate"], found[2]["gap_ms"]) == (250.0, 2, None)


def test_a_timeout_is_two_nodes(store):
    """What ended the stream, and that it ended."""
    error = ErrorEnd(code="stall_timeout", message="silent", finish_reason="timeout")
    log(store, start(gid(1)), event(gid(1), Kind.ERROR, 1, error=error))
    found = store.query("SELECT node, reason FROM event_nodes ORDER BY position")
    assert [(row["node"], row["reason"]) for row in found] == [
        ("stream_start", None),
        ("cancel_or_timeout", "stall_timeout"),
        ("stream_end", "stall_timeout"),
    ]


def test_bad_cases_and_what_to_do_next(store):
    """One row each, with every reason; a good answer, a user's cancel and the client's own fault are none."""
    slow = [Diagnosis(name="slow_first_token", evidence="{}")]
    put(
        store,
        generation(gid(1)),
        generation(gid(2), terminal="error", error_code="bad_request"),
        generation(gid(3), finish_reason="cancelled"),
        generation(gid(4), terminal="error", error_code="overloaded", retryable=True, diagnoses=slow),
        generation(
            gid(5),
            postprocess_result="malformed",
            diagnoses=[Diagnosis(name="json_broken_at_end", evidence="{}")],
        ),
        generation(gid(6), finish_reason="content_filter"),
        generation(gid(7), finish_reason="length"),
        generation(gid(8), diagnoses=slow),
    )
    found = store.query("SELECT generation_id, why, follow_up FROM bad_cases ORDER BY start")
    assert [(str(row["generation_id"]), row["why"], row["follow_up"].split(",")[0]) for row in found] == [
        (gid(4), ["error: overloaded", "slow_first_token"], "send it again after the time that was named"),
        (gid(5), ["json_broken_at_end"], "check prompt and schema"),
        (gid(6), ["content_filter"], "safety review"),
        (gid(7), ["length"], "raise the output limit"),
        (gid(8), ["slow_first_token"], "see the segment in its evidence"),
    ]


def timed(number, *, ttft_ms=None, stall_ms=0, **changes):
    """Give a generation with these figures."""
    timings = Timings(ttft_us=None if ttft_ms is None else ttft_ms * 1000, stall_us=stall_ms * 1000)
    return generation(gid(number), **({"timings": timings, "stalls": []} | changes))


def levels(store, **where):
    """Give service level → (eligible, good, target, met)."""
    model = where.get("model", "gpt-x")
    found = store.query("SELECT * FROM slo_compliance WHERE model = {m:String}", {"m": model})
    return {r["slo"]: (r["eligible"], r["good_generations"], r["target"], r["met"]) for r in found}


def test_service_levels(store):
    """At the target is good, above is not; an error counts against the first token, a cancel against nothing."""
    unclosed = StallRow(attempt=0, seq=1, content_index=0, start_us=0, length_us=9, counted=False)
    put(
        store,
        timed(1, ttft_ms=2_000),
        timed(2, ttft_ms=2_001),
        timed(3, terminal="error", error_code="ttft_timeout"),
        timed(4, ttft_ms=9_000, finish_reason="cancelled"),
        timed(5, ttft_ms=9_000, terminal="error", error_code="bad_request"),
        timed(6, ttft_ms=10, stall_ms=1),
        timed(7, ttft_ms=10, stalls=[unclosed], committed_attempt=0),
    )
    found = levels(store)
    assert found["first_token_ms"] == (5, 3, 2_000.0, False)
    assert found["success"] == (5, 4, 0.0, False)
    assert found["stall_ms"] == (5, 3, 0.0, False)
    assert "time_per_token_ms" not in found


def test_an_operators_own_target_stands_over_the_default(store):
    """A row for all models, and one for a model over that; the later row of one key stands."""
    put(store, timed(1, ttft_ms=500), timed(2, ttft_ms=500, model="big"))
    store.command(
        "INSERT INTO slo_targets (slo, model, target, objective) VALUES ('first_token_ms', '', 400, 0.9)"
    )
    assert levels(store)["first_token_ms"] == (1, 0, 400.0, False)
    store.command(
        "INSERT INTO slo_targets (slo, model, target, objective) VALUES ('first_token_ms', 'big', 600, 0.9)"
    )
    assert levels(store, model="big")["first_token_ms"] == (1, 1, 600.0, True)
    assert levels(store)["first_token_ms"] == (1, 0, 400.0, False)
    store.command(
        "INSERT INTO slo_targets (slo, model, target, objective) VALUES ('first_token_ms', '', 500, 0.9)"
    )
    assert levels(store)["first_token_ms"] == (1, 1, 500.0, True)


def test_weights_are_declared(store):
    """Time per token is weighted by request, inter-token latency by token."""
    for number, (generation_ms, tpot_ms, output) in enumerate([(100, 10, 11), (9_900, 99, 101)], 1):
        timings = Timings(generation_us=generation_ms * 1000, tpot_us=tpot_ms * 1000)
        usage = generation(gid(number)).usage
        put(store, generation(gid(number), timings=timings, usage=type(usage)(input=1, output=output)))
    (found,) = store.query("SELECT tpot_p50_ms, itl_ms FROM latency_by_model")
    assert found["itl_ms"] == pytest.approx(10_000 / 110)
    assert found["tpot_p50_ms"] in (10.0, 99.0)


def test_what_a_cancel_wasted(store):
    """Tokens that nobody was given, tokens after the cancel, and what is not known is counted beside."""
    cancel = CancelRequested(reason="user_abort", at_us=1, tokens_generated=6)
    put(
        store,
        generation(gid(1), finish_reason="cancelled", cancel=cancel, tokens_generated=10, tokens_delivered=7),
        generation(
            gid(2),
            finish_reason="cancelled",
            cancel=CancelRequested(),
            tokens_generated=4,
            tokens_delivered=4,
        ),
        ledger(gid(1), "output", amount="0.5", side=Side.PROVIDER_COST),
    )
    (found,) = store.query("SELECT * FROM cancel_waste")
    assert (found["generations"], found["tokens_undelivered"], found["tokens_after_cancel"]) == (2, 3, 4)
    assert (found["generations_unmeasured"], found["provider_cost"]) == (1, Decimal("0.5"))


def test_what_a_cancel_met_and_released(store):
    """One row of each cancelled generation has all that is recorded of it; null is what there was none of."""
    tool = ToolStatus(
        tool_call_id="call_1", status="ok", side_effect_committed=True, compensation_id="undo-1"
    )
    cancel = CancelRequested(
        reason="user_abort", at_us=1_000, last_seq=4, disconnect_reason="connection_lost", tool=tool
    )
    held = Resources(
        admission_slot_us=2_000, upstream_socket_us=1_500, kv_cache_us=1_500, memory_window_us=9_000
    )
    usage = Usage(input=5, output=2)
    put(
        store,
        generation(gid(1), finish_reason="cancelled", cancel=cancel, released=held, usage=usage),
        generation(gid(2), finish_reason="stop", released=held),
    )
    (found,) = store.query("SELECT * FROM cancels")
    assert (found["cancel_at_ms"], found["released_admission_slot_ms"], found["socket_after_ms"]) == (
        1,
        2,
        0.5,
    )
    assert (found["released_kv_cache_ms"], found["released_memory_window_ms"]) == (1.5, 9)
    assert found["released_claim_ms"] is found["released_budget_reservation_ms"] is None
    assert (found["last_event_seq"], found["disconnect_reason"]) == (4, "connection_lost")
    assert (found["tool_call_id"], found["tool_status"]) == ("call_1", "ok")
    assert (found["side_effect_committed"], found["compensation_id"]) == (True, "undo-1")
    assert found["billable_units"] == 7


def test_one_generations_nodes_do_not_read_all_others(store):
    """The id that is asked for reaches the table's key: the question stays small however long the log is."""
    log(store, start(gid(1)))
    plan = store.query(
        f"EXPLAIN indexes = 1 SELECT * FROM event_nodes WHERE tenant = 'acme' AND generation_id = '{gid(1)}'"  # noqa: S608
    )
    text = "\n".join(next(iter(row.values())) for row in plan)
    assert "generation_id in ['" in text or "generation_id" in text.split("PrimaryKey")[1].split("Parts")[0]
