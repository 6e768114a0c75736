"""The bill of one tenant and month: a CSV of ledger lines, a cover sheet, a manifest.

Same ledger, same bytes: lines have one order, money is written plainly, and nothing says when it was made. The sum is
exact and compared with what SQL itself sums. Each file is written beside its place and renamed into it, the manifest
last: a killed export leaves no half file, and a CSV is whole where the manifest names its hash.

A month is the tenant's own (half-open, in its zone), by the start instant of each attempt. Before: the CLI. After:
``store``, the view ``ledger_current``.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from schemas.errors import TokentrailError
from schemas.money import EXACT, cents, plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sinks.store import SqlStore

COLUMNS = (
    "started",
    "generation_id",
    "attempt",
    "bucket",
    "quantity",
    "unit_price",
    "amount",
    "currency",
    "provider",
    "model",
    "key_id",
    "request_id",
    "usage_source",
    "status",
    "flags",
    "revision",
    "price_hash",
    "policy_hash",
    "content_hash",
    "conflicts",
)
_WHERE = (
    "tenant = {tenant:String} AND side = {side:String} "
    "AND started >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') "
    "AND started < fromUnixTimestamp64Micro({until_us:Int64}, 'UTC')"
)
_LINES = (
    f"SELECT {', '.join(COLUMNS)} FROM ledger_current WHERE {_WHERE} "  # noqa: S608 - names of our own columns
    "ORDER BY started, toString(generation_id), attempt, bucket, currency"
)
_SUMS = (
    f"SELECT currency, count() AS lines, sum(amount) AS total FROM ledger_current WHERE {_WHERE} "  # noqa: S608
    "GROUP BY currency ORDER BY currency"
)
_POSITION = (
    f"SELECT `partition` AS log_partition, max(`offset`) AS last_offset FROM ledger FINAL WHERE {_WHERE} "  # noqa: S608
    "GROUP BY log_partition ORDER BY log_partition"
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would execute; a client chooses its request ids."""


class ExportError(TokentrailError):
    """Nothing was written; the message says what to do."""


class Bill(NamedTuple):
    """What was written. ``sums`` by currency; ``draft``: the month is not over."""

    path: Path
    cover_path: Path
    manifest_path: Path
    rows: int
    sums: Mapping[str, Decimal]
    sha256: str
    draft: bool


