"""Attempts to ledger lines: both sides, every outcome, nothing lost and nothing invented."""

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.billing import content_hash, lines_of
from pipeline.charging import COMMITTED_AT_COST, DEFAULT_POLICY, Charged, ChargePolicy, Markup, policy_hash
from pipeline.tariff import load_tariff
from schemas.events import AttemptEnd, Dispatch, Outcome, Usage, UsageSource
from schemas.prices import PriceBook, PriceError, entry_of
from schemas.records import AttemptRecord, Side
from schemas.usage import estimated

STARTED_US = 1_777_622_400_000_000  # 2026-05-01T08:00:00Z
BOOK = PriceBook(
    [
        entry_of(
            {
                "model": "alpha",
                "from": "2026-01-01T00:00:00Z",
                "input": "2.00",
                "output": "8.00",
                "cache_read": "0.50",
            }
        )
    ]
)
REPORTED = Usage(input=200, cache_read=800, output=50, source=UsageSource.REPORTED)


def attempt(revision=1, tenant="acme", **end):
    said = {
        "provider": "p1",
        "model": "alpha",
        "request_id": "r1",
        "started_us": STARTED_US,
        "outcome": Outcome.OK,
        "committed": True,
        "dispatch": Dispatch.ACCEPTED,
        "finish_reason": "stop",
        "usage": REPORTED,
    }
    return AttemptRecord(
        tenant=tenant,
        key_id="k1",
        generation_id="g1",
        attempt=0,
        revision=revision,
        dialect="openai.chat",
        edge_id="edge-1",
        wall_us=STARTED_US,
        end=AttemptEnd(**(said | end)),
    )


def broken(**end):
    said = {"outcome": Outcome.FAILED, "finish_reason": None, "usage": None, "content_events": 12}
    return attempt(**(said | end))


def bill(record, customer=None, policy=DEFAULT_POLICY, book=BOOK):
    lines = lines_of(record, book, customer or Markup(), policy)
    return {(line.side.value, line.bucket): line for line in lines}


def amounts(bill_, side):
    return {bucket: line.amount for (s, bucket), line in bill_.items() if s == side}


def test_a_completed_attempt_has_a_line_per_bucket_and_side():
    """Measured buckets are priced on both sides, at cost where nothing else is agreed."""
    found = bill(attempt())
    cost = {"cache_read": "0.0004", "input": "0.0004", "output": "0.0004"}
    assert amounts(found, "provider_cost") == cost
    assert amounts(found, "customer_charge") == cost
    line = found["provider_cost", "input"]
    assert (line.quantity, line.unit_price, line.status, line.flags) == (200, "0.000002", "completed", [])
    assert (line.price_hash, line.usage_source) == (BOOK.entries[0].hash, "reported")


def test_a_measured_zero_is_zero_and_an_unmeasured_bucket_no_line():
    """Zero output costs 0; a cache that nobody reported does not appear."""
    found = bill(attempt(usage=Usage(input=5, output=0, source=UsageSource.REPORTED)))
    assert amounts(found, "provider_cost") == {"input": "0.00001", "output": "0"}


@pytest.mark.parametrize("dispatch", [Dispatch.REFUSED, Dispatch.NOT_CONNECTED])
def test_what_the_provider_refused_costs_nothing_and_says_so(dispatch):
    """A refused call has one line of amount 0 on either side, with the reason."""
    found = bill(broken(dispatch=dispatch, content_events=0, committed=False))
    assert amounts(found, "provider_cost") == {"none": "0"}
    assert found["provider_cost", "none"].flags == ["not_billed"]
    assert amounts(found, "customer_charge") == {"none": "0"}


def test_a_call_that_went_out_without_an_answer_is_unmeasured_not_free():
    """A time-out after dispatch has no amount and is flagged as possibly billed."""
    found = bill(broken(dispatch=Dispatch.SENT, content_events=0, committed=False, possibly_billed=True))
    line = found["provider_cost", "none"]
    assert (line.amount, line.quantity, line.status) == (None, None, "incomplete")
    assert line.flags == ["possibly_billed", "usage_unmeasured"]
    assert found["customer_charge", "none"].amount == "0"
    assert found["customer_charge", "none"].flags == ["not_charged", "possibly_billed"]


def test_a_broken_stream_without_usage_is_estimated_from_what_came():
    """The output that was seen is an estimate; the prompt that nobody measured has no amount."""
    found = bill(broken(tokens_seen_estimate=100, tokens_delivered_estimate=90))
    output, prompt = found["provider_cost", "output"], found["provider_cost", "input"]
    assert (output.quantity, output.flags) == (100, ["estimated", "usage_unmeasured"])
    assert (prompt.quantity, prompt.amount) == (None, None)
    assert found["customer_charge", "output"].quantity == 90


