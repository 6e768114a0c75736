"""Money is Decimal from end to end: plain notation, exact sums, one rounding; and the month that a bill belongs to.

Amounts are Decimal(38, 18), as their ClickHouse column: ``EXACT`` refuses to round them silently. Rounded is once, at
the invoice line, half to even. A month is the tenant's own: by instant and the tenant's zone, never by the host's.

Before: ``usage``. After: ``prices``.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import (
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    Clamped,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    localcontext,
)
from typing import Literal
from zoneinfo import ZoneInfo

FRACTION_DIGITS = 18
EXACT = Context(
    prec=80,  # 20 integer digits × 18 decimals, times a count of 16 digits, summed over any number of lines
    traps=[Inexact, InvalidOperation, DivisionByZero, Overflow, Clamped],
)
_WIDE = Context(prec=80)
_STEP = Decimal(1).scaleb(-FRACTION_DIGITS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Rounding = Literal["half_even", "half_up"]
_MODES = {"half_even": ROUND_HALF_EVEN, "half_up": ROUND_HALF_UP}
INVOICE_ROUNDING: Rounding = "half_even"


def plain(amount: Decimal) -> str:
    """A decimal without exponent and without trailing zeros: ``0.000000075``, ``10``, ``0``."""
    return format(amount.normalize(EXACT), "f") if amount else "0"


def total(amounts: Iterable[Decimal]) -> Decimal:
    """The exact sum."""
    with localcontext(EXACT):
        return sum(amounts, Decimal(0))


def times(quantity: int | Decimal, unit_price: Decimal) -> Decimal:
    """The exact amount of so many units."""
    with localcontext(EXACT):
        return quantity * unit_price


def fits(amount: Decimal) -> bool:
    """Whether a Decimal(38, 18) holds this value exactly."""
    if not amount.is_finite():
        return False
    with localcontext(EXACT):
        exponent = amount.normalize().as_tuple().exponent
        return isinstance(exponent, int) and exponent >= -FRACTION_DIGITS and abs(amount) < Decimal(10) ** 20


def scaled_price(price: Decimal, factor: Decimal) -> Decimal:
    """A price per unit with a mark-up or discount, at 18 decimals: this makes a price list, it rounds no amount."""
    return _WIDE.multiply(price, factor).quantize(_STEP, rounding=ROUND_HALF_EVEN, context=_WIDE)


def cents(amount: Decimal, rounding: Rounding = INVOICE_ROUNDING) -> int:
    """The invoice line in whole cents; the only place that rounds an amount."""
    return int(times(100, amount).quantize(Decimal(1), rounding=_MODES[rounding], context=_WIDE))


def month_of(instant_us: int, zone: str) -> str:
    """The month (``2026-03``) of an instant in Unix microseconds, in a tenant's IANA zone."""
    moment = _EPOCH + timedelta(microseconds=instant_us)
    return moment.astimezone(ZoneInfo(zone)).strftime("%Y-%m")
