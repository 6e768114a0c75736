"""What a bill comes to: sums, classes of lines, adjustments by month, what is quarantined; and the cover sheet. Pure.

Every line is in exactly one class, money is summed exactly and by currency. What was set aside or could not be measured is
named, up to a limit; beyond it the count says how much there is. Before: ``statement``. After: ``bill``.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

from schemas.money import EXACT, cents, plain
from sinks.exports.statement import Item, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAMED_MAX = 1000
"""Quarantined lines that a manifest names, one by one; a bill with more of them has another fault than those lines."""
_CLASSES = ("measured", "estimated", "unmeasured", "unpriced", "quarantined")


class Money:
    """Exact sums by a key and a currency."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Decimal] = {}
        self._lines: dict[str, int] = {}

    def add(self, key: str, currency: str, amount: Decimal | None) -> None:
        """Take a line; an unknown amount counts as a line, and adds no money."""
        self._lines[key] = self._lines.get(key, 0) + 1
        with localcontext(EXACT):
            sums = self._sums.get((key, currency), Decimal(0))
            self._sums[key, currency] = sums + (amount or Decimal(0))

    def lines(self, key: str) -> int:
        """How many lines."""
        return self._lines.get(key, 0)

    def sums(self, key: str) -> dict[str, Decimal]:
        """The sum in each currency that occurred."""
        return {currency: amount for (of, currency), amount in sorted(self._sums.items()) if of == key}

    def words(self, key: str) -> str:
        """The sums as text."""
        return ", ".join(f"{plain(amount)} {currency}" for currency, amount in self.sums(key).items()) or "-"

    def __iter__(self) -> Iterator[str]:
        """The keys, in order."""
        return iter(sorted(self._lines))


class Tally:
    """Counts the items of a bill as they pass."""

    def __init__(self) -> None:
        self.classes = Money()
        self.adjustments = Money()
        self.left = Money()
        self.quarantined: list[dict[str, Any]] = []
        self.quarantined_lines = 0
        self._total = Money()

    @property
    def rows(self) -> int:
        """Lines on the bill."""
        return self._total.lines("")

    @property
    def sums(self) -> dict[str, Decimal]:
        """The bill's sum by currency."""
        return self._total.sums("")

    def seen(self) -> dict[str, Decimal]:
        """The sum of everything that passed, what is left for another bill included."""
        everything = Money()
        for part, keys in ((self._total, [""]), (self.left, list(self.left))):
            for key in keys:
                for currency, amount in part.sums(key).items():
                    everything.add("", currency, amount)
        return everything.sums("")

    def add(self, item: Item) -> None:
        """Take an item."""
        currency, amount = item.fields["currency"], item.fields["amount"]
        if item.kind is Kind.LEFT:
            self.left.add(item.period, currency, amount)
        elif item.kind is Kind.QUARANTINED:
            self._name(item, "conflict")
        else:
            self._total.add("", currency, amount)
            self.classes.add(_class_of(item.fields), currency, amount)
            if item.kind is Kind.ADJUSTMENT:
                self.adjustments.add(item.period, currency, amount)
            if item.fields["status"] == "quarantined":
                self._name(item, "usage")

    def cover(self, head: Mapping[str, str]) -> str:
        """The cover sheet."""
        said = [f"{name}: {value}" for name, value in head.items()]
        said += ["", f"lines: {self.rows}"]
        for currency, amount in self.sums.items():
            invoice = f"{cents(amount) / Decimal(100):.2f}"
            said.append(f"total: {plain(amount)} {currency} (invoice: {invoice} {currency})")
        said += ["", "class          lines        %  amount"]
        for kind in _CLASSES:
            lines = self.classes.lines(kind)
            share = Decimal(100 * lines) / self.rows if self.rows else Decimal(0)
            said.append(f"{kind:<12}{lines:>8}{share:>8.1f}%  {self.classes.words(kind)}")
        if list(self.adjustments):
            said += ["", "adjustments    lines  amount (in the total above)"]
        for period in self.adjustments:
            said.append(f"{period:<12}{self.adjustments.lines(period):>8}  {self.adjustments.words(period)}")
        said += ["", *self._quarantine()]
        said.append("unmeasured and unpriced lines have no amount: they are not zero, they are not known yet")
        return "\n".join(said) + "\n"

    def _quarantine(self) -> list[str]:
        said = [f"quarantined, in no sum: {self.quarantined_lines}"]
        for one in self.quarantined:
            stands = "" if one["stands"] is None else f"; billed: {_words(one['stands'])}"
            said.append(f"  {one['key']} {one['bucket']} ({one['why']}): {_words(one['set_aside'])}{stands}")
        if more := self.quarantined_lines - len(self.quarantined):
            said.append(f"  and {more} more, of which the view ledger_set_aside has all")
        return said

    def _name(self, item: Item, why: str) -> None:
        self.quarantined_lines += 1
        if len(self.quarantined) == NAMED_MAX:
            return
        said = item.fields
        stands = None
        if item.kind is Kind.QUARANTINED:
            stands = {
                "quantity": said["stands_quantity"],
                "amount": _plain(said["stands_amount"]),
            }
        self.quarantined.append(
            {
                "key": f"{said['generation_id']}/{said['attempt']}",
                "bucket": said["bucket"],
                "period": item.period,
                "why": why,
                "set_aside": {"quantity": said["quantity"], "amount": _plain(said["amount"])},
                "stands": stands,
                "flags": list(said["flags"]),
                "content_hash": said["content_hash"],
            }
        )


def _class_of(line: Mapping[str, Any]) -> str:
    if line["status"] == "quarantined" or line["conflicts"]:
        return "quarantined"
    if line["amount"] is None:
        return "unpriced" if line["status"] == "unpriced" or "unpriced" in line["flags"] else "unmeasured"
    return "estimated" if line["usage_source"] == "estimated" or "estimated" in line["flags"] else "measured"


def _plain(amount: Decimal | None) -> str | None:
    return None if amount is None else plain(amount)


def _words(said: Mapping[str, Any]) -> str:
    """A quantity and its amount; what is not known is said so."""
    quantity, amount = (("unknown" if said[name] is None else said[name]) for name in ("quantity", "amount"))
    return f"{quantity} for {amount}"
