"""The bill of one tenant and month: a file of lines, a cover sheet, a manifest. To export it closes the month.

A month that is over is closed by its first export: what was billed is kept, and every later export of it gives the same
bytes. What comes late for it stands on the tenant's next bill as an adjustment, so that all bills together are the ledger, to
the last digit; each sum is compared with what SQL itself sums. A month that is not over, and one that is only looked at, is a
draft: nothing is kept of it.

Each file is written beside its place and renamed into it, the manifest last: a killed export leaves no half file, and a bill
is whole where the manifest names its hash. Nothing is closed before the place for the file was found to be writable.

A month is the tenant's own (half-open, in its zone), by the start instant of each attempt. Before: the CLI. After: ``books``,
``statement``, ``tally``, ``render``.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from decimal import Decimal
from typing import IO, TYPE_CHECKING, NamedTuple

from schemas.money import plain
from sinks.exports.books import Books, Closing, Snapshot
from sinks.exports.focus import Invoice
from sinks.exports.period import ExportError, bounds
from sinks.exports.render import Form, Writer, writer_of
from sinks.exports.statement import Item, Kind, Terms, statement
from sinks.exports.tally import NAMED_MAX, Money, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from sinks.store import SqlStore

CLOSINGS_TRIED = 5
"""How often a closing counts again because another one of this tenant was faster; two finance people are not five."""


class Order(NamedTuple):
    """What is asked for.

    ``period``: the month, as ``2026-11``; ``zone``: the tenant's IANA zone, None: that of its last bill, UTC for the first
    one; ``side``: customer_charge or provider_cost; ``draft``: only look, close nothing; ``with_earlier``: bill also what is
    left of earlier months that were never closed.
    """

    tenant: str
    period: str
    zone: str | None = None
    side: str = "customer_charge"
    form: Form = Form.CSV
    draft: bool = False
    with_earlier: bool = False


class Bill(NamedTuple):
    """What was written. ``closed``: when the month was closed, None: a draft; ``newly``: by this export.

    ``unreadable``: dead letters since the month began, as far as they may belong to this tenant; in no file, since a bill that
    was closed does not change when one more is found.
    """

    path: Path
    cover_path: Path
    manifest_path: Path
    sha256: str
    zone: str
    closed: datetime | None
    newly: bool
    tally: Tally
    unreadable: tuple[str, ...] = ()


class _Month(NamedTuple):
    """The asked month: its bounds, and its closing where it was closed. ``closings``: the whole chain."""

    zone: str
    begin: datetime
    end: datetime
    closings: tuple[Closing, ...]
    closing: Closing | None


def export_bill(store: SqlStore, order: Order, out_path: Path, *, now: datetime, closing_id: str) -> Bill:
    """Write the bill of a month, and close the month if it is over.

    Args:
        store: the warehouse.
        order: whose bill, and which.
        out_path: where the file goes; the cover sheet and the manifest go beside it.
        now: decides whether the month is over, and is when it was closed.
        closing_id: names the closing, should there be one, and the unfinished file; never used before.

    Raises ExportError, and what the store raises.
    """
    books = Books(store, order.tenant, order.side)
    month = _month(order, books.closings())
    if out_path.is_dir():  # a rename would tell only when the month is closed
        raise ExportError(f"{out_path} cannot be written: it is a folder")
    invoice = Invoice(order.tenant, order.side, order.period, month.zone)
    temporary = out_path.with_name(f".{out_path.name}.{closing_id}.part")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            left = Money()
            if month.closing is None and month.end <= now and not order.draft:
                month, left = _close(books, order, now, closing_id)
            if month.closing is None:
                at = books.snapshot(month.closings, _unix_us(month.end))
                tally = _write(_due(books, order, month, at), writer_of(order.form, file, invoice), file)
                _compare(tally.seen(), books.owed(at))
                position = at.position
            else:
                tally = _write(books.lines(month.closing), writer_of(order.form, file, invoice), file)
                _check_kept(books, month.closing, tally)
                tally.left, position = left, month.closing.ledger_position
        bill = _publish(order, month, tally, position, temporary, out_path)
    except OSError as error:
        raise ExportError(f"{out_path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    return bill._replace(
        newly=month.closing is not None and month.closing.closing.startswith(f"{closing_id}-"),
        unreadable=tuple(books.unreadable(_unix_us(month.begin), NAMED_MAX)),
    )


def _month(order: Order, closings: tuple[Closing, ...]) -> _Month:
    """The month that is meant, in the zone that holds for it. Raises ExportError."""
    closing = next((link for link in closings if link.period == order.period), None)
    if closing is not None and order.zone not in (None, closing.zone):
        raise ExportError(
            f"{order.period} of {order.tenant} was closed in the time zone {closing.zone}, and stays in it: "
            f"leave the zone out, or name {closing.zone}"
        )
    before = closing or (closings[-1] if closings else None)
    zone = order.zone or ("UTC" if before is None else before.zone)
    return _Month(zone, *bounds(order.period, zone), closings, closing)


def _due(books: Books, order: Order, month: _Month, at: Snapshot) -> Iterator[Item]:
    closed = frozenset(link.period for link in month.closings)
    return statement(books.entries(at), Terms(order.period, month.zone, closed, order.with_earlier))


def _close(books: Books, order: Order, now: datetime, closing_id: str) -> tuple[_Month, Money]:
    """Keep what the month's bill says, as the next link of the chain; the month as it is closed then, and what was left."""
    for number in range(CLOSINGS_TRIED):
        month = _month(order, books.closings())
        if month.closing is not None:
            return month, Money()  # by another export, meanwhile
        tally, this = Tally(), f"{closing_id}-{number}"
        at = books.snapshot(month.closings, _unix_us(month.end))
        books.keep(this, order.period, _kept(_due(books, order, month, at), tally))
        _compare(tally.seen(), books.owed(at))
        link = len(month.closings) + 1
        closing = Closing(link, this, order.period, month.zone, now, tally.rows, at.position)
        if books.close(at, closing):
            return _month(order, books.closings()), tally.left
    raise ExportError(f"other months of {order.tenant} are being closed at the same time; export again")


