"""Dated prices in exact decimals: who asks what for a token, from when to when.

An entry holds from its first instant to before its last one (UTC). Per attempt one entry holds: of those that match,
the one that says most about provider, region, service tier and speed, then the one that began last. So a price that
changes is a later entry beside the earlier one: an entry once used is never edited, and ``entry_hash`` proves it.

A price file is TOML, in USD (or ``currency``) per million tokens, decimals as strings or numbers::

    [[price]]
    model = "sim-fast"
    from = 2026-01-01T00:00:00Z
    input = "0.10"
    output = "0.40"
    tiers = [{ above = 200000, mode = "whole", input = "0.20", output = "0.60" }]

Before: ``money``. After: ``pipeline/costs`` makes amounts of it.
"""

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

import msgspec

from schemas.errors import TokentrailError
from schemas.events import Struct
from schemas.money import fits, plain, scaled_price, times

PROVIDER_BOOK = "provider"
RATE_NAMES = (
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_1h",
    "input_audio",
    "output_audio",
)
_ENTRY_KEYS = {
    "book",
    "model",
    "aliases",
    "from",
    "to",
    "tiers",
    "currency",
    "discount",
    "source",
    "provider",
    "region",
    "service_tier",
    "speed",
    "per_request",
    "per_tool_call",
    *RATE_NAMES,
    *(f"{name}_per_token" for name in RATE_NAMES),
}
_TIER_KEYS = {"above", "mode", *RATE_NAMES}
_MILLIONTH = Decimal("1e-6")


class PriceError(TokentrailError):
    """A price file that cannot be meant as it stands; the message names the entry."""


class Rates(Struct, frozen=True, kw_only=True):
    """Prices of one token, by bucket; None: not named."""

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    input_audio: Decimal | None = None
    output_audio: Decimal | None = None

    def scaled(self, factor: Decimal) -> "Rates":
        """Every price times the factor, at 18 decimals."""
        return Rates(
            **{n: scaled_price(p, factor) for n in RATE_NAMES if (p := getattr(self, n)) is not None}
        )


class Tier(Struct, frozen=True, kw_only=True):
    """Other prices for a prompt above so many tokens: ``whole`` for all its tokens, ``marginal`` for those beyond."""

    above: int
    mode: Literal["whole", "marginal"]
    rates: Rates


class PriceEntry(Struct, frozen=True, kw_only=True):
    """What one model costs, from ``from_us`` to before ``to_us`` (Unix microseconds; None: until further notice)."""

    model: str
    from_us: int
    rates: Rates
    to_us: int | None = None
    aliases: tuple[str, ...] = ()
    provider: str | None = None
    region: str | None = None
    service_tier: str | None = None
    speed: str | None = None
    tiers: tuple[Tier, ...] = ()
    per_request: Decimal | None = None
    per_tool_call: Decimal | None = None
    currency: str = "USD"
    source: str = ""

    @property
    def hash(self) -> str:
        """SHA-256 over all that an amount is made of; neither a later end nor an alias nor a remark changes it."""
        said = msgspec.to_builtins(self, builtin_types=(Decimal,))
        for name in ("to_us", "aliases", "source"):
            said.pop(name, None)
        return hashlib.sha256(msgspec.json.encode(_canonical(said), order="sorted")).hexdigest()

    def scaled(self, factor: Decimal) -> "PriceEntry":
        """The entry with every price times a factor: a discount, or a customer's mark-up."""
        return msgspec.structs.replace(
            self,
            rates=self.rates.scaled(factor),
            tiers=tuple(msgspec.structs.replace(t, rates=t.rates.scaled(factor)) for t in self.tiers),
            per_request=None if self.per_request is None else scaled_price(self.per_request, factor),
            per_tool_call=None if self.per_tool_call is None else scaled_price(self.per_tool_call, factor),
        )

    def holds_at(self, instant_us: int) -> bool:
        """Whether the instant lies in the entry's half-open time."""
        return self.from_us <= instant_us and (self.to_us is None or instant_us < self.to_us)


class PriceBook:
    """Entries, found by what served an attempt and when it started. Immutable once built.

    Raises PriceError where two entries would hold for the same attempt with nothing to choose by.
    """

    def __init__(self, entries: Iterable[PriceEntry]) -> None:
        self.entries = tuple(entries)
        self._named: dict[str, list[PriceEntry]] = {}
        self._hashed = {entry.hash: entry for entry in self.entries}
        for entry in self.entries:
            for name in dict.fromkeys((entry.model, *entry.aliases)):
                rivals = self._named.setdefault(name, [])
                for rival in rivals:
                    if _scope(rival) == _scope(entry) and rival.from_us == entry.from_us:
                        raise PriceError(
                            f"two prices for {name!r} begin at the same instant: one must go, or say more"
                        )
                rivals.append(entry)

    def find(
        self,
        model: str,
        at_us: int,
        *,
        provider: str | None = None,
        region: str | None = None,
        service_tier: str | None = None,
        speed: str | None = None,
    ) -> PriceEntry | None:
        """The entry that holds for an attempt which this model served and which started at this instant."""
        asked = (provider, region, service_tier, speed)
        matching = [
            entry
            for entry in self._named.get(model, ())
            if entry.holds_at(at_us)
            and all(said is None or said == was for said, was in zip(_scope(entry), asked, strict=True))
        ]
        return max(matching, key=_precedence, default=None)

    def by_hash(self, entry_hash: str) -> PriceEntry | None:
        """The entry that stands behind a ledger line."""
        return self._hashed.get(entry_hash)


