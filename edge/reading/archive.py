"""The archive: what ClickHouse holds of a generation, as the events that the log gave. The only file here that knows it.

Every question is about one generation of one tenant
and of one day, which is the table's key and partition: what else is stored there is not read. Copies of a row are left to
the reader's rule, which skips them.

Invariant: an archive that does not answer raises ``ArchiveAway`` and is never taken for one that holds nothing.
Before: ``log`` has passed its retention; ``archive_rows`` reads a row. After: ``past`` reads it in pages.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import clickhouse_connect
import structlog
from clickhouse_connect.driver import exceptions as vendor
from clickhouse_connect.driver.asyncclient import AsyncClient

from edge.generation import Delivered
from edge.log import LogAway
from edge.reading.archive_rows import COLUMNS, Found, event_of
from schemas.events import CONTENT_KINDS, TERMINALS
from schemas.ids import is_uuid7, start_ms
from schemas.settings import ClickHouse

log = structlog.get_logger()
CONNECT_S = 2
ANSWER_S = 10
"""A point question takes some ten milliseconds: a client is better told to come back than kept waiting for longer."""
SILENT_S = 2
"""So long nobody waits again for an archive that was waited for in vain."""
QUESTIONS_MAX = 8
"""At once, the rest wait: the warehouse has other work, and one replay asks a page at a time."""
PAGE_ROWS = 500
"""What is decoded in one go; a page of ordinary events is some hundred kilobytes."""


class ArchiveAway(LogAway):
    """ClickHouse does not answer at the moment: what it holds is not known, so nothing is said of it."""


_FORMATS = {"UUID": "string", "DateTime64": "int"}
_OF_ONE = (
    "tenant = {tenant:String} AND generation_id = {id:UUID} "
    "AND start = fromUnixTimestamp64Micro({start_us:Int64}, 'UTC')"
)
_TERMINALS = ", ".join(f"'{kind.value}'" for kind in sorted(TERMINALS))
_CONTENT = ", ".join(f"'{kind.value}'" for kind in sorted(CONTENT_KINDS))
_FIND = f"""
SELECT any(key_id), any(dialect), any(`partition`), min(seq), max(`offset`), argMax(wall, `offset`),
    countIf(kind IN ({_TERMINALS})), countIf(kind = 'forgotten'), countIf(kind IN ({_CONTENT}) AND raw IS NULL), count()
