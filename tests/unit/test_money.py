"""Exact decimals, plain notation, months of tenants."""

from decimal import Decimal, Inexact

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.money import cents, fits, month_of, plain, scaled_price, times, total

amounts = st.decimals(min_value=0, max_value=10**12, places=18)


@given(amounts)
def test_plain_is_the_same_number_without_exponent(amount):
    """Plain notation reads back as the same value and never shows an exponent or a trailing zero."""
    text = plain(amount)
    assert Decimal(text) == amount
    assert "E" not in text.upper()
    assert "." not in text or not text.endswith("0")


@given(st.lists(amounts, max_size=20))
def test_a_sum_does_not_depend_on_the_order(values):
    """Sums of 18-decimal amounts are exact, whichever way they are added."""
    assert total(values) == total(reversed(values))


def test_an_inexact_product_raises():
    """A result that cannot be held exactly is an error, never a rounded amount."""
    with pytest.raises(Inexact):
        times(3, Decimal("1." + "3" * 80))


def test_only_the_invoice_line_rounds():
    """Half to even by default; a cent that is exact stays in either mode."""
    halves = [Decimal(text) for text in ("0.005", "0.015", "0.025", "19.99")]
    assert [cents(amount) for amount in halves] == [0, 2, 2, 1999]
    assert [cents(amount, "half_up") for amount in halves] == [1, 2, 3, 1999]


def test_a_computed_price_has_eighteen_decimals():
    """A mark-up makes a price that the column holds."""
    price = scaled_price(Decimal("0.00000006543210987"), Decimal("1.15"))
    assert plain(price) == "0.00000007524692635"
    assert fits(price)
    assert not fits(Decimal("1e-19"))
    assert not fits(Decimal("NaN"))


def test_the_month_is_the_tenants_own():
    """The same instant lies in March in UTC and in April where the day began earlier."""
    april_us = 1_775_001_600_000_000
    half_past_eleven_us = april_us - 1_800_000_000
    assert month_of(april_us - 1, "UTC") == "2026-03"
    assert month_of(april_us, "UTC") == "2026-04"
    assert month_of(half_past_eleven_us, "UTC") == "2026-03"
    assert month_of(half_past_eleven_us, "Asia/Kolkata") == "2026-04"