def test_an_estimate_of_the_edge_is_priced_and_flagged():
    """Estimates stand in for a missing report, on every bucket flagged."""
    found = bill(attempt(usage=estimated(prompt_bytes=400, output_bytes=40)))
    assert amounts(found, "provider_cost") == {"input": "0.0002", "output": "0.00008"}
    assert {tuple(line.flags) for line in found.values()} == {("estimated", "usage_unmeasured")}
    assert {line.usage_source for line in found.values()} == {"estimated"}


def test_a_running_total_of_a_broken_stream_is_a_lower_bound():
    """The prompt stays measured; the output is at least what was reported and at least what was seen."""
    seed = Usage(input=25, output=1, source=UsageSource.REPORTED)
    found = bill(broken(usage=seed, outcome=Outcome.CANCELLED, tokens_seen_estimate=12))
    prompt, output = found["provider_cost", "input"], found["provider_cost", "output"]
    assert (prompt.quantity, prompt.flags, prompt.usage_source) == (25, [], "partial_reported")
    assert (output.quantity, output.flags, output.status) == (12, ["estimated"], "cancelled")
    more = bill(broken(usage=msgspec.structs.replace(seed, output=40), tokens_seen_estimate=12))
    assert more["provider_cost", "output"].quantity == 40


def test_usage_after_the_finish_reason_is_final_however_the_attempt_ended():
    """A cancel that came after the provider's last word changes no count."""
    found = bill(attempt(outcome=Outcome.CANCELLED, tokens_seen_estimate=9999))
    assert found["provider_cost", "output"].quantity == 50
    assert found["provider_cost", "output"].flags == []


@pytest.mark.parametrize("flag", ["usage_malformed", "usage_inconsistent"])
def test_what_cannot_be_believed_is_quarantined(flag):
    """A line without amount, with the reason; never a guess and never 0."""
    found = bill(attempt(usage=Usage(source=UsageSource.REPORTED, flags=[flag])))
    for line in found.values():
        assert (line.bucket, line.amount, line.status, line.flags) == ("none", None, "quarantined", [flag])


def test_a_model_without_a_price_is_unpriced():
    """Quantities stand, amounts are missing, and the price of the model that was asked for is not taken."""
    found = bill(attempt(served_model="zeta-9"))
    assert set(amounts(found, "provider_cost").values()) == {None}
    line = found["provider_cost", "input"]
    assert (line.quantity, line.status, line.flags, line.model) == (200, "unpriced", ["unpriced"], "zeta-9")


def test_a_loser_costs_and_is_not_charged():
    """An attempt whose text nobody saw is provider's cost and no customer's charge, unless the policy says all."""
    found = bill(attempt(committed=False))
    assert amounts(found, "provider_cost")["output"] == "0.0004"
    assert found["customer_charge", "none"].flags == ["not_charged"]
    everything = ChargePolicy(name="everything", rules={"ok": Charged.ALL})
    assert amounts(bill(attempt(committed=False), policy=everything), "customer_charge")["output"] == "0.0004"


def test_input_only_charges_the_prompt():
    """The closer rule of the table comes first, and output is left to the house."""
    policy = ChargePolicy(name="p", rules={"failed": Charged.NOTHING, "failed.reported": Charged.INPUT_ONLY})
    found = bill(attempt(outcome=Outcome.FAILED), policy=policy)
    assert amounts(found, "customer_charge") == {"cache_read": "0.0004", "input": "0.0004"}


def test_pass_through_charges_completed_attempts_only():
    """committed_at_cost bills what completed, and nothing else."""
    assert amounts(bill(attempt(), policy=COMMITTED_AT_COST), "customer_charge")["output"] == "0.0004"
    cancelled = bill(attempt(outcome=Outcome.CANCELLED), policy=COMMITTED_AT_COST)
    assert amounts(cancelled, "customer_charge") == {"none": "0"}


def test_a_markup_scales_the_charge_and_not_the_cost():
    """The customer's unit price is the provider's times the factor; both lines name the same entry."""
    found = bill(attempt(), customer=Markup(factor=Decimal("1.15")))
    cost, charge = found["provider_cost", "output"], found["customer_charge", "output"]
    assert (cost.amount, charge.unit_price, charge.amount) == ("0.0004", "0.0000092", "0.00046")
    assert cost.price_hash == charge.price_hash
    assert (cost.policy_hash, charge.policy_hash) == (
        None,
        policy_hash(DEFAULT_POLICY, Markup(factor=Decimal("1.15"))),
    )


def test_a_customers_list_is_a_book_of_its_own():
    """The customer's side is priced from its list; a model that is not in it is unpriced there only."""
    theirs = PriceBook(
        [entry_of({"model": "alpha", "from": "2026-01-01T00:00:00Z", "input": "5.00", "output": "20.00"})]
    )
    found = bill(attempt(), customer=theirs)
    assert found["customer_charge", "output"].amount == "0.001"
    assert found["provider_cost", "output"].amount == "0.0004"
    assert bill(attempt(), customer=PriceBook([]))["customer_charge", "output"].status == "unpriced"


