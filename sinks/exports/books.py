"""The books of one tenant and side: its ledger, what was billed of it, and the chain of its closings, in ClickHouse.

A closing is lines first, then one row that makes them hold; until then nobody reads them. That row is the next link of the
chain, inserted under a token that names the link: of two at once one stands, and the other sees it when it reads back.
Every question of one bill is asked of the ledger up to one position, so that what comes meanwhile changes no sum.

Before: ``bill`` asks. After: ``store``; the tables are those of ``sql/009_bills.sql``.
"""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.topics import ATTEMPTS as ATTEMPTS_TOPIC
from schemas.topics import LEDGER as LEDGER_TOPIC
from sinks.exports.questions import (
    BESIDE,
    CLOSINGS,
    ENTRIES,
    FIELDS,
    LINES,
    OWED,
    POSITION,
    SUMS,
    UNREADABLE,
)
from sinks.exports.statement import Item, Kind
from sinks.store import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from sinks.store import SqlStore

BLOCK_LINES = 10_000
"""Lines of one insert: some MB."""
BILLED_LINES = Table(
    name="billed_lines",
    topic=LEDGER_TOPIC,
    columns=(
        "tenant",
        "side",
        "closing",
        "number",
        "billed_in",
        "kind",
        "period",
        "sign",
        *FIELDS,
        *BESIDE,
    ),
    key=("tenant", "side", "closing", "number"),
)
CLOSED_PERIODS = Table(
    name="closed_periods",
    topic=LEDGER_TOPIC,
    columns=(
        "tenant",
        "side",
        "number",
        "closing",
        "period",
        "zone",
        "closed",
        "lines",
        "ledger_position",
    ),
    key=("tenant", "side", "number", "closing"),
)


class Closing(NamedTuple):
    """A month that was closed. ``number``: the link in the chain; ``lines``: how many stand on the bill."""

    number: int
    closing: str
    period: str
    zone: str
    closed: datetime
    lines: int
    ledger_position: Mapping[str, int]


class Snapshot(NamedTuple):
    """One state of the books: what was closed, and the ledger up to a position, of attempts that started before an instant."""

    closings: tuple[Closing, ...]
    position: Mapping[str, int]
    until_us: int


class Books:
    """The books of a tenant, on one side of them. Every call raises what the store raises."""

    def __init__(self, store: SqlStore, tenant: str, side: str) -> None:
        self._store = store
        self._who = {"tenant": tenant, "side": side}

    def closings(self) -> tuple[Closing, ...]:
        """The chain, from its first link on."""
        return tuple(
            Closing(**row | {"ledger_position": json.loads(row["ledger_position"])})
            for row in self._store.query(CLOSINGS, self._who)
        )

    def snapshot(self, closings: tuple[Closing, ...], until_us: int) -> Snapshot:
        """The ledger as it stands now, beside these closings."""
        rows = self._store.query(POSITION, self._who)
        position = {str(row["log_partition"]): int(row["last_offset"]) for row in rows}
        return Snapshot(closings, position, until_us)

    def entries(self, at: Snapshot) -> Iterator[dict[str, Any]]:
        """Where ledger and bills differ, as ``statement`` takes it, by generation, attempt and bucket."""
        return self._store.stream(ENTRIES, self._params(at))

    def owed(self, at: Snapshot) -> dict[str, Decimal]:
        """The ledger's sum minus that of all bills, by currency, as SQL has it."""
        rows = self._store.query(OWED, self._params(at))
        return {row["currency"]: Decimal(row["total"]) for row in rows}

    def lines(self, closing: Closing) -> Iterator[Item]:
        """What a closed bill says."""
        for row in self._store.stream(LINES, {**self._who, "closing": closing.closing}):
            kind, period, sign = Kind(row.pop("kind")), row.pop("period"), row.pop("sign")
            yield Item(kind, period, sign, row)

    def sums(self, closing: Closing) -> tuple[int, dict[str, Decimal]]:
        """How many lines a closed bill has, and their sum by currency, as SQL has them."""
        rows = self._store.query(SUMS, {**self._who, "closing": closing.closing})
        return sum(row["lines"] for row in rows), {row["currency"]: Decimal(row["total"]) for row in rows}

    def unreadable(self, from_us: int, most: int) -> list[str]:
        """Places and reasons of attempts and ledger lines that could not be read since then, and may be this tenant's."""
        topics = [ATTEMPTS_TOPIC.name, LEDGER_TOPIC.name]
        asked = {**self._who, "topics": topics, "from_us": from_us, "most": most}
        return [f"{row['place']} ({row['reason']})" for row in self._store.query(UNREADABLE, asked)]

    def keep(self, closing_id: str, period: str, items: Iterable[Item]) -> None:
        """Store the lines of a closing, which do not hold yet."""
        rows = (
            (
                *self._who.values(),
                closing_id,
                number,
                period,
                item.kind.value,
                item.period,
                item.sign,
                *[item.fields[name] for name in (*FIELDS, *BESIDE)],
            )
            for number, item in enumerate(items)
        )
        blocks = iter(lambda: list(islice(rows, BLOCK_LINES)), [])
        for number, block in enumerate(blocks):
            self._store.insert(BILLED_LINES, block, f"{closing_id}:{number}")

    def close(self, at: Snapshot, closing: Closing) -> bool:
        """Make the lines of a closing hold; False where another one became this link of the chain."""
        row = (
            *self._who.values(),
            *closing[:-1],
            json.dumps(at.position),
        )
        self._store.insert(
            CLOSED_PERIODS, [row], "close:" + json.dumps([*self._who.values(), closing.number])
        )
        return any(link.closing == closing.closing for link in self.closings())

    def _params(self, at: Snapshot) -> dict[str, Any]:
        return {
            **self._who,
            "partitions": [int(partition) for partition in at.position],
            "offsets": list(at.position.values()),
            "closings": [link.closing for link in at.closings],
            "until_us": at.until_us,
        }
