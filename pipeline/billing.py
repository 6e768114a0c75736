"""From an attempt to its ledger lines: provider's cost and customer's charge, exact, nothing left out.

A pure function of one AttemptRecord, the prices and the policy. Every attempt gets at least one line on either side, so
that a later revision replaces the earlier one as a whole and nothing has to be guessed from a line's absence: where
nothing is owed stands a line ``none`` of amount 0 that says why (``not_billed``: the provider refused it or never had
it; ``not_charged``: the policy). Unmeasured and unpriced have amount None, never 0.

The **current** lines of an attempt are those of its highest revision, all of them together: each names the whole that it
belongs to, so that lines of two records that contradict one another are never mixed.

Before: ``costs`` and ``charging``. After: ``billing_agent`` publishes the lines.
"""

import hashlib
from dataclasses import dataclass
from decimal import Decimal

import msgspec

from pipeline.charging import Charged, ChargePolicy, Markup, policy_hash
from pipeline.costs import UNPRICED, Charge, charges_of
from schemas.events import AttemptEnd, Dispatch, Outcome, Usage, UsageSource
from schemas.money import plain
from schemas.prices import PriceBook, PriceEntry
from schemas.records import AttemptRecord, LedgerLine, Side
from schemas.usage import as_partial, is_unusable

ESTIMATED = "estimated"
UNMEASURED = "usage_unmeasured"
POSSIBLY_BILLED = "possibly_billed"
NOT_BILLED = "not_billed"
NOT_CHARGED = "not_charged"
NOTHING_BUCKET = "none"

_STATUS = {Outcome.OK: "completed", Outcome.CANCELLED: "cancelled"}
_NEVER_BILLED = frozenset({Dispatch.NOT_CONNECTED, Dispatch.REFUSED})


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known of an attempt's consumption.

    ``usage`` None: nothing that could be priced. ``estimated``: the fields of it that are estimates. ``unmeasured``:
    fields that every attempt has and of which nothing is known.
    """

    usage: Usage | None
    source: UsageSource
    flags: frozenset[str] = frozenset()
    estimated: frozenset[str] = frozenset()
    quarantined: bool = False

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Input or output, where an amount for them must be missing rather than 0."""
        if self.usage is None:
            return ()
        return tuple(name for name in ("input", "output") if getattr(self.usage, name) is None)


@dataclass(frozen=True, slots=True)
class _Pricing:
    """The price entry of one side, and what its lines name as their reasons."""

    entry: PriceEntry | None
    price_hash: str | None
    policy_hash: str | None


def lines_of(
    record: AttemptRecord, provider_book: PriceBook, customer: PriceBook | Markup, policy: ChargePolicy
) -> list[LedgerLine]:
    """The ledger lines of one attempt, both sides, in a fixed order.

    Args:
        record: the attempt; its revision becomes the lines'.
        provider_book: what the providers ask.
        customer: what this tenant is asked: a list of its own, or a mark-up on the provider's prices.
        policy: what of the attempt this tenant is charged.
    """
    end, seen = record.end, assess(record.end)
    entry = _entry(provider_book, end)
    if end.dispatch in _NEVER_BILLED:
        cost = [_nothing(record, Side.PROVIDER_COST, seen, NOT_BILLED, None)]
    else:
        cost = _bill(record, Side.PROVIDER_COST, seen, _Pricing(entry, _hash(entry), None))
    return _sealed(cost) + _sealed(_charge(record, seen, entry, customer, policy))


def assess(end: AttemptEnd) -> Assessment:
    """What of an attempt's consumption is measured, what is estimated, and what nobody knows."""
    usage, output_seen = end.usage, _tokens_seen(end)
    if usage is None or usage.source is UsageSource.NONE:
        if not output_seen:
            return Assessment(None, UsageSource.NONE, frozenset({UNMEASURED}))
        usage = Usage(output=output_seen, source=UsageSource.ESTIMATED)
    if usage.source is UsageSource.ESTIMATED:
        flags, fields = {ESTIMATED, UNMEASURED, *usage.flags}, {"input", "output"}
        return Assessment(usage, usage.source, frozenset(flags), frozenset(fields))
    if is_unusable(usage):
        return Assessment(None, usage.source, frozenset(usage.flags), quarantined=True)
    broke_off = end.outcome is not Outcome.OK and end.finish_reason is None
    if broke_off:
        usage = as_partial(usage)
    if not broke_off and usage.output is not None:
        return Assessment(usage, usage.source, frozenset(usage.flags))
    if usage.output is None and not output_seen:
        return Assessment(usage, usage.source, frozenset({UNMEASURED, *usage.flags}))
    usage = msgspec.structs.replace(usage, output=max(usage.output or 0, output_seen))
    return Assessment(usage, usage.source, frozenset({ESTIMATED, *usage.flags}), frozenset({"output"}))


def content_hash(line: LedgerLine) -> str:
    """SHA-256 over all other fields of a line, fields at their default left out (so that a new field changes no hash)."""
    bare = msgspec.structs.replace(line, content_hash="")
    return hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()


def _sealed(lines: list[LedgerLine]) -> list[LedgerLine]:
    """The lines of one side with their hashes: first that of all of them together, then each one's own."""
    together = hashlib.sha256(msgspec.json.encode(lines, order="sorted")).hexdigest()
    named = [msgspec.structs.replace(line, record_hash=together) for line in lines]
    return [msgspec.structs.replace(line, content_hash=content_hash(line)) for line in named]


