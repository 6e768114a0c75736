"""The view ``abort_rates`` on the real engine: the edge's own words for why a stream ended, by day, tenant and model."""

import pytest

from edge.asgi.parting import REASONS, of_terminal
from schemas.events import CancelRequested, ErrorEnd, Kind, LogEvent, MessageEnd
from schemas.outcomes import ERRORS
from sinks import derived
from tests.support.records import generation, generation_id
from tests.support.warehouse import empty_database

DAY_US = 1_796_000_040_000_000
CANCELS = [
    CancelRequested(source=source, reason=reason)
    for source in ("api", "page", "cli", "edge", "forget")
    for reason in ("user_abort", "client_disconnect", "policy_violation")
]


@pytest.fixture
def store(clickhouse):
    with empty_database(clickhouse) as real:
        yield real


def put(store, *ends):
    """Store a generation for each ending."""
    rows = [
        derived.generation_row(generation(generation_id(n, DAY_US), **end), 0, n)
        for n, end in enumerate(ends)
    ]
    store.insert(derived.GENERATIONS, rows, "ends")


def rates(store):
    """Give what the view says of the only day, tenant and model, by reason."""
    found = store.query("SELECT * FROM abort_rates")
    assert len({(row["day"], row["tenant"], row["model"]) for row in found}) == 1
    return {row["reason"]: (row["aborted"], row["generations"], row["permille"]) for row in found}


def ended_by(**said):
    """Give a terminal as the edge has it."""
    kind = Kind.ERROR if "error" in said else Kind.MESSAGE_END
    return LogEvent(kind=kind, seq=1, generation_id="g", tenant="t", key_id="k", dialect="d", edge_id="e",
                    wall_us=1, elapsed_us=1, **said)  # fmt: skip


def test_its_words_are_the_edges(store):
    """Every code and every cancel has here the reason that it has at the edge."""
    wanted, ends = dict.fromkeys(REASONS, 0), []
    for code, row in ERRORS.items():
        reason = of_terminal(ended_by(error=ErrorEnd(code=code, message="")))
        ends.append(
            {"finish_reason": row.finish_reason, "error_code": code, "terminal": "error", "cancel": None}
        )
        if reason is not None:
            wanted[reason] += 1
    for cancel in CANCELS:
        end = MessageEnd(finish_reason="cancelled", output_hash="", cancel=cancel)
        ends.append(
            {"finish_reason": "cancelled", "error_code": None, "cancel": cancel, "last_detach_reason": None}
        )
        wanted[of_terminal(ended_by(message_end=end))] += 1
    put(store, *ends)
    assert {reason: aborted for reason, (aborted, *_) in rates(store).items()} == wanted


def test_it_is_of_a_thousand(store):
    """Of those that were left for good it says how their last reader was lost; whoever came back is none."""
    gone = CancelRequested(source="edge", reason="client_disconnect")
    lost = {"finish_reason": "cancelled", "error_code": None, "cancel": gone}
    whole = {"finish_reason": "stop", "error_code": None, "cancel": None}
    put(
        store,
        lost | {"last_detach_reason": "network_reset"},
        lost | {"last_detach_reason": "timeout"},
        lost | {"last_detach_reason": "client_abort"},
        lost | {"last_detach_reason": "connection_lost"},  # of an edge before this version
        whole | {"last_detach_reason": "network_reset"},
        *[whole] * 3,
    )
    assert rates(store) == {
        "client_abort": (2, 8, 250),
        "network_reset": (1, 8, 125),
        "server_cancel": (0, 8, 0),
        "timeout": (1, 8, 125),
    }
