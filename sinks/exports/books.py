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
from sinks.exports.statement import Item, Kind
from sinks.store import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from sinks.store import SqlStore

BLOCK_LINES = 10_000
"""Lines of one insert: some MB."""
FIELDS = (
    "generation_id",
    "attempt",
    "bucket",
    "revision",
    "started",
    "key_id",
    "request_id",
    "provider",
    "model",
    "quantity",
    "unit_price",
    "amount",
    "currency",
    "price_hash",
    "policy_hash",
    "usage_source",
    "status",
    "flags",
    "content_hash",
)
"""What a bill keeps of a ledger line."""
_BESIDE = ("conflicts", "stands_quantity", "stands_amount")
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
        *_BESIDE,
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

_KEY = "PARTITION BY generation_id, attempt"
_HERE = f"""
SELECT
    *,
    place = 1 AND record_hash = first_record AS stands,
    anyIf(quantity, stands) OVER ({_KEY}, bucket, revision) AS stands_quantity,
    anyIf(amount, stands) OVER ({_KEY}, bucket, revision) AS stands_amount
FROM
(
    SELECT
        *,
        max(revision) OVER ({_KEY}) AS latest,
        argMin(record_hash, `offset`) OVER ({_KEY}, revision) AS first_record,
        row_number() OVER ({_KEY}, bucket, revision ORDER BY `offset` ASC) AS place,
        count() OVER ({_KEY}, bucket, revision) - 1 AS conflicts
    FROM ledger FINAL
    WHERE tenant = {{tenant:String}} AND side = {{side:String}}
        AND `offset` <= arrayElement({{offsets:Array(Int64)}}, indexOf({{partitions:Array(Int32)}}, `partition`))
        AND has({{partitions:Array(Int32)}}, `partition`)
)
WHERE revision = latest AND started < fromUnixTimestamp64Micro({{until_us:Int64}}, 'UTC')
"""  # noqa: S608 - our own names; the view ledger_current up to a position, and with what is set aside
_BILLED = """
SELECT * FROM billed_lines FINAL
WHERE tenant = {tenant:String} AND side = {side:String} AND has({closings:Array(String)}, closing)
    AND started < fromUnixTimestamp64Micro({until_us:Int64}, 'UTC')
"""
_GROUP = ("generation_id", "attempt", "bucket", "content_hash")
_COLUMNS = ", ".join(FIELDS)
_SAID = ", ".join(
    f"anyIf(u.{name}, NOT turned) AS {name}" for name in (*FIELDS, *_BESIDE) if name not in _GROUP
)
_ENTRIES = f"""
SELECT aside, {", ".join(_GROUP)}, sum(balance) AS owed, {_SAID}
FROM
(
    SELECT {_COLUMNS}, toUInt64(conflicts) AS conflicts, stands_quantity, stands_amount,
        NOT stands AS aside, 0 AS turned, 1 AS balance
    FROM ({_HERE})
    UNION ALL
    SELECT {_COLUMNS}, conflicts, stands_quantity, stands_amount,
        kind = 'quarantined' AS aside, sign < 0 AS turned, -sign AS balance
    FROM ({_BILLED})
) AS u
GROUP BY aside, {", ".join(_GROUP)}
HAVING owed != 0
ORDER BY toString(generation_id), attempt, bucket, aside, owed, content_hash
"""  # noqa: S608 - names of our own columns
_OWED = f"""
SELECT currency, sum(total) AS total
FROM
(
    SELECT currency, ifNull(sum(amount), 0) AS total FROM ({_HERE}) WHERE stands GROUP BY currency
    UNION ALL
    SELECT currency, -ifNull(sum(amount), 0) AS total FROM ({_BILLED}) WHERE kind != 'quarantined' GROUP BY currency
)
GROUP BY currency
"""  # noqa: S608
_POSITION = """
SELECT `partition` AS log_partition, max(`offset`) AS last_offset FROM ledger FINAL
WHERE tenant = {tenant:String} AND side = {side:String} GROUP BY log_partition ORDER BY log_partition
"""
_CLOSINGS = """
SELECT number, closing, period, zone, closed, lines, ledger_position FROM closed_periods FINAL
WHERE tenant = {tenant:String} AND side = {side:String} ORDER BY number, closed, closing
LIMIT 1 BY number
"""
_LINES = f"""
SELECT kind, period, sign, {_COLUMNS}, {", ".join(_BESIDE)} FROM billed_lines FINAL
WHERE tenant = {{tenant:String}} AND side = {{side:String}} AND closing = {{closing:String}} ORDER BY number
"""  # noqa: S608
_SUMS = """
SELECT currency, count() AS lines, ifNull(sum(amount), 0) AS total FROM billed_lines FINAL
WHERE tenant = {tenant:String} AND side = {side:String} AND closing = {closing:String} AND kind != 'quarantined'
GROUP BY currency
"""
_UNREADABLE = """
SELECT concat(topic, '/', toString(`partition`), '/', toString(`offset`)) AS place, reason FROM dead_letters FINAL
WHERE has({topics:Array(String)}, topic) AND failed >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND `key` NOT IN (SELECT toString(generation_id) FROM generations WHERE tenant != {tenant:String})
ORDER BY topic, `partition`, `offset`
LIMIT {most:Int32}
"""


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
            for row in self._store.query(_CLOSINGS, self._who)
        )

    def snapshot(self, closings: tuple[Closing, ...], until_us: int) -> Snapshot:
        """The ledger as it stands now, beside these closings."""
        rows = self._store.query(_POSITION, self._who)
        position = {str(row["log_partition"]): int(row["last_offset"]) for row in rows}
        return Snapshot(closings, position, until_us)

    def entries(self, at: Snapshot) -> Iterator[dict[str, Any]]:
        """Where ledger and bills differ, as ``statement`` takes it, by generation, attempt and bucket."""
        return self._store.stream(_ENTRIES, self._params(at))

    def owed(self, at: Snapshot) -> dict[str, Decimal]:
        """The ledger's sum minus that of all bills, by currency, as SQL has it."""
        rows = self._store.query(_OWED, self._params(at))
        return {row["currency"]: Decimal(row["total"]) for row in rows}

    def lines(self, closing: Closing) -> Iterator[Item]:
        """What a closed bill says."""
        for row in self._store.stream(_LINES, {**self._who, "closing": closing.closing}):
            kind, period, sign = Kind(row.pop("kind")), row.pop("period"), row.pop("sign")
            yield Item(kind, period, sign, row)

    def sums(self, closing: Closing) -> tuple[int, dict[str, Decimal]]:
        """How many lines a closed bill has, and their sum by currency, as SQL has them."""
        rows = self._store.query(_SUMS, {**self._who, "closing": closing.closing})
        return sum(row["lines"] for row in rows), {row["currency"]: Decimal(row["total"]) for row in rows}

    def unreadable(self, from_us: int, most: int) -> list[str]:
        """Places and reasons of attempts and ledger lines that could not be read since then, and may be this tenant's."""
        topics = [ATTEMPTS_TOPIC.name, LEDGER_TOPIC.name]
        asked = {**self._who, "topics": topics, "from_us": from_us, "most": most}
        return [f"{row['place']} ({row['reason']})" for row in self._store.query(_UNREADABLE, asked)]

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
                *[item.fields[name] for name in (*FIELDS, *_BESIDE)],
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