ends = st.fixed_dictionaries(
    {
        "outcome": st.sampled_from(Outcome),
        "dispatch": st.sampled_from(Dispatch),
        "committed": st.booleans(),
        "finish_reason": st.sampled_from([None, "stop"]),
        "served_model": st.sampled_from([None, "zeta-9"]),
        "content_events": st.integers(0, 5),
        "tokens_delivered_estimate": st.none() | st.integers(0, 100),
        "usage": st.none()
        | st.builds(
            Usage,
            input=st.none() | st.integers(0, 10**6),
            cache_read=st.none() | st.integers(0, 10**6),
            output=st.none() | st.integers(0, 10**6),
            source=st.sampled_from(UsageSource),
        ),
    }
)


@given(end=ends, revision=st.integers(0, 1))
def test_whatever_an_attempt_was_its_bill_is_whole(end, revision):
    """Always a line per side, one per key, the record's revision, exact amounts, a hash that holds."""
    record = attempt(revision=revision, **end)
    lines = lines_of(record, BOOK, Markup(), DEFAULT_POLICY)
    assert lines == lines_of(record, BOOK, Markup(), DEFAULT_POLICY)
    assert {line.side for line in lines} == {Side.PROVIDER_COST, Side.CUSTOMER_CHARGE}
    assert len({(line.side, line.bucket) for line in lines}) == len(lines)
    for line in lines:
        assert line.revision == revision
        assert line.content_hash == content_hash(line)
        assert line.status != "unknown"
        if line.amount is not None:
            assert "E" not in line.amount
            assert Decimal(line.amount) >= 0
            if line.unit_price is not None:
                assert Decimal(line.amount) == line.quantity * Decimal(line.unit_price)
        else:
            assert set(line.flags) & {"usage_unmeasured", "unpriced", "usage_malformed", "usage_inconsistent"}


def test_the_hash_is_of_every_other_field():
    """A line that differs in anything has another hash; its own hash is not part of it."""
    line = bill(attempt())["provider_cost", "output"]
    assert content_hash(msgspec.structs.replace(line, content_hash="x")) == line.content_hash
    for name, other in (("amount", "1"), ("revision", 2), ("tenant", "t"), ("flags", ["x"])):
        assert content_hash(msgspec.structs.replace(line, **{name: other})) != line.content_hash


def test_lines_name_the_record_that_they_are_of():
    """All lines of a side name one record; another usage is another one, also in the lines that it leaves as they were."""
    lines, again = bill(attempt()), bill(attempt())
    other = bill(attempt(usage=msgspec.structs.replace(REPORTED, output=51)))
    records = {side: {line.record_hash for (s, _), line in lines.items() if s == side} for side in Side}
    assert [len(records[side]) for side in (Side.PROVIDER_COST, Side.CUSTOMER_CHARGE)] == [1, 1]
    assert lines == again
    assert other["provider_cost", "input"].amount == lines["provider_cost", "input"].amount
    assert not {line.content_hash for line in other.values()} & {line.content_hash for line in lines.values()}


def test_terms_are_the_tenants_own_and_dated(tmp_path):
    """A tenant's terms come before everybody's, by the attempt's start, with lists and policies of the files."""
    path = tmp_path / "prices.toml"
    path.write_text(
        """
[[price]]
model = "alpha"
from = 2026-01-01T00:00:00Z
input = "2.00"
output = "8.00"
cache_read = "0.50"
[[price]]
book = "list"
model = "alpha"
from = 2026-01-01T00:00:00Z
input = "4.00"
output = "16.00"
[[policy]]
name = "free"
rules = { ok = "nothing" }
[[terms]]
markup = "1.5"
[[terms]]
tenant = "acme"
to = 2026-05-01T08:00:00Z
policy = "free"
[[terms]]
tenant = "acme"
from = 2026-05-01T08:00:00Z
book = "list"
"""
    )
    tariff = load_tariff([path])

    def charge(tenant, started_us):
        lines = tariff.bill(attempt(tenant=tenant, started_us=started_us))
        return {line.bucket: line.amount for line in lines if line.side is Side.CUSTOMER_CHARGE}

    assert charge("globex", STARTED_US)["output"] == "0.0006"
    assert charge("acme", STARTED_US - 1) == {"none": "0"}
    assert charge("acme", STARTED_US)["output"] == "0.0008"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[terms]]\npolicy = 'x'", "no policy 'x'"),
        ("[[terms]]\nbook = 'x'", "no price in book 'x'"),
        ("[[terms]]\nbook = 'x'\nmarkup = 2", "not both"),
        ("[[terms]]\nmarkup = 'a lot'", "everybody"),
        ("[[terms]]\nmarkup = -1", "factor"),
        ("[[terms]]\ntenannt = 'x'", "tenannt"),
        ("[[policy]]\nname = 'x'\nrules = { done = 'all' }", "done"),
        ("[[policy]]\nname = 'x'\nrules = { ok = 'half' }", "policy 'x'"),
    ],
)
def test_terms_that_cannot_be_meant_are_refused(tmp_path, text, message):
    """A slip in a price file stops the worker at its start, not a bill at the month's end."""
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(PriceError, match=message):
        load_tariff([path])
