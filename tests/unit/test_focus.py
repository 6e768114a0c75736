"""A bill in the columns of FOCUS: few rows, the same sum, corrections that name their month."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from schemas.money import total
from sinks.exports.focus import FocusWriter, Invoice
from sinks.exports.statement import Item, Kind

APRIL = Invoice("acme", "customer_charge", "2026-04", "Europe/Budapest")


def item(kind=Kind.LINE, period="2026-04", **said):
    usual = {
        "provider": "p1",
        "model": "alpha",
        "bucket": "output",
        "currency": "USD",
        "price_hash": "h1",
        "unit_price": Decimal("0.000008"),
        "quantity": 100,
        "amount": Decimal("0.0008"),
    }
    return Item(kind, period, 1, usual | said)


def rows_of(*items, invoice=APRIL):
    file = io.StringIO()
    writer = FocusWriter(file, invoice)
    for one in items:
        writer.write(one)
    writer.end()
    return list(csv.DictReader(io.StringIO(file.getvalue())))


items = st.lists(
    st.builds(
        item,
        st.sampled_from([Kind.LINE, Kind.ADJUSTMENT]),
        st.sampled_from(["2026-03", "2026-04"]),
        bucket=st.sampled_from(["input", "output", "none", "request"]),
        amount=st.none() | st.decimals("-5", "1000", places=18),
        unit_price=st.none() | st.sampled_from([Decimal("0.000001"), Decimal("0.000002")]),
        price_hash=st.none() | st.just("h1"),
        quantity=st.none() | st.integers(-9, 9),
    )
)


@given(items)
def test_its_cost_is_the_bills(bill):
    """Whatever the lines are: the rows cost what they cost, count them all, and are the same in any order of lines."""
    rows = rows_of(*bill)
    known = [one.fields["amount"] for one in bill if one.fields["amount"] is not None]
    assert total(Decimal(row["BilledCost"]) for row in rows) == total(known)
    assert sum(int(row["x_Lines"]) for row in rows) == len(bill)
    assert sum(int(row["x_LinesWithoutAmount"]) for row in rows) == len(bill) - len(known)
    assert rows_of(*reversed(bill)) == rows


def test_a_row_is_of_one_bucket_at_one_price():
    """Tokens are the consumed quantity; the cost is the quantity times the price; the month is the tenant's own."""
    row, dearer = rows_of(
        item(), item(), item(unit_price=Decimal("0.000009"), amount=Decimal("0.0009"), price_hash="h2")
    )
    assert (row["BilledCost"], row["ListCost"], row["ListUnitPrice"]) == ("0.0016", "0.0016", "0.000008")
    assert (row["ConsumedQuantity"], row["ConsumedUnit"], row["SkuId"]) == ("200", "Tokens", "alpha/output")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == (
        "2026-03-31T22:00:00Z",
        "2026-04-30T22:00:00Z",
    )
    assert (row["ChargeClass"], row["InvoiceIssuerName"], row["x_Lines"]) == ("", "tokentrail", "2")
    assert (dearer["BilledCost"], dearer["SkuPriceId"]) == ("0.0009", "h2")


def test_an_adjustment_is_a_correction_of_its_month():
    """Its charge period is the month that it corrects, its billing period that of the bill; it is no part of another row."""
    taken_back = item(Kind.ADJUSTMENT, "2026-03", quantity=-100, amount=Decimal("-0.0008"))
    correction, use = rows_of(item(), taken_back)
    assert (correction["ChargeClass"], correction["BilledCost"]) == ("Correction", "-0.0008")
    assert correction["ConsumedQuantity"] == "-100"
    assert (correction["ChargePeriodStart"], correction["ChargePeriodEnd"]) == (
        "2026-02-28T23:00:00Z",
        "2026-03-31T22:00:00Z",
    )
    assert correction["BillingPeriodStart"] == use["ChargePeriodStart"] == "2026-03-31T22:00:00Z"


def test_what_is_no_token_is_not_counted_as_one():
    """Requests and calls have units of their own; a line that says why there is nothing has no quantity and no price."""
    request, nothing = rows_of(
        item(bucket="request", quantity=1),
        item(bucket="none", quantity=0, amount=Decimal(0), unit_price=None, price_hash=None),
    )[::-1]
    assert (request["ConsumedUnit"], request["PricingUnit"]) == ("Requests", "Requests")
    assert (nothing["ConsumedQuantity"], nothing["ConsumedUnit"], nothing["ListUnitPrice"]) == ("", "", "")


def test_the_providers_own_side_is_the_providers_invoice():
    """Of provider_cost the provider is the issuer; a bill without a line is the columns alone."""
    (row,) = rows_of(item(), invoice=APRIL._replace(side="provider_cost"))
    assert (row["InvoiceIssuerName"], row["BillingAccountId"]) == ("p1", "acme")
    assert rows_of() == []
