"""Form ``billing``: usage as providers report it → ledger lines → sums, compared as exact decimals."""

import json
from decimal import Decimal
from typing import Any

import msgspec
import orjson

from pipeline.billing import NOT_BILLED, lines_of
from pipeline.charging import COMMITTED_AT_COST, Markup
from schemas.events import AttemptEnd, Dispatch, Outcome
from schemas.prices import PriceBook, entry_of
from schemas.records import AttemptRecord, LedgerLine, Side
from schemas.usage import FIELDS, estimated, normalise

from .values import instant_us

OUTCOMES = {
    "completed": Outcome.OK,
    "incomplete": Outcome.FAILED,
    "failed": Outcome.FAILED,
    "cancelled": Outcome.CANCELLED,
}
BUCKETS = {"cache_write_1h": "cache_write", "input_audio": "input", "output_audio": "output"}
REFUSED_STATUS = 400
BYTES_PER_DELTA = 4


def unsupported(vector: dict[str, Any]) -> str | None:
    """Which feature of the vector is not billed yet."""
    if vector["charge_policy"] != COMMITTED_AT_COST.name:
        return f"charge_policy {vector['charge_policy']} is not supported yet"
    unknown = {attempt["dialect"] for attempt in vector["attempts"]} - FIELDS.keys()
    return f"dialect {', '.join(sorted(unknown))} is not supported yet" if unknown else None


def run(vector: dict[str, Any], tmp_path: object) -> None:
    """Bill every attempt and compare lines, flags and sums."""
    book = PriceBook(entry_of(price) for price in vector["prices"])
    bills = _bills(vector, book)
    expect = vector["expect"]
    wanted = {(line["generation_id"], line["attempt"]): line for line in expect["lines"]}
    assert bills.keys() == wanted.keys()
    for key, line in wanted.items():
        _compare(bills[key], line)
    assert sorted({flag for bill in bills.values() for flag in bill["flags"]}) == expect["flags"]
    assert expect.get("rows", len(bills)) == len(bills)
    for name, side in (
        ("provider_cost_usd", "provider_cost"),
        ("customer_charge_usd", "customer_charge"),
    ):
        if name in expect:
            found = _total([(bill[side], bill["times"]) for bill in bills.values()])
            assert found == (None if expect[name] is None else Decimal(expect[name])), name


def _bills(vector: dict[str, Any], book: PriceBook) -> dict[tuple[str, int], dict[str, Any]]:
    bills: dict[tuple[str, int], dict[str, Any]] = {}
    for attempt in vector["attempts"]:
        record = _record(attempt)
        lines = lines_of(record, book, Markup(), COMMITTED_AT_COST)
        cost = [line for line in lines if line.side is Side.PROVIDER_COST]
        charge = [line for line in lines if line.side is Side.CUSTOMER_CHARGE]
        if any(NOT_BILLED in line.flags for line in cost):
            continue
        bill = _bill(record, cost, charge, book) | {"times": attempt.get("times", 1)}
        key = (attempt["generation_id"], attempt["attempt"])
        assert bills.setdefault(key, bill) == bill
    return bills