def _kept(items: Iterable[Item], tally: Tally) -> Iterator[Item]:
    """The items that a closing keeps; all of them are counted."""
    for item in items:
        tally.add(item)
        if item.kind is not Kind.LEFT:
            yield item


def _write(items: Iterable[Item], writer: Writer, file: IO[str]) -> Tally:
    tally = Tally()
    for item in items:
        tally.add(item)
        if item.kind.billed:
            writer.write(item)
    writer.end()
    file.flush()
    os.fsync(file.fileno())
    return tally


def _publish(
    order: Order, month: _Month, tally: Tally, position: object, temporary: Path, out_path: Path
) -> Bill:
    """Name the file, then the cover sheet, then the manifest, which says that all is there."""
    with temporary.open("rb") as written:
        sha256 = hashlib.file_digest(written, "sha256").hexdigest()
    closed = None if month.closing is None else month.closing.closed
    head = {
        "tenant": order.tenant,
        "period": order.period,
        "zone": month.zone,
        "side": order.side,
        "from": month.begin.isoformat(),
        "until": month.end.isoformat(),
        "state": "draft" if closed is None else "final",
        "closed": "no" if closed is None else closed.isoformat(),
    }
    manifest = head | {
        "closed": None if closed is None else closed.isoformat(),
        "file": out_path.name,
        "sha256": sha256,
        "rows": tally.rows,
        "sums": _plain(tally.sums),
        "adjustments": {
            period: {"lines": tally.adjustments.lines(period), "sums": _plain(tally.adjustments.sums(period))}
            for period in tally.adjustments
        },
        "quarantined_lines": tally.quarantined_lines,
        "quarantined": tally.quarantined,
        "ledger_position": position,
    }
    cover_path = out_path.with_name(out_path.name + ".cover.txt")
    manifest_path = out_path.with_name(out_path.name + ".manifest.json")
    temporary.replace(out_path)
    for path, text in (
        (cover_path, tally.cover(head)),
        (manifest_path, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"),
    ):
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    return Bill(out_path, cover_path, manifest_path, sha256, month.zone, closed, newly=False, tally=tally)


def _check_kept(books: Books, closing: Closing, tally: Tally) -> None:
    """A closed bill is all there: its lines are as many, and its sum is the one, as when it was closed."""
    lines, sums = books.sums(closing)
    _compare(tally.sums, sums)
    if not lines == tally.rows == closing.lines:
        raise ExportError(
            f"the bill of {closing.period} was closed with {closing.lines} lines, and {lines} are there: "
            "rows of billed_lines were lost or changed"
        )


def _compare(seen: dict[str, Decimal], asked: dict[str, Decimal]) -> None:
    """What passed here must be what SQL sums, in each currency."""
    for currency in sorted(seen.keys() | asked.keys()):
        here, there = (sums.get(currency, Decimal(0)) for sums in (seen, asked))
        if here != there:
            raise ExportError(
                f"the lines come to {plain(here)} {currency}, and SQL says {plain(there)}: nothing was written or closed. "
                "The ledger may be changing its place just now (a topic made anew, a merge of copies); export again"
            )


def _plain(sums: dict[str, Decimal]) -> dict[str, str]:
    return {currency: plain(amount) for currency, amount in sums.items()}


def _unix_us(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000
