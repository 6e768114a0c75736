"""What the edge asks of an archive, asked of the one in memory and of ClickHouse, over the rows that a sink makes."""

import time
from decimal import Decimal

import pytest

import edge.reading.archive
from edge.reading.archive import Archive, ArchiveAway, Sum
from schemas.events import Kind
from schemas.records import GenerationRecord, Side
from schemas.settings import ClickHouse
from sinks import derived, rows
from sinks.clickhouse import ClickHouseStore
from tests.support.archive import PAGE_ROWS, MemoryArchive, rows_of
from tests.support.edge import Client, Writer, identity_of, shown, turns
from tests.support.records import delta, generation_id, ledger
from tests.support.warehouse import empty_database, fresh_database

NOW_US = time.time_ns() // 1000
"""The table has a time to live, so these generations are of today."""
STORED = tuple(rows.EVENTS.columns)


class Filled:
    """An archive, and how a sink fills it."""

    def __init__(self, archive, insert):
        self.archive = archive
        self._insert = insert
        self._blocks = 0

    def store(self, log, *, keep=bool):
        """Store the rows of a log in memory, some of them twice."""
        for block in (rows_of(log), rows_of(log)[3:]):
            self._blocks += 1
            self._insert([row for row in block if keep(row)], f"block {self._blocks}")


@pytest.fixture(params=["memory", pytest.param("clickhouse", marks=pytest.mark.services)])
async def filled(request, monkeypatch):
    """Give an empty archive with small pages."""
    if request.param == "memory":
        memory = MemoryArchive()
        yield Filled(memory, lambda block, _: memory.rows.extend(block))
        return
    monkeypatch.setattr(edge.reading.archive, "PAGE_ROWS", PAGE_ROWS)
    with empty_database(request.getfixturevalue("clickhouse")) as store:
        database = store.query("SELECT currentDatabase() AS name")[0]["name"]
        archive = Archive(ClickHouse(url=request.getfixturevalue("clickhouse"), database=database))

        def insert(block, token):
            store.insert(rows.EVENTS, [tuple(row[name] for name in STORED) for row in block], token)

        filled = Filled(archive, insert)
        filled.database = store
        yield filled
        await archive.close()


async def written(number=0, tenant="acme", log=None, texts=9):
    """Give the writer of a generation of today with trace records between its events."""
    writer = Writer(log=log, identity=identity_of(number, tenant=tenant, at_us=NOW_US))
    writer.start()
    for text in range(texts):
        writer.text(f"{text} – é\n\x00'\\")
        if text % 3 == 0:
            writer.recorder.trace(Kind.HEARTBEAT)
    writer.end()
    await turns()
    return writer


async def read(archive, found, from_seq=None):
    """Read all pages; what the wire is made of."""
    after, got = -1, []
    while True:
        events, reached = await archive.page(found, after, from_seq)
        got += events
        if reached == after:
            return got
        after = reached


async def test_every_record_comes_back_in_order(filled):
    """All of a generation's records, across pages, whatever was stored twice, and nobody else's."""
    writer = await written()
    await written(1, log=writer.log)
    filled.store(writer.log)
    found = await filled.archive.find("acme", writer.generation.id)
    got = await read(filled.archive, found)
    assert [d.event for d in first_of_each(got)] == writer.logged()
    assert (found.key_id, found.dialect, found.partition) == ("key-1", "openai.chat", writer.partition)
    assert (found.first_seq, found.ended, found.erased, found.readable) == (0, True, False, True)
    assert found.last_offset == max(d.offset for d in got)


def first_of_each(got):
    """Give what was got without copies, which the reader's rule would skip."""
    return list({d.offset: d for d in got}.values())


@pytest.mark.parametrize("from_seq", [0, 3, 10, 40])
async def test_numbered_events_from_a_seq_on(filled, from_seq):
    """Exactly those a follower behind a cursor wants, under the places that the log gave them; the terminal always."""
    writer = await written()
    filled.store(writer.log)
    found = await filled.archive.find("acme", writer.generation.id)
    got = first_of_each(await read(filled.archive, found, from_seq))
    live = (await Client(writer.follower(local=False)).done()).got
    wanted = [shown(d) for d in live if d.event.seq >= from_seq or d.event.is_terminal]
    assert [shown(d) for d in got] == wanted


async def test_what_it_does_not_hold(filled):
    """Unknown, another tenant's, another day's: none, without a difference."""
    writer = await written()
    filled.store(writer.log)
    assert await filled.archive.find("other", writer.generation.id) is None
    assert await filled.archive.find("acme", identity_of(99, at_us=NOW_US).generation_id) is None
    assert await filled.archive.find("acme' OR 1=1 --", writer.generation.id) is None


async def test_what_it_says_of_a_part(filled):
    """Without its beginning, without its end, without its text, forgotten: each is said."""
    writer = await written()
    last = max(row["offset"] for row in rows_of(writer.log))
    filled.store(writer.log, keep=lambda row: 3 < row["offset"] < last)
    found = await filled.archive.find("acme", writer.generation.id)
    assert (found.first_seq, found.ended) == (3, False)
    mark = rows_of(writer.log)[0] | {"kind": "forgotten", "seq": None, "after_seq": 9, "offset": last + 9}
    filled._insert([mark], "the mark")
    assert (await filled.archive.find("acme", writer.generation.id)).erased
    other = await written(1)
    filled._insert([row | {"raw": None} for row in rows_of(other.log)], "without raw")
    assert not (await filled.archive.find("acme", other.generation.id)).readable


