"""Price entries: their time, their scope, their hash, their file."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from compose.embedded.simulator import PRESETS
from pipeline.costs import charges_of
from schemas.events import Usage
from schemas.money import plain
from schemas.prices import PriceBook, PriceError, entry_of, instant_us, load_prices

JANUARY, MAY = "2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z"


def price(**said):
    return {"model": "m", "from": JANUARY, "input": "2.00", "output": "8.00"} | said


def book(*prices):
    return PriceBook(entry_of(said) for said in prices)


def test_an_entry_holds_from_its_first_instant_to_before_its_last():
    """Half-open: the microsecond before the end is in, the end itself is out."""
    prices = book(price(to=MAY))
    assert prices.find("m", instant_us(JANUARY) - 1) is None
    assert prices.find("m", instant_us(JANUARY)) is not None
    assert prices.find("m", instant_us(MAY) - 1) is not None
    assert prices.find("m", instant_us(MAY)) is None


def test_a_later_entry_supersedes_an_open_one():
    """A new price is a new entry; the old one is not touched and holds for what started before."""
    prices = book(price(), price(**{"from": MAY}, input="1.00"))
    assert prices.find("m", instant_us(MAY) - 1).rates.input == Decimal("0.000002")
    assert prices.find("m", instant_us(MAY)).rates.input == Decimal("0.000001")


def test_an_alias_is_the_same_model_and_a_stranger_none():
    """Dated names are found by alias; a model that is in no entry has no price."""
    prices = book(price(aliases=["m-2026-01-01"]))
    assert prices.find("m-2026-01-01", instant_us(MAY)).model == "m"
    assert prices.find("m-2027", instant_us(MAY)) is None


def test_the_entry_that_says_most_wins():
    """Provider and tier narrow an entry; one for another provider does not hold."""
    prices = book(
        price(),
        price(provider="p1", input="3.00"),
        price(provider="p1", service_tier="flex", input="1.50"),
        price(provider="p2", input="9.00"),
    )
    at_us = instant_us(MAY)
    assert prices.find("m", at_us, provider="p3").rates.input == Decimal("0.000002")
    assert prices.find("m", at_us, provider="p1").rates.input == Decimal("0.000003")
    assert prices.find("m", at_us, provider="p1", service_tier="flex").rates.input == Decimal("0.0000015")


def test_two_entries_that_nothing_tells_apart_are_refused():
    """Which of two equal claims holds is never a matter of their order in a file."""
    with pytest.raises(PriceError, match="begin at the same instant"):
        book(price(), price(model="other", aliases=["m"]))


def test_the_hash_is_of_what_makes_an_amount():
    """Notation, end, aliases and remarks leave the hash; a price, a tier or a scope changes it."""
    known = entry_of(price()).hash
    assert entry_of(price(input="2", to=MAY, aliases=["n"], source="list of May")).hash == known
    for change in (
        {"input": "2.01"},
        {"provider": "p1"},
        {"per_request": "0.01"},
        {"tiers": [{"above": 5, "mode": "whole", "input": "1"}]},
    ):
        assert entry_of(price(**change)).hash != known
    assert book(price()).by_hash(known).model == "m"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (price(inptu="1"), "inptu"),
        (price(input="-1"), "not negative"),
        (price(input="0.0000000000001"), "18 decimals"),
        (price(input="NaN"), "18 decimals"),
        (price(output=None), "must be named"),
        (price(to=JANUARY), "after"),
        (price() | {"input_per_token": "3e-6"}, "contradict"),
        (price(tiers=[{"above": 1, "mode": "whole", "inpt": "1"}]), "inpt"),
        (price(**{"from": "2026-01-01T00:00:00"}), "zone"),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused(said, message):
    """Unknown keys, impossible prices and times are errors with a word about them."""
    with pytest.raises(PriceError, match=message):
        entry_of(said)


def test_a_tier_of_an_unknown_mode_is_refused():
    """Only whole and marginal are modes."""
    with pytest.raises(msgspec.ValidationError):
        entry_of(price(tiers=[{"above": 1, "mode": "half", "input": "1"}]))


def test_a_price_per_token_in_any_notation_is_the_same_price():
    """An exponent is a notation; nothing is truncated."""
    entry = entry_of({"model": "m", "from": JANUARY, "input_per_token": "6.543210987e-08", "output": 0})
    assert plain(entry.rates.input) == "0.00000006543210987"


def test_a_discount_lowers_every_price():
    """A discount of 0.5 halves tokens and fees."""
    entry = entry_of(price(discount="0.5", per_request="0.01"))
    assert (plain(entry.rates.input), plain(entry.per_request)) == ("0.000001", "0.005")


def test_a_file_names_the_entry_at_fault(tmp_path):
    """The message of a bad file has its path, the entry's number and model."""
    path = tmp_path / "p.toml"
    path.write_text('[[price]]\nmodel = "x"\nfrom = 2026-01-01T00:00:00Z\ninput = "cheap"\noutput = 1\n')
    with pytest.raises(PriceError, match=r"p\.toml: price 1 \(x\)"):
        load_prices(path)
    path.write_text("[[prices]]\n")
    with pytest.raises(PriceError, match="unknown: prices"):
        load_prices(path)
    path.write_text("[[price\n")
    with pytest.raises(PriceError, match="TOML"):
        load_prices(path)