def load_prices(path: Path, *, book: str = PROVIDER_BOOK) -> PriceBook:
    """One book of a price file; an unknown key, or a price that 18 decimals cannot hold, is an error."""
    return PriceBook(entries_of(path, read_price_file(path), book=book))


def read_price_file(path: Path) -> dict[str, Any]:
    """The tables of a price file: ``price`` here, ``policy`` and ``terms`` for billing."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PriceError(f"{path} cannot be read as TOML: {error}") from error
    if unknown := content.keys() - {"price", "policy", "terms"}:
        raise PriceError(f"{path}: unknown: {', '.join(sorted(unknown))}")
    return content


def entries_of(path: Path, content: Mapping[str, Any], *, book: str = PROVIDER_BOOK) -> Iterator[PriceEntry]:
    """The entries of one book, in the order of the file."""
    for number, said in enumerate(content.get("price", []), 1):
        if said.get("book", PROVIDER_BOOK) == book:
            try:
                yield entry_of(said)
            except (PriceError, msgspec.ValidationError, InvalidOperation, KeyError) as error:
                raise PriceError(f"{path}: price {number} ({said.get('model')}): {error!r}") from error


def entry_of(said: Mapping[str, Any]) -> PriceEntry:
    """One entry as a file says it, prices per million tokens, instants as datetime or ISO 8601 text."""
    if unknown := said.keys() - _ENTRY_KEYS:
        raise PriceError(f"unknown: {', '.join(sorted(unknown))}")
    tiers = []
    for tier in said.get("tiers", []):
        if unknown := tier.keys() - _TIER_KEYS:
            raise PriceError(f"unknown in a tier: {', '.join(sorted(unknown))}")
        tiers.append(Tier(above=tier["above"], mode=tier["mode"], rates=_rates(tier)))
    entry = PriceEntry(
        model=said["model"],
        from_us=instant_us(said["from"]),
        to_us=None if said.get("to") is None else instant_us(said["to"]),
        rates=_rates(said),
        aliases=tuple(said.get("aliases", ())),
        tiers=tuple(sorted(tiers, key=lambda tier: tier.above)),
        currency=said.get("currency", "USD"),
        source=said.get("source", ""),
        provider=said.get("provider"),
        region=said.get("region"),
        service_tier=said.get("service_tier"),
        speed=said.get("speed"),
        per_request=_price(said, "per_request", Decimal(1)),
        per_tool_call=_price(said, "per_tool_call", Decimal(1)),
    )
    if entry.rates.input is None or entry.rates.output is None:
        raise PriceError("input and output must be named, 0 where nothing is asked")
    if entry.to_us is not None and entry.to_us <= entry.from_us:
        raise PriceError("`to` must lie after `from`")
    msgspec.convert(
        msgspec.to_builtins(entry), PriceEntry
    )  # a wrong type is an error here, not at the first bill
    discount = Decimal(str(said.get("discount", 0)))
    return entry.scaled(1 - discount) if discount else entry


def _rates(said: Mapping[str, Any]) -> Rates:
    """Prices per token: as said per million, or ``<bucket>_per_token``; where both are said they must agree."""
    rates = {}
    for name in RATE_NAMES:
        per_million, per_token = _price(said, name, _MILLIONTH), _price(said, f"{name}_per_token", Decimal(1))
        if None not in (per_million, per_token) and per_million != per_token:
            raise PriceError(f"{name} and {name}_per_token contradict one another")
        rates[name] = per_token if per_million is None else per_million
    return Rates(**rates)


def _price(said: Mapping[str, Any], name: str, unit: Decimal) -> Decimal | None:
    if said.get(name) is None:
        return None
    price = times(Decimal(str(said[name])), unit)
    if not fits(price) or price < 0:
        raise PriceError(
            f"{name} = {said[name]}: a price is not negative and has at most 18 decimals per unit"
        )
    return price


def instant_us(said: Any) -> int:
    """Unix microseconds of a file's instant, which must name its zone."""
    moment = said if isinstance(said, datetime) else datetime.fromisoformat(said)
    if moment.tzinfo is None:
        raise PriceError(f"{said}: an instant needs its zone, Z for UTC")
    moment = moment.astimezone(UTC)
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond


def _scope(entry: PriceEntry) -> tuple[str | None, ...]:
    return entry.provider, entry.region, entry.service_tier, entry.speed


def _precedence(entry: PriceEntry) -> tuple[int, tuple[bool, ...], int]:
    said = tuple(part is not None for part in _scope(entry))
    return sum(said), said, entry.from_us


def _canonical(value: Any) -> Any:
    """The same value with every decimal in plain notation, so that 2.0 and 2.00 are one price."""
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, dict):
        return {key: _canonical(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_canonical(part) for part in value]
    return value
