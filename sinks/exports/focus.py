"""The bill in the columns of FOCUS 1.2 (FinOps Open Cost and Usage Specification), for tools that read every vendor's costs.

One row per month of use, provider, model, bucket and price: tokens are the consumed quantity, an adjustment is a row whose
``ChargeClass`` is ``Correction`` and whose charge period is the month that it corrects. The cost of all rows is that of the
bill, exactly. FOCUS knows no unknown cost: ``BilledCost`` is of the lines that have an amount, and ``x_LinesWithoutAmount``
counts the others. Rows are few, so they are held until the end. Pure but for the file that it writes to.

Before: ``render``. After: ``bill``.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from schemas.money import EXACT
from sinks.exports.cells import cell
from sinks.exports.period import bounds
from sinks.exports.statement import Kind

if TYPE_CHECKING:
    from datetime import datetime

    from sinks.exports.statement import Item

_COUNTED = {"request": "Requests", "tool_call": "Calls"}
"""Buckets whose quantity is no number of tokens."""
_NOTHING = "none"
"""The bucket of a line that says why there is nothing."""


class Invoice(NamedTuple):
    """Whose bill it is and of which month; ``side`` decides who issues it: the provider, or who runs this gateway."""

    tenant: str
    side: str
    period: str
    zone: str


class _Group(NamedTuple):
    """What one row is about; its order is that of the rows."""

    period: str
    kind: Kind
    provider: str
    model: str
    bucket: str
    currency: str
    price_hash: str
    unit_price: Decimal | None


@dataclass(slots=True)
class _Sum:
    """What the lines of a row come to."""

    quantity: int = 0
    amount: Decimal = Decimal(0)
    lines: int = 0
    lines_without_amount: int = 0


class FocusWriter:
    """Collects the rows, and writes them at the end, in order."""

    def __init__(self, file: IO[str], invoice: Invoice) -> None:
        self._file = file
        self._invoice = invoice
        self._sums: dict[_Group, _Sum] = {}

    def write(self, item: Item) -> None:
        """Take a line."""
        said = item.fields
        group = _Group(
            period=item.period,
            kind=item.kind,
            provider=said["provider"],
            model=said["model"],
            bucket=said["bucket"],
            currency=said["currency"],
            price_hash=said["price_hash"] or "",
            unit_price=said["unit_price"],
        )
        row = self._sums.setdefault(group, _Sum())
        row.lines += 1
        row.quantity += said["quantity"] or 0
        if said["amount"] is None:
            row.lines_without_amount += 1
        else:
            with localcontext(EXACT):
                row.amount += said["amount"]

    def end(self) -> None:
        """Write all rows."""
        rows = [_row(self._invoice, group, self._sums[group]) for group in sorted(self._sums, key=_order)]
        columns = _row(self._invoice, _EMPTY, _Sum())
        written = csv.writer(self._file, lineterminator="\n")
        written.writerow(columns)
        written.writerows([cell(value) for value in row.values()] for row in rows)


_EMPTY = _Group("2000-01", Kind.LINE, "", "", _NOTHING, "", "", None)
"""What gives the columns of a bill without a line."""


def _order(group: _Group) -> tuple[Any, ...]:
    """Rows have one order; a price that is not one comes first."""
    return (*group[:-1], group.unit_price is not None, group.unit_price or Decimal(0))


def _row(invoice: Invoice, group: _Group, of: _Sum) -> dict[str, Any]:
    """One row by column, in the order of the file."""
    is_use = group.bucket != _NOTHING
    unit = _COUNTED.get(group.bucket, "Tokens") if is_use else None
    quantity = of.quantity if is_use else None
    price = group.unit_price if is_use else None
    billed, used = (bounds(month, invoice.zone) for month in (invoice.period, group.period))
    corrects = group.kind is Kind.ADJUSTMENT
    issuer = group.provider if invoice.side == "provider_cost" else "tokentrail"
    costs = dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), of.amount)
    return {
        **costs,
        "BillingAccountId": invoice.tenant,
        "BillingAccountName": invoice.tenant,
        "BillingCurrency": group.currency,
        "BillingPeriodStart": _instant(billed[0]),
        "BillingPeriodEnd": _instant(billed[1]),
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if corrects else None,
        "ChargeDescription": f"{group.model}: {group.bucket}" + (f", of {group.period}" if corrects else ""),
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _instant(used[0]),
        "ChargePeriodEnd": _instant(used[1]),
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "ContractedUnitPrice": price,
        "InvoiceIssuerName": issuer,
        "ListUnitPrice": price,
        "PricingCategory": "Standard" if is_use else None,
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ProviderName": group.provider,
        "PublisherName": group.provider,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": group.model,
        "ServiceSubcategory": "Generative AI",
        "SkuId": f"{group.model}/{group.bucket}",
        "SkuPriceId": group.price_hash or None,
        "x_Lines": of.lines,
        "x_LinesWithoutAmount": of.lines_without_amount,
    }


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