def test_toml_numbers_do_not_pass_through_floats(tmp_path):
    """0.1 without quotes is a tenth exactly."""
    path = tmp_path / "p.toml"
    path.write_text('[[price]]\nmodel = "x"\nfrom = 2026-01-01T00:00:00Z\ninput = 0.1\noutput = 0.3\n')
    assert load_prices(path).entries[0].rates.output == Decimal("0.0000003")


def test_the_shipped_file_prices_the_simulator():
    """Every behaviour of the simulator has a price, so that a first demo shows money."""
    shipped = load_prices(Path(__file__).parents[2] / "compose" / "prices.toml")
    assert [name for name in PRESETS if shipped.find(name, instant_us(MAY)) is None] == []


def charges(said, **usage):
    return {c.bucket: c for c in charges_of(entry_of(said), Usage(**usage))}


def test_a_whole_tier_reprices_all_tokens():
    """Above the bound the tier holds for prompt and output; at the bound it does not."""
    said = price(tiers=[{"above": 100, "mode": "whole", "input": "4.00", "output": "16.00"}])
    below, above = charges(said, input=100, output=10), charges(said, input=101, output=10)
    assert [plain(below[b].amount) for b in ("input", "output")] == ["0.0002", "0.00008"]
    assert [plain(above[b].amount) for b in ("input", "output")] == ["0.000404", "0.00016"]


def test_a_marginal_tier_prices_the_last_tokens_of_the_prompt():
    """The cached front of the prompt is below the bound, the end of the new part above it."""
    said = price(cache_read="1.00", tiers=[{"above": 100, "mode": "marginal", "input": "4.00"}])
    found = charges(said, cache_read=80, input=30, output=10)
    assert plain(found["cache_read"].amount) == "0.00008"
    assert plain(found["input"].amount) == plain(Decimal("0.000002") * 20 + Decimal("0.000004") * 10)
    assert found["input"].unit_price is None
    assert plain(found["output"].amount) == "0.00008"


def test_steps_of_marginal_tiers_do_not_overlap():
    """With two bounds each token has exactly one price."""
    tiers = [
        {"above": 10, "mode": "marginal", "input": "4.00"},
        {"above": 20, "mode": "marginal", "input": "6.00"},
    ]
    found = charges(price(tiers=tiers), input=25, output=0)
    assert plain(found["input"].amount) == plain((2 * 10 + 4 * 10 + 6 * 5) * Decimal("1e-6"))


def test_a_missing_cache_price_falls_back_and_is_flagged_only_where_tokens_are():
    """The input price holds instead; a measured zero needs no flag."""
    used, unused = (
        charges(price(), input=1, cache_read=5, output=0),
        charges(price(), input=1, cache_read=0, output=0),
    )
    assert (used["cache_read"].unit_price, used["cache_read"].flags) == (
        Decimal("0.000002"),
        ("cache_price_missing",),
    )
    assert unused["cache_read"].flags == ()


def test_parts_with_a_price_of_their_own_are_buckets_of_their_own():
    """One-hour cache writes and audio leave the bucket that they are part of, and the sum stays."""
    said = price(cache_write="2.50", cache_write_1h="4.00", input_audio="10.00")
    found = charges(said, input=10, input_audio=4, cache_write=100, cache_write_1h=60, output=1)
    assert {b: c.quantity for b, c in found.items()} == {
        "cache_write_1h": 60,
        "cache_write": 40,
        "input": 6,
        "input_audio": 4,
        "output": 1,
    }
    assert plain(found["cache_write_1h"].amount) == "0.00024"
    assert plain(found["input_audio"].amount) == "0.00004"


def test_fees_are_lines_and_an_unknown_fee_is_unpriced():
    """A request fee counts once; tool requests without a price have no amount."""
    found = charges(price(per_request="0.001"), input=1, output=1, server_tool_requests=3)
    assert (found["request"].quantity, plain(found["request"].amount)) == (1, "0.001")
    assert (found["tool_call"].quantity, found["tool_call"].amount) == (3, None)
    assert found["tool_call"].flags == ("unpriced",)
