"""What a tenant is charged for: a table of outcome × usage source, and whose prices hold.

The five answers of the table are ``Charged``. Defaults: only the committed attempt; an error before content costs
nothing (nothing was committed); a cancelled stream costs what was generated until the socket closed; a broken one what
the log acknowledged. ``committed_at_cost`` passes the provider's cost of completed attempts through. Pure.

Before: ``costs``. After: ``billing``.
"""

import hashlib
from decimal import Decimal
from enum import StrEnum

import msgspec

from schemas.events import Outcome, Struct, UsageSource
from schemas.money import plain
from schemas.prices import PriceBook, PriceEntry


class Charged(StrEnum):
    """What of an attempt is charged."""

    ALL = "all"  # every bucket, whether or not the client saw this attempt
    COMMITTED = "committed"  # every bucket, of the committed attempt only
    INPUT_ONLY = "input_only"  # the prompt of the committed attempt
    ESTIMATED = "estimated"  # the committed attempt, its output as far as the log acknowledged it
    NOTHING = "nothing"


class ChargePolicy(Struct, frozen=True, kw_only=True):
    """Rules by ``outcome.usage_source`` or by ``outcome`` alone, the closer one first; else nothing is charged."""

    name: str
    rules: dict[str, Charged]

    def charged(self, outcome: Outcome, source: UsageSource) -> Charged:
        """The answer of the table."""
        fallback = self.rules.get(outcome.value, Charged.NOTHING)
        return self.rules.get(f"{outcome.value}.{source.value}", fallback)


class Markup(Struct, frozen=True, kw_only=True):
    """Customer prices that are the provider's times a factor."""

    factor: Decimal = Decimal(1)

    def applied_to(self, entry: PriceEntry) -> PriceEntry:
        """The customer's entry."""
        return entry if self.factor == 1 else entry.scaled(self.factor)


DEFAULT_POLICY = ChargePolicy(
    name="default",
    rules={
        "ok": Charged.COMMITTED,
        "cancelled": Charged.COMMITTED,
        "failed": Charged.ESTIMATED,
        "failed.reported": Charged.COMMITTED,  # the provider's last word came: everything is measured
        "lost": Charged.ESTIMATED,
    },
)
COMMITTED_AT_COST = ChargePolicy(name="committed_at_cost", rules={"ok": Charged.COMMITTED})
POLICIES = {policy.name: policy for policy in (DEFAULT_POLICY, COMMITTED_AT_COST)}


def policy_hash(policy: ChargePolicy, customer: PriceBook | Markup) -> str:
    """SHA-256 over the rules and the mark-up: what stands behind a customer's line beside the price entry."""
    factor = plain(customer.factor) if isinstance(customer, Markup) else None
    said = {"name": policy.name, "rules": policy.rules, "markup": factor}
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()
