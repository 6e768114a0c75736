"""What stands on a bill, as a pure function of where ledger and bills differ."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.money import total
from sinks.exports.statement import Kind, Terms, statement
from sinks.exports.tally import NAMED_MAX, Tally

APRIL = Terms("2026-04", "Europe/Budapest", frozenset({"2026-03"}))


def entry(**said):
    usual = {
        "generation_id": "g1",
        "attempt": 0,
        "bucket": "output",
        "content_hash": "h",
        "owed": 1,
        "aside": False,
        "started": datetime(2026, 4, 2, tzinfo=UTC),
        "quantity": 5,
        "amount": Decimal("0.5"),
        "currency": "USD",
        "status": "completed",
        "usage_source": "reported",
        "flags": ["b"],
        "conflicts": 0,
        "stands_quantity": None,
        "stands_amount": None,
    }
    return usual | said


entries = st.lists(
    st.builds(
        lambda month, owed, aside, amount: entry(
            started=datetime(2026, month, 15, tzinfo=UTC), owed=owed, aside=aside, amount=amount
        ),
        st.integers(1, 4),
        st.sampled_from([-1, 1]),
        st.booleans(),
        st.none() | st.decimals("0", "1000", places=18),
    )
)


@given(
    of=entries,
    closed=st.frozensets(st.sampled_from(["2026-01", "2026-02", "2026-03"])),
    earlier=st.booleans(),
)
def test_nothing_is_lost_and_nothing_is_invented(of, closed, earlier):
    """What is billed and what is left come to the ledger minus what was billed; nothing that is set aside has a sum."""
    items = list(statement(of, Terms("2026-04", "UTC", closed, earlier)))
    amounts = [item.fields["amount"] for item in items if item.kind is not Kind.QUARANTINED]
    owed = [one["owed"] * one["amount"] for one in of if not one["aside"] and one["amount"] is not None]
    assert total(amount for amount in amounts if amount is not None) == total(owed)
    assert len(amounts) == sum(not one["aside"] for one in of)
    for item in items:
        assert (item.period == "2026-04" or item.sign < 0) or item.kind is not Kind.LINE
        assert not (
            item.kind is Kind.ADJUSTMENT and item.sign > 0 and item.period not in closed and not earlier
        )


@pytest.mark.parametrize(
    ("started", "kind", "period"),
    [
        (datetime(2026, 3, 31, 21, 59, 59, 999_999, tzinfo=UTC), Kind.ADJUSTMENT, "2026-03"),
        (datetime(2026, 3, 31, 22, tzinfo=UTC), Kind.LINE, "2026-04"),
        (datetime(2026, 2, 1, tzinfo=UTC), Kind.LEFT, "2026-02"),
    ],
)
def test_a_month_is_the_tenants_own(started, kind, period):
    """By the instant in the tenant's zone: of this month, of a closed one, or of one that was never closed."""
    (item,) = statement([entry(started=started)], APRIL)
    assert (item.kind, item.period, item.sign) == (kind, period, 1)


def test_an_unknown_amount_is_taken_back_as_unknown():
    """What was billed without an amount is taken back without one; a quantity that was known has its sign turned."""
    (item,) = statement([entry(owed=-1, amount=None)], APRIL)
    assert (item.kind, item.sign, item.fields["amount"], item.fields["quantity"]) == (
        Kind.ADJUSTMENT,
        -1,
        None,
        -5,
    )


def test_a_contradicted_line_is_flagged():
    """A line with conflicts, and what was set aside, have the flag; a line without has its own only."""
    items = statement([entry(conflicts=1), entry(aside=True), entry()], APRIL)
    assert [(item.kind, item.fields["flags"]) for item in items] == [
        (Kind.LINE, ["b", "conflict"]),
        (Kind.QUARANTINED, ["b", "conflict"]),
        (Kind.LINE, ["b"]),
    ]


def test_what_was_named_is_not_named_again():
    """A content that is no longer set aside, and one of a month that is left, are on no bill."""
    gone = entry(aside=True, owed=-1)
    early = entry(aside=True, started=datetime(2026, 2, 1, tzinfo=UTC))
    assert list(statement([gone, early], APRIL)) == []


def test_a_manifest_names_so_many_and_counts_all():
    """Beyond the limit what is quarantined is counted, and the cover sheet says where it is."""
    tally = Tally()
    for item in statement([entry(aside=True)] * (NAMED_MAX + 2), APRIL):
        tally.add(item)
    assert (len(tally.quarantined), tally.quarantined_lines, tally.rows) == (NAMED_MAX, NAMED_MAX + 2, 0)
    assert "and 2 more, of which the view ledger_set_aside has all" in tally.cover({})