@pytest.mark.services
def test_a_question_reads_one_generation_of_one_day(clickhouse):
    """The engine goes to the day by the id's time and to the place by the key: other days and tenants are not read."""
    with fresh_database(clickhouse) as store:
        for day in range(3):
            at_us = NOW_US - day * 86_400_000_000
            block = [
                rows.event_row(delta(generation_id(n, at_us), seq, "x", tenant=f"t{n % 9}"), n % 32, seq)
                for n in range(300)
                for seq in range(40)
            ]
            store.insert(rows.EVENTS, block, f"day {day}")
        store.merge(rows.EVENTS)
        asked = edge.reading.archive._one("t3", generation_id(3, NOW_US))
        for sql, more in (
            (edge.reading.archive._FIND, {}),
            (edge.reading.archive._PAGE_OF_ALL, {"after": -1, "rows": 9}),
        ):
            plan = [next(iter(r.values())) for r in store.query(f"EXPLAIN indexes = 1 {sql}", asked | more)]
            parts = [line.split()[-1] for line in plan if "Parts: 1/" in line]
            granules = [line.split()[-1] for line in plan if "Granules:" in line and "/" in line]
            assert "1/3" in parts, plan
            assert granules[-1].startswith("1/"), plan


@pytest.mark.services
async def test_the_answers_name_finds_its_generation(clickhouse):
    """By the provider's id within the tenant; the youngest of several, nothing for another tenant's."""
    with empty_database(clickhouse) as store:
        ids = [identity_of(n, at_us=NOW_US + n * 1000).generation_id for n in range(3)]
        records = [
            GenerationRecord(
                tenant="acme",
                generation_id=i,
                key_id="k",
                revision=1,
                status="complete",
                dialect="openai.responses",
                edge_id="e",
                terminal="message_end",
                terminal_seq=1,
                upstream_id="resp_1" if i != ids[2] else "resp_2",
            )
            for i in ids
        ]
        block = [derived.generation_row(record, 0, n) for n, record in enumerate(records)]
        store.insert(derived.GENERATIONS, block, "a")
        database = store.query("SELECT currentDatabase() AS name")[0]["name"]
        archive = Archive(ClickHouse(url=clickhouse, database=database))
        assert await archive.generation_named("acme", "resp_1") == ids[1]
        assert await archive.generation_named("acme", "resp_2") == ids[2]
        assert await archive.generation_named("acme", "resp_3") is None
        assert await archive.generation_named("other", "resp_1") is None
        await archive.close()


@pytest.mark.services
async def test_the_bill_of_a_generation(clickhouse):
    """The sums are exact, of the lines that stand, one a side and currency; another tenant's, and an unknown one's, are none."""
    mine, other = (generation_id(n, NOW_US) for n in (1, 2))
    cost = {"side": Side.PROVIDER_COST, "started_us": NOW_US}
    lines = [
        ledger(mine, "input", amount="0.000000000000000001", **cost),
        ledger(mine, "output", amount="0.1", **cost),
        ledger(mine, "tool_call", amount=None, **cost),
        ledger(mine, "output", amount="7", revision=0, **cost | {"side": Side.CUSTOMER_CHARGE}),
        ledger(mine, "output", amount="0.2", **cost | {"side": Side.CUSTOMER_CHARGE}),
        ledger(other, "output", amount="9", **cost),
    ]
    with empty_database(clickhouse) as store:
        for token in ("once", "twice"):
            block = [derived.ledger_row(line, 0, n) for n, line in enumerate(lines)]
            store.insert(derived.LEDGER, block, token)
        database = store.query("SELECT currentDatabase() AS name")[0]["name"]
        archive = Archive(ClickHouse(url=clickhouse, database=database))
        assert await archive.bill("acme", mine) == [
            Sum("customer_charge", "USD", Decimal("0.2"), 0),
            Sum("provider_cost", "USD", Decimal("0.100000000000000001"), 1),
        ]
        assert await archive.bill("globex", mine) == []
        assert await archive.bill("acme", generation_id(3, NOW_US)) == []
        await archive.close()


@pytest.mark.services
async def test_nobody_answering_is_no_empty_archive(clickhouse):
    """A dead port, a missing table: away, and found again as soon as it answers."""
    dead = Archive(ClickHouse(url="http://127.0.0.1:1"))
    with pytest.raises(ArchiveAway):
        await dead.find("acme", identity_of(0).generation_id)
    await dead.close()
    with fresh_database(clickhouse, migrated=False) as store:
        database = store.query("SELECT currentDatabase() AS name")[0]["name"]
        archive = Archive(ClickHouse(url=clickhouse, database=database))
        with pytest.raises(ArchiveAway):
            await archive.find("acme", identity_of(0).generation_id)
        from sinks import migrate

        migrate.apply(ClickHouseStore(clickhouse, database=database))
        assert await archive.find("acme", identity_of(0).generation_id) is None
        await archive.close()
