"""Form ``amounts``: money in cents, in sums, and in plain notation."""

from decimal import Decimal
from typing import Any

from schemas.money import INVOICE_ROUNDING, cents, plain, total


def unsupported(vector: dict[str, Any]) -> str | None:
    """Everything of this form is played."""
    return None


def run(vector: dict[str, Any], tmp_path: object) -> None:
    """The documented rounding is applied, sums are exact, notation has no exponent."""
    amounts, expect = [Decimal(amount) for amount in vector["amounts"]], vector["expect"]
    for rounding, wanted in expect.get("cents", {}).items():
        assert [cents(amount, rounding) for amount in amounts] == wanted
    if "cents" in expect:
        assert [cents(amount) for amount in amounts] == expect["cents"][INVOICE_ROUNDING]
    if "sum" in expect:
        assert plain(total(amounts)) == expect["sum"]
    if "plain" in expect:
        assert [plain(amount) for amount in amounts] == expect["plain"]