def _tokens_seen(end: AttemptEnd) -> int:
    """How many output tokens the edge saw at least: its own estimate, else one per content event."""
    return end.content_events if end.tokens_seen_estimate is None else end.tokens_seen_estimate


def _entry(book: PriceBook, end: AttemptEnd) -> PriceEntry | None:
    """The price of the model that served, never of the one that was asked for."""
    return book.find(
        end.served_model or end.model,
        end.started_us,
        provider=end.provider,
        region=end.region,
        service_tier=end.service_tier,
    )


def _hash(entry: PriceEntry | None) -> str | None:
    return None if entry is None else entry.hash


def _charge(
    record: AttemptRecord,
    seen: Assessment,
    entry: PriceEntry | None,
    customer: PriceBook | Markup,
    policy: ChargePolicy,
) -> list[LedgerLine]:
    """The customer's side, as the policy says."""
    end, policy_id = record.end, policy_hash(policy, customer)
    what = policy.charged(end.outcome, seen.source)
    unseen = what is not Charged.ALL and not end.committed
    if what is Charged.NOTHING or unseen or end.dispatch in _NEVER_BILLED:
        return [_nothing(record, Side.CUSTOMER_CHARGE, seen, NOT_CHARGED, policy_id)]
    if what is Charged.ESTIMATED:
        seen = _as_acknowledged(seen, end.tokens_delivered_estimate)
    if isinstance(customer, PriceBook):
        entry = _entry(customer, end)
        pricing = _Pricing(entry, _hash(entry), policy_id)
    else:
        marked_up = None if entry is None else customer.applied_to(entry)
        pricing = _Pricing(marked_up, _hash(entry), policy_id)
    lines = _bill(record, Side.CUSTOMER_CHARGE, seen, pricing)
    if what is Charged.INPUT_ONLY:
        lines = [line for line in lines if line.bucket.startswith(("input", "cache", NOTHING_BUCKET))]
    return lines


def _as_acknowledged(seen: Assessment, delivered: int | None) -> Assessment:
    """The same with the output that the log acknowledged, which is an estimate."""
    if seen.usage is None or delivered is None:
        return seen
    return Assessment(
        msgspec.structs.replace(seen.usage, output=delivered, output_audio=None),
        seen.source,
        seen.flags | {ESTIMATED},
        seen.estimated | {"output"},
    )


def _bill(record: AttemptRecord, side: Side, seen: Assessment, pricing: _Pricing) -> list[LedgerLine]:
    """One line per bucket; a single one of unknown amount where nothing can be priced."""
    if seen.usage is None:
        return [_line(record, side, seen, Charge(NOTHING_BUCKET, None), pricing)]
    charges = charges_of(pricing.entry, seen.usage)
    flags = (UNMEASURED,) if pricing.entry is not None else (UNMEASURED, UNPRICED)
    charges += [Charge(bucket, None, flags=flags) for bucket in seen.unmeasured]
    return [_line(record, side, seen, charge, pricing) for charge in charges]


def _nothing(record: AttemptRecord, side: Side, seen: Assessment, why: str, policy: str | None) -> LedgerLine:
    """A line that says that nothing is owed, and why; doubts about the usage do not matter to it."""
    charge = Charge(NOTHING_BUCKET, 0, amount=Decimal(0), flags=(why,))
    return _line(record, side, Assessment(None, seen.source), charge, _Pricing(None, None, policy))


def _line(
    record: AttemptRecord, side: Side, seen: Assessment, charge: Charge, pricing: _Pricing
) -> LedgerLine:
    """A charge as a ledger line, not sealed yet."""
    end = record.end
    return LedgerLine(
        tenant=record.tenant,
        key_id=record.key_id,
        generation_id=record.generation_id,
        attempt=record.attempt,
        side=side,
        bucket=charge.bucket,
        revision=record.revision,
        started_us=end.started_us,
        request_id=end.request_id,
        provider=end.provider,
        model=end.served_model or end.model,
        quantity=charge.quantity,
        unit_price=None if charge.unit_price is None else plain(charge.unit_price),
        amount=None if charge.amount is None else plain(charge.amount),
        currency="USD" if pricing.entry is None else pricing.entry.currency,
        price_hash=pricing.price_hash,
        policy_hash=pricing.policy_hash,
        usage_source=seen.source.value,
        status=_status(end, seen, charge),
        flags=_flags(end, seen, charge),
    )


def _status(end: AttemptEnd, seen: Assessment, charge: Charge) -> str:
    if seen.quarantined:
        return "quarantined"
    if UNPRICED in charge.flags:
        return "unpriced"
    return _STATUS.get(end.outcome, "incomplete")


def _flags(end: AttemptEnd, seen: Assessment, charge: Charge) -> list[str]:
    """The attempt's flags and the bucket's own; an estimate is flagged where it is one."""
    flags = (set(seen.flags) - {ESTIMATED}) | set(charge.flags)
    if charge.bucket.removesuffix("_audio") in seen.estimated:
        flags.add(ESTIMATED)
    if end.possibly_billed:
        flags.add(POSSIBLY_BILLED)
    return sorted(flags)