FROM events WHERE {_OF_ONE}
"""  # noqa: S608 - of our own words
_PAGE = f"""
SELECT {COLUMNS} FROM events
WHERE {_OF_ONE} AND `offset` > {{after:Int64}} AND (seq >= {{from_seq:Int64}} OR kind IN ({_TERMINALS}, 'forgotten'))
ORDER BY `partition`, `offset` LIMIT {{rows:UInt32}}
"""  # noqa: S608 - of our own words
_PAGE_OF_ALL = f"""
SELECT {COLUMNS} FROM events WHERE {_OF_ONE} AND `offset` > {{after:Int64}}
ORDER BY `partition`, `offset` LIMIT {{rows:UInt32}}
"""  # noqa: S608 - of our own words
_NAMED = """
SELECT toString(generation_id) FROM generations
WHERE tenant = {tenant:String} AND upstream_id = {upstream_id:String} ORDER BY start DESC LIMIT 1
"""
_BILL = """
SELECT side, currency, sum(amount) AS known, countIf(amount IS NULL) FROM ledger_current
WHERE tenant = {tenant:String} AND generation_id = {id:UUID} GROUP BY side, currency ORDER BY side, currency
"""


class Sum(NamedTuple):
    """The ledger's lines of a generation on one side of the books, in one currency.

    ``amount`` is the sum of those that have one, None where none has; ``without_amount`` counts the others, which are
    unpriced or unmeasured, and not free.
    """

    side: str
    currency: str
    amount: Decimal | None
    without_amount: int


class Archive:
    """ClickHouse, asked one small question after the other. It connects at the first one, and again after an outage."""

    def __init__(self, settings: ClickHouse) -> None:
        self._settings = settings
        self._client: AsyncClient | None = None
        self._silent_until_s = 0.0
        self._connecting = asyncio.Lock()
        self._places = asyncio.Semaphore(QUESTIONS_MAX)

    async def find(self, tenant: str, generation_id: str) -> Found | None:
        """What is held of a tenant's generation; None for none, and for another tenant's. Raises ArchiveAway."""
        ((*row, rows),) = await self._ask(_FIND, _one(tenant, generation_id))
        if not rows:
            return None
        key_id, dialect, partition, first_seq, last_offset, last_wall_us, terminals, forgotten, textless = row
        return Found(
            generation_id,
            tenant,
            key_id,
            dialect,
            partition,
            first_seq,
            last_offset,
            last_wall_us,
            ended=bool(terminals),
            erased=bool(forgotten),
            readable=not textless,
        )

    async def page(
        self, found: Found, after_offset: int, from_seq: int | None
    ) -> tuple[list[Delivered], int]:
        """The records behind an offset, in the log's order, and the offset to go on behind; none at the end.

        Args:
            found: whose.
            after_offset: the offset that the page before gave, -1 at first.
            from_seq: numbered records from this seq on, terminals in any case; None: all records.

        Raises ArchiveAway.
        """
        asked = _one(found.tenant, found.generation_id) | {"after": after_offset, "rows": PAGE_ROWS}
        if from_seq is None:
            rows = await self._ask(_PAGE_OF_ALL, asked)
        else:
            rows = await self._ask(_PAGE, asked | {"from_seq": from_seq})
        events = [event_of(found, row) for row in rows]
        return [event for event in events if event is not None], rows[-1][1] if rows else after_offset

    async def generation_named(self, tenant: str, upstream_id: str) -> str | None:
        """The tenant's generation whose answer has a provider's id, the youngest of several. Raises ArchiveAway."""
        rows = await self._ask(_NAMED, {"tenant": tenant, "upstream_id": upstream_id})
        return rows[0][0] if rows and is_uuid7(rows[0][0]) else None

    async def bill(self, tenant: str, generation_id: str) -> list[Sum]:
        """What a tenant's generation cost and is charged, none before the ledger has it. Raises ArchiveAway."""
        return [Sum(*row) for row in await self._ask(_BILL, _one(tenant, generation_id))]

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _ask(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        began_s = asyncio.get_running_loop().time()
        self._check_heard()
        try:
            async with self._place(), _answering():
                client = await self._connected()
                answer = await client.query(sql, dict(params), query_formats=_FORMATS)
        except ArchiveAway:
            now_s = asyncio.get_running_loop().time()
            if (
                now_s - began_s >= CONNECT_S
            ):  # silent, not refusing: nobody else is kept waiting for it meanwhile
                self._silent_until_s = now_s + SILENT_S
            raise
        return [tuple(row) for row in answer.result_rows]

    def _check_heard(self) -> None:
        if asyncio.get_running_loop().time() < self._silent_until_s:
            raise ArchiveAway("the archive does not answer at the moment")

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._places.acquire()
        except TimeoutError as error:
            raise ArchiveAway("too many questions wait for the archive") from error
        try:
            yield
        finally:
            self._places.release()

    async def _connected(self) -> AsyncClient:
        async with self._connecting:
            self._check_heard()  # whoever waited here learns it from whoever went before
            if self._client is None:
                parts = urlsplit(self._settings.url)
                self._client = await clickhouse_connect.get_async_client(
                    interface=parts.scheme,
                    host=parts.hostname,
                    port=parts.port,
                    username=self._settings.user,
                    password=self._settings.password.get_secret_value(),
                    database=self._settings.database,
                    autogenerate_session_id=False,
                    connect_timeout=CONNECT_S,
                    send_receive_timeout=ANSWER_S,
                    query_retries=0,
                )
            return self._client


@asynccontextmanager
async def _answering() -> AsyncIterator[None]:
    """Whatever keeps it from answering is no answer."""
    try:
        yield
    except (vendor.Error, OSError, TimeoutError) as error:
        log.warning("the archive does not answer", error=str(error).split("\n", 1)[0][:300])
        raise ArchiveAway("the archive does not answer at the moment") from error


def _one(tenant: str, generation_id: str) -> dict[str, Any]:
    return {"tenant": tenant, "id": generation_id, "start_us": start_ms(generation_id) * 1000}
