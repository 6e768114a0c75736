"""What an ``upstream`` vector says of the attempts: lineage, usage, stalls, and what the bill would be.

Before it: ``observed``. After it: ``upstream_checks``.
"""

from decimal import Decimal

from pipeline.billing import NOT_BILLED, lines_of
from pipeline.charging import COMMITTED_AT_COST, Markup
from schemas.prices import PriceBook, entry_of
from schemas.records import Side

from .values import check_all, within

BUCKETS = ("input", "cache_read", "cache_write", "output", "reasoning")
NOT_REPORTED = ("none", "estimated")
PRICES = {
    "model": "alpha",
    "from": "2000-01-01T00:00:00Z",
    "to": None,
    "input": "1.00",
    "output": "2.00",
}


def usage(seen, wanted):
    """Of the delivered attempt: in its record, in the terminal, in the row; null: nobody claims a report."""
    for found in (seen.delivered.end.usage, seen.end.usage, seen.row.usage):
        _usage(found, wanted)


def _usage(found, wanted):
    if wanted is None:
        assert found is None or found.source in NOT_REPORTED
        return
    assert not wanted.keys() - set(BUCKETS)
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert found.source not in NOT_REPORTED


def lineage(seen, wanted):
    """Each attempt's own record."""
    assert len(seen.attempts) == len(wanted)
    for record, expect in zip(seen.attempts, wanted, strict=True):
        check_all(record.end, expect, LINEAGE, "lineage")


def _field(name):
    def check(end, wanted):
        assert getattr(end, name) == wanted, name

    return check


def _source(end):
    return "none" if end.usage is None else end.usage.source.value


def _usage_source(end, wanted):
    assert _source(end) == wanted


def _usage_source_in(end, wanted):
    assert _source(end) in wanted


def _content_delivered(end, wanted):
    assert (end.committed and end.content_events > 0) is wanted


LINEAGE = {
    "outcome": _field("outcome"),
    "error_code": _field("error_code"),
    "possibly_billed": _field("possibly_billed"),
    "usage": lambda end, wanted: _usage(end.usage, wanted),
    "usage_source": _usage_source,
    "usage_source_in": _usage_source_in,
    "content_delivered": _content_delivered,
}


def stalls(seen, wanted):
    """The rows of the generation, and what the one row says."""
    rows = seen.row.stalls
    assert not wanted.keys() - {"rows", "stall_count", "ended_by", "after_content", "gap_ms"}
    if "rows" in wanted:
        assert len(rows) == wanted["rows"]
    if "stall_count" in wanted:
        assert seen.row.timings.stall_count == wanted["stall_count"]
    if "ended_by" in wanted:
        assert rows[0].ended_by == wanted["ended_by"]
    if "after_content" in wanted:
        assert rows[0].content_index == wanted["after_content"]
    if "gap_ms" in wanted:
        assert within(rows[0].length_us / 1000, wanted["gap_ms"]), rows[0].length_us


def billing(seen, wanted):
    """The attempts that have a bill, and its status."""
    assert not wanted.keys() - {"rows", "status"}
    book = PriceBook([entry_of(PRICES)])
    bills = []
    for record in seen.attempts:
        lines = lines_of(record, book, Markup(), COMMITTED_AT_COST)
        cost = [line for line in lines if line.side is Side.PROVIDER_COST]
        assert all(line.amount is None or Decimal(line.amount) >= 0 for line in cost)
        if not any(NOT_BILLED in line.flags for line in cost):
            bills.append({line.status for line in cost})
    assert len(bills) == wanted["rows"]
    if "status" in wanted:
        assert bills == [{wanted["status"]}]
