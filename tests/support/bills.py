"""Ledger lines on a real ClickHouse, and bills of them, for the tests of exports."""

from __future__ import annotations

import csv
import hashlib
import itertools
from datetime import UTC, datetime

from sinks import derived
from sinks.exports.bill import Order, export_bill
from tests.support.records import generation_id, ledger

LATER = datetime(2026, 6, 1, 12, 30, 15, 123_456, tzinfo=UTC)
"""The months up to May are over."""
_offsets = itertools.count()
_ids = itertools.count()


def us(at):
    """Give the Unix microseconds of an instant that is written in ISO 8601."""
    return round(datetime.fromisoformat(at).timestamp() * 1_000_000)


def line(number, amount="0.1", at="2026-03-15T00:00:00Z", bucket="output", **changes):
    """Give a line of the n-th generation; another amount, revision or record is another content."""
    said = [str(amount), *(str(changes.get(name, "")) for name in ("revision", "record_hash"))]
    return ledger(
        generation_id(number, us(at)),
        bucket,
        amount=amount,
        started_us=us(at),
        **{"content_hash": "/".join(said)} | changes,
    )


def put(store, *lines, first_offset=None):
    """Store lines at the next offsets of the ledger, or again at those that they had."""
    offsets = _offsets if first_offset is None else itertools.count(first_offset)
    rows = [derived.ledger_row(one, 0, offset) for one, offset in zip(lines, offsets, strict=False)]
    store.insert(derived.LEDGER, rows, hashlib.sha256(repr(rows).encode()).hexdigest())


def export(store, path, period="2026-03", tenant="acme", *, now=LATER, **order):
    """Export a month of a tenant."""
    closing_id = f"closing-{next(_ids)}"
    return export_bill(store, Order(tenant, period, **order), path, now=now, closing_id=closing_id)


def files_of(bill):
    """Give the bytes of a bill's three files."""
    return [path.read_bytes() for path in (bill.path, bill.cover_path, bill.manifest_path)]


def lines_of(bill):
    """Give the rows of a bill's CSV by column."""
    return lines_of_file(bill.path)


def lines_of_file(path):
    """Give the rows of a CSV by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
