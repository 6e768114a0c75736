"""From counts and a price entry to amounts: one charge per bucket, exact.

Tiers go by the size of the prompt (input, cache_read, cache_write). ``whole``: the tier's prices hold for all tokens of
the attempt. ``marginal``: for the prompt's tokens beyond the bound; a prompt is read from its cached front to its new
end, so the tokens beyond are the last ones. Where a bucket then has two prices, its unit price is None and its amount
still exact. A bucket without a price of its own falls back to a coarser one, flagged. Pure.

Before: ``schemas.prices``. After: ``billing``.
"""

from decimal import Decimal
from typing import NamedTuple

from schemas.events import Usage
from schemas.money import times, total
from schemas.prices import PriceEntry, Rates, Tier

CACHE_PRICE_MISSING = "cache_price_missing"
AUDIO_PRICE_MISSING = "audio_price_missing"
UNPRICED = "unpriced"

PROMPT_BUCKETS = ("cache_read", "cache_write_1h", "cache_write", "input", "input_audio")  # in prompt order
_ORDER = (*PROMPT_BUCKETS, "output", "output_audio")
_FALLBACKS: dict[str, tuple[str, ...]] = {
    "input": ("input",),
    "output": ("output",),
    "cache_read": ("cache_read", "input"),
    "cache_write": ("cache_write", "input"),
    "cache_write_1h": ("cache_write_1h", "cache_write", "input"),
    "input_audio": ("input_audio", "input"),
    "output_audio": ("output_audio", "output"),
}


class Charge(NamedTuple):
    """One bucket's quantity (None: unmeasured) and money.

    ``amount`` None: unmeasured or without a price. ``unit_price`` None: no price, or several.
    """

    bucket: str
    quantity: int | None
    unit_price: Decimal | None = None
    amount: Decimal | None = None
    flags: tuple[str, ...] = ()


class _Segment(NamedTuple):
    """The prompt from this position on costs these rates."""

    start: int
    rates: Rates


def quantities(usage: Usage) -> dict[str, int]:
    """The measured counts in disjoint buckets that add up to the usage; unmeasured ones are left out."""
    found: dict[str, int] = {}
    if usage.cache_read is not None:
        found["cache_read"] = usage.cache_read
    for name, part, whole_count, part_count in (
        ("cache_write", "cache_write_1h", usage.cache_write, usage.cache_write_1h),
        ("input", "input_audio", usage.input, usage.input_audio),
        ("output", "output_audio", usage.output, usage.output_audio),
    ):
        if whole_count is None:
            continue
        split_off = min(part_count or 0, whole_count)  # of audio in the prompt, some may be in cache_read
        if split_off:
            found[part] = split_off
        found[name] = whole_count - split_off
    return dict(sorted(found.items(), key=lambda item: _ORDER.index(item[0])))


def charges_of(entry: PriceEntry | None, usage: Usage) -> list[Charge]:
    """Every bucket of a usage at an entry's prices; without an entry the quantities stand without money."""
    counts = quantities(usage)
    tools = usage.server_tool_requests or 0
    if entry is None:
        if tools:
            counts["tool_call"] = tools
        return [Charge(bucket, n, None, None, (UNPRICED,)) for bucket, n in counts.items()]
    segments = _segments(entry, sum(counts.get(bucket, 0) for bucket in PROMPT_BUCKETS))
    charges, position = [], 0
    for bucket, count in counts.items():
        if bucket in PROMPT_BUCKETS:
            charges.append(_prompt_charge(entry, segments, bucket, position, count))
            position += count
        else:
            unit_price, flags = _rate(entry, segments[0].rates, bucket, count)
            charges.append(Charge(bucket, count, unit_price, times(count, unit_price), flags))
    if entry.per_request is not None:
        charges.append(Charge("request", 1, entry.per_request, entry.per_request))
    if tools:
        fee = entry.per_tool_call
        amount = None if fee is None else times(tools, fee)
        charges.append(Charge("tool_call", tools, fee, amount, (UNPRICED,) if fee is None else ()))
    return charges


def _segments(entry: PriceEntry, prompt: int) -> list[_Segment]:
    """Which rates hold from which position of the prompt on; the first also hold for what is no prompt."""
    reached = [tier for tier in entry.tiers if prompt > tier.above]
    whole: Tier | None = max((t for t in reached if t.mode == "whole"), key=lambda t: t.above, default=None)
    segments = [_Segment(0, entry.rates if whole is None else whole.rates)]
    floor = -1 if whole is None else whole.above
    segments += [_Segment(t.above, t.rates) for t in reached if t.mode == "marginal" and t.above > floor]
    return segments


def _prompt_charge(
    entry: PriceEntry, segments: list[_Segment], bucket: str, position: int, count: int
) -> Charge:
    """The charge of the prompt's tokens from ``position`` on, over all the segments that they lie in."""
    ends = [segment.start for segment in segments[1:]] + [position + count]
    prices: list[Decimal] = []
    amounts: list[Decimal] = []
    flags: tuple[str, ...] = ()
    for segment, end in zip(segments, ends, strict=True):
        tokens = min(end, position + count) - max(segment.start, position)
        if tokens > 0 or (count == 0 and segment is segments[0]):
            price, flags = _rate(entry, segment.rates, bucket, count)
            prices.append(price)
            amounts.append(times(tokens if count else 0, price))
    unit_price = prices[0] if len(set(prices)) == 1 else None
    return Charge(bucket, count, unit_price, total(amounts), flags)


def _rate(entry: PriceEntry, rates: Rates, bucket: str, count: int) -> tuple[Decimal, tuple[str, ...]]:
    """The bucket's price in these rates, or the next coarser one; a tier that names neither leaves the entry's own."""
    for source in (rates, entry.rates):
        for name in _FALLBACKS[bucket]:
            price: Decimal | None = getattr(source, name)
            if price is not None:
                return price, _fallback_flags(bucket) if name != bucket and count else ()
    raise AssertionError(f"an entry without a price for {bucket} was let into the book")


def _fallback_flags(bucket: str) -> tuple[str, ...]:
    return (CACHE_PRICE_MISSING,) if bucket.startswith("cache") else (AUDIO_PRICE_MISSING,)