def export_bill(
    store: SqlStore,
    tenant: str,
    period: str,
    zone: str,
    out_path: Path,
    *,
    now: datetime,
    side: str = "customer_charge",
) -> Bill:
    """Write the bill of a month.

    Args:
        store: the warehouse.
        tenant: whose.
        period: the month, as ``2026-11``.
        zone: the tenant's IANA zone.
        out_path: where the CSV goes; the cover sheet and the manifest go beside it.
        now: decides whether the month is over.
        side: ``customer_charge``, or ``provider_cost`` for the other side of the books.

    Raises ExportError, and what the store raises.
    """
    begin, end = bounds(period, zone)
    params = {"tenant": tenant, "side": side, "from_us": _unix_us(begin), "until_us": _unix_us(end)}
    cover_path = out_path.with_name(out_path.name + ".cover.txt")
    manifest_path = out_path.with_name(out_path.name + ".manifest.json")
    temporary = out_path.with_name(f".{out_path.name}.{os.getpid()}.part")
    tally = _Tally()
    try:
        sha256 = _write_lines(store, params, temporary, tally)
        _compare(tally, store.query(_SUMS, params))
        position = store.query(_POSITION, params)
        head = {
            "tenant": tenant,
            "period": period,
            "zone": zone,
            "side": side,
            "from": begin.isoformat(),
            "until": end.isoformat(),
            "state": "draft" if now < end else "final",
        }
        manifest = head | {
            "file": out_path.name,
            "sha256": sha256,
            "rows": tally.rows,
            "sums": {currency: plain(amount) for currency, amount in sorted(tally.sums.items())},
            "ledger_position": {str(row["log_partition"]): row["last_offset"] for row in position},
        }
        temporary.replace(out_path)
        _replace(cover_path, tally.cover(head))
        _replace(manifest_path, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    return Bill(out_path, cover_path, manifest_path, tally.rows, dict(tally.sums), sha256, now < end)


def bounds(period: str, zone: str) -> tuple[datetime, datetime]:
    """The first instant of a month in a zone, and the first that is not in it any more, in UTC. Raises ExportError."""
    match = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", period)
    if match is None:
        raise ExportError(f"a period is a month like 2026-11, not {period!r}")
    try:
        tz = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ExportError(f"{zone!r} is no IANA time zone; Europe/Budapest is one") from error
    year, month = int(match.group(1)), int(match.group(2))
    following = (year + month // 12, month % 12 + 1)
    begin, end = (datetime(y, m, 1, tzinfo=tz).astimezone(UTC) for y, m in ((year, month), following))
    return begin, end


class _Tally:
    """What the cover sheet says: every line is in exactly one class, and money is summed by currency."""

    def __init__(self) -> None:
        self.rows = 0
        self.sums: dict[str, Decimal] = {}
        self._lines = dict.fromkeys(("measured", "estimated", "unmeasured", "unpriced", "quarantined"), 0)
        self._money: dict[tuple[str, str], Decimal] = {}
        self._conflicts = 0

    def add(self, line: Mapping[str, Any]) -> None:
        """Take a line."""
        kind, currency, amount = _class_of(line), line["currency"], line["amount"] or Decimal(0)
        self.rows += 1
        self._lines[kind] += 1
        self._conflicts += line["conflicts"]
        with localcontext(EXACT):
            self.sums[currency] = self.sums.get(currency, Decimal(0)) + amount
            self._money[kind, currency] = self._money.get((kind, currency), Decimal(0)) + amount

    def cover(self, head: Mapping[str, str]) -> str:
        """The cover sheet."""
        said = [f"{name}: {value}" for name, value in head.items()]
        said += ["", f"lines: {self.rows}"]
        for currency, amount in sorted(self.sums.items()):
            said.append(
                f"total: {plain(amount)} {currency} (invoice: {cents(amount) / Decimal(100):.2f} {currency})"
            )
        said += ["", "class          lines        %  amount"]
        for kind, lines in self._lines.items():
            share = Decimal(100 * lines) / self.rows if self.rows else Decimal(0)
            money = [
                f"{plain(self._money[kind, c])} {c}" for c in sorted(self.sums) if (kind, c) in self._money
            ]
            said.append(f"{kind:<12}{lines:>8}{share:>8.1f}%  {', '.join(money) or '-'}")
        said += [
            "",
            f"contents that contradict a billed line of the same revision, not billed: {self._conflicts}",
            "unmeasured and unpriced lines have no amount: they are not zero, they are not known yet",
        ]
        return "\n".join(said) + "\n"


def _class_of(line: Mapping[str, Any]) -> str:
    if line["status"] == "quarantined" or line["conflicts"]:
        return "quarantined"
    if line["amount"] is None:
        return "unpriced" if line["status"] == "unpriced" or "unpriced" in line["flags"] else "unmeasured"
    return "estimated" if line["usage_source"] == "estimated" or "estimated" in line["flags"] else "measured"


def _write_lines(store: SqlStore, params: Mapping[str, Any], path: Path, tally: _Tally) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for line in store.stream(_LINES, params):
            tally.add(line)
            writer.writerow([_cell(line[name]) for name in COLUMNS])
        file.flush()
        os.fsync(file.fileno())
    with path.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, (list, tuple)):
        return " ".join(sorted(value))
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _compare(tally: _Tally, sums: list[dict[str, Any]]) -> None:
    """What was written must be what SQL sums; another answer means that the ledger moved in between."""
    asked = {row["currency"]: row["total"] or Decimal(0) for row in sums}
    if asked != dict(tally.sums) or sum(row["lines"] for row in sums) != tally.rows:
        raise ExportError("the ledger changed while it was exported; export again")


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _unix_us(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000
