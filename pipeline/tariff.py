"""All that money is made of, as the price files say it: the providers' book, customer lists, policies, terms per tenant.

Terms are dated like prices (half-open, UTC) and looked up at the attempt's start. A tenant's own terms come before those
of everybody; without any, the default policy holds at the provider's prices::

    [[terms]]
    tenant = "acme"                # left out: every tenant
    from = 2026-01-01T00:00:00Z
    policy = "default"             # or committed_at_cost, or a [[policy]] of this file
    markup = "1.15"                # or book = "acme-list": the [[price]] entries of that book

    [[policy]]
    name = "prompt_always"
    rules = { ok = "committed", cancelled = "committed", "failed.none" = "input_only" }

Before: ``charging``. After: ``billing_agent``.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec

from pipeline.billing import lines_of
from pipeline.charging import DEFAULT_POLICY, POLICIES, ChargePolicy, Markup
from schemas.events import Outcome, Struct, UsageSource
from schemas.prices import (
    PROVIDER_BOOK,
    PriceBook,
    PriceEntry,
    PriceError,
    entries_of,
    instant_us,
    read_price_file,
)
from schemas.records import AttemptRecord, LedgerLine

_TERMS_KEYS = {"tenant", "from", "to", "policy", "markup", "book"}
_RULE_KEYS = {o.value for o in Outcome} | {f"{o.value}.{s.value}" for o in Outcome for s in UsageSource}


class Terms(Struct, frozen=True, kw_only=True):
    """What one tenant (None: everybody) is charged in a half-open time; ``book`` None: mark-up on the provider's prices."""

    policy: ChargePolicy = DEFAULT_POLICY
    markup: Markup = Markup()
    book: str | None = None
    tenant: str | None = None
    from_us: int = 0
    to_us: int | None = None

    def holds_for(self, tenant: str, at_us: int) -> bool:
        """Whether these terms are about this tenant at this instant."""
        in_time = self.from_us <= at_us and (self.to_us is None or at_us < self.to_us)
        return in_time and self.tenant in (None, tenant)


_EVERYBODY = Terms()


class Tariff:
    """The books and terms of a process. Immutable once built."""

    def __init__(
        self,
        provider: PriceBook,
        terms: Iterable[Terms] = (),
        customer_books: Mapping[str, PriceBook] | None = None,
    ) -> None:
        self.provider = provider
        self.terms = tuple(terms)
        self.customer_books = dict(customer_books or {})
        for said in self.terms:
            if said.book is not None and said.book not in self.customer_books:
                raise PriceError(
                    f"terms of {said.tenant or 'everybody'}: there is no price in book {said.book!r}"
                )

    def terms_for(self, tenant: str, at_us: int) -> Terms:
        """The tenant's own terms before everybody's, those that began last before earlier ones."""
        holding = [terms for terms in self.terms if terms.holds_for(tenant, at_us)]
        return max(holding, key=lambda terms: (terms.tenant is not None, terms.from_us), default=_EVERYBODY)

    def bill(self, record: AttemptRecord) -> list[LedgerLine]:
        """The ledger lines of an attempt under its tenant's terms."""
        terms = self.terms_for(record.tenant, record.end.started_us)
        customer = terms.markup if terms.book is None else self.customer_books[terms.book]
        return lines_of(record, self.provider, customer, terms.policy)


def load_tariff(paths: Iterable[Path]) -> Tariff:
    """The tariff of these price files together. Raises PriceError with the file and entry at fault."""
    policies, terms = dict(POLICIES), list[Terms]()
    books: dict[str, list[PriceEntry]] = {PROVIDER_BOOK: []}
    contents = [(path, read_price_file(path)) for path in paths]
    for path, content in contents:
        for name in {said.get("book", PROVIDER_BOOK) for said in content.get("price", [])}:
            books.setdefault(name, []).extend(entries_of(path, content, book=name))
        for said in content.get("policy", []):
            policy = _policy(path, said)
            policies[policy.name] = policy
    for path, content in contents:
        terms += [_terms(path, said, policies) for said in content.get("terms", [])]
    provider = PriceBook(books.pop(PROVIDER_BOOK))
    return Tariff(provider, terms, {name: PriceBook(entries) for name, entries in books.items()})


def _policy(path: Path, said: dict[str, Any]) -> ChargePolicy:
    try:
        policy = msgspec.convert(said, ChargePolicy)
    except msgspec.ValidationError as error:
        raise PriceError(f"{path}: policy {said.get('name')!r}: {error}") from error
    if unknown := policy.rules.keys() - _RULE_KEYS:
        raise PriceError(f"{path}: policy {policy.name!r}: no such outcome: {', '.join(sorted(unknown))}")
    return policy


def _terms(path: Path, said: dict[str, Any], policies: Mapping[str, ChargePolicy]) -> Terms:
    where = f"{path}: terms of {said.get('tenant', 'everybody')}"
    if unknown := said.keys() - _TERMS_KEYS:
        raise PriceError(f"{where}: unknown: {', '.join(sorted(unknown))}")
    if "markup" in said and "book" in said:
        raise PriceError(f"{where}: a mark-up or a book, not both")
    policy = policies.get(said.get("policy", DEFAULT_POLICY.name))
    if policy is None:
        raise PriceError(f"{where}: there is no policy {said['policy']!r}")
    try:
        factor = Decimal(str(said.get("markup", 1)))
        if not factor.is_finite() or factor < 0:
            raise PriceError(f"{where}: a mark-up is a factor from 0 on, not {factor}")
        return Terms(
            tenant=said.get("tenant"),
            from_us=instant_us(said["from"]) if "from" in said else 0,
            to_us=instant_us(said["to"]) if "to" in said else None,
            policy=policy,
            markup=Markup(factor=factor),
            book=said.get("book"),
        )
    except (InvalidOperation, ValueError, TypeError) as error:
        raise PriceError(f"{where}: {error!r}") from error