def _record(attempt: dict[str, Any]) -> AttemptRecord:
    """The record that the edge writes of such an attempt."""
    raw_json = attempt.get("usage_raw_json") or json.dumps(attempt["usage_raw"], default=float)
    raw = orjson.loads(raw_json)  # as the edge reads it
    reports = [] if raw is None else raw if isinstance(raw, list) else [raw]
    deltas, guess = attempt.get("deltas_delivered", 0), attempt.get("estimate") or {}
    seen = guess.get("output", attempt.get("output_tokens_seen"))
    usage = normalise(attempt["dialect"], reports, convention=attempt.get("usage_convention", "standard"))
    if usage is None and (deltas or seen):
        usage = estimated(prompt_bytes=40, output_bytes=deltas * BYTES_PER_DELTA)
        known = {"input": guess.get("input", usage.input), "output": usage.output if seen is None else seen}
        usage = msgspec.structs.replace(usage, **known)
    outcome = OUTCOMES[attempt["outcome"]]
    status = attempt.get("http_status", 200)
    dispatch = Dispatch.SENT if status is None else Dispatch.ACCEPTED
    return AttemptRecord(
        tenant="t1",
        key_id="k1",
        generation_id=attempt["generation_id"],
        attempt=attempt["attempt"],
        revision=1,
        dialect=attempt["dialect"],
        edge_id="edge-1",
        wall_us=instant_us(attempt["started_at"]),
        end=AttemptEnd(
            provider="p1",
            model=attempt.get("requested_model", attempt["model"]),
            served_model=attempt["model"],
            request_id="r1",
            started_us=instant_us(attempt["started_at"]),
            outcome=outcome,
            committed=outcome is Outcome.OK or bool(deltas),
            dispatch=Dispatch.REFUSED if status and status >= REFUSED_STATUS else dispatch,
            finish_reason="stop" if outcome is Outcome.OK else None,
            usage=usage,
            content_events=deltas,
            tokens_seen_estimate=seen,
        ),
    )


def _bill(
    record: AttemptRecord, cost: list[LedgerLine], charge: list[LedgerLine], book: PriceBook
) -> dict[str, Any]:
    """The lines of one attempt as the casebook shows them: one per attempt."""
    usage: dict[str, int] = {}
    guessed: dict[str, int] = {}
    for line in cost:
        if line.quantity is not None and line.bucket != "none":
            bucket = BUCKETS.get(line.bucket, line.bucket)
            kind = guessed if "estimated" in line.flags else usage
            kind[bucket] = kind.get(bucket, 0) + line.quantity
    reported = record.end.usage
    if usage and reported is not None and reported.reasoning is not None:
        usage["reasoning"] = reported.reasoning
    entries = {line.price_hash for line in cost}
    assert len(entries) == 1
    statuses = {line.status for line in cost}
    assert len(statuses) == 1
    price_hash = entries.pop()
    entry = book.by_hash(price_hash) if price_hash else None
    return {
        "price_hash": price_hash,
        "price_model": None if entry is None else entry.model,
        "usage": usage or None,
        "estimated": guessed,
        "usage_source": cost[0].usage_source,
        "flags": sorted({flag for line in cost for flag in line.flags}),
        "status": statuses.pop(),
        "provider_cost": _total([(line.amount, 1) for line in cost]),
        "customer_charge": _total([(line.amount, 1) for line in charge]),
    }


def _compare(bill: dict[str, Any], line: dict[str, Any]) -> None:
    """One line; what the vector leaves out is not asserted, a status left out is completed."""
    if bill["price_hash"] is not None or bill["status"] == "unpriced":
        assert bill["price_model"] == line["price_model"]
    if line["usage"] is None:
        assert bill["usage"] is None
    else:
        measured = bill["usage"] or {}
        assert {name: measured.get(name) for name in line["usage"]} == line["usage"]
    assert bill["usage_source"] == line["usage_source"]
    assert bill["flags"] == line["flags"]
    assert bill["status"] == line.get("status", "completed")
    assert sorted(bill["estimated"]) == sorted(line.get("estimated", []))
    for bucket, least in line.get("at_least", {}).items():
        assert bill["estimated"][bucket] >= least
    if "cost_usd" in line:
        assert bill["provider_cost"] == (None if line["cost_usd"] is None else Decimal(line["cost_usd"]))
    assert bill["times"] == line.get("times", 1)


def _total(amounts: list[tuple[Any, int]]) -> Decimal | None:
    """The sum, each part so many times; unknown as soon as one part is."""
    if any(amount is None for amount, _ in amounts):
        return None
    return sum((Decimal(amount) * times for amount, times in amounts), Decimal(0))
