"""Rows per second of the events sink on a backlog: the log read, decoded, made rows, inserted, committed.

The reference inserts the same rows, made before, in batches of the same size, with the vendor's client and nothing else:
what ClickHouse and its client take. Before: `__main__`. After: `backlog`, `progress`.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect

from compose.warehouse import query
from schemas.codec import Codec
from schemas.topics import EVENTS, sink_group
from sinks import rows as sink_rows
from sinks.intake import intake_of
from tests.bench import backlog
from tests.bench.progress import GroupWatch, ends, rate_of
from tests.bench.results import Row, row_of
from tests.bench.stack import BenchFailed, Stack, bench_stack
from tests.support.records import Raw
from tests.support.warehouse import fresh_database

RECORDS = 300_000
RECORDS_QUICK = 120_000
REFERENCE_ROWS = 120_000
BATCH_ROWS = 20_000
"""About what the sink's bound of 16 MiB makes of these records."""
ROUNDS = 3


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row."""
    count = rounds or (1 if quick else ROUNDS)
    records = RECORDS_QUICK if quick else RECORDS
    found = []
    async with bench_stack("clickhouse", edges=1) as stack:
        templates = await backlog.record_templates(stack)
        for nth in range(count):
            tell(f"sink: round {nth + 1} of {count}: writing {records} records")
            made = backlog.multiply(templates, records, seed=nth)
            await backlog.write(stack.kafka, made)
            tell(f"sink: round {nth + 1} of {count}: measuring")
            found.append({"sink": await _sink(stack), "bare_inserts": _bare_inserts(stack, made)})
    return [row_of("sink", found, records=records)]


async def _sink(stack: Stack) -> dict[str, float]:
    total = (await ends(stack.kafka, EVENTS.name))[EVENTS.name]
    async with (
        GroupWatch(stack.kafka, sink_group("events"), EVENTS.name, lambda commit: commit.offset) as watch,
        stack.running("sinks", awaited=False),
    ):
        samples = await watch.until(total, lambda: stack.cpu_s("sinks"))
    stored = query(stack.clickhouse, "SELECT count() AS stored FROM events FINAL")[0]["stored"]
    if stored != total:
        raise BenchFailed(f"{total} records were written, {stored} rows are stored")
    rate = rate_of(samples)
    return {"rows_per_s": rate["records_per_s"], "cpu_us_per_row": rate["cpu_us_per_record"]}


def _bare_inserts(stack: Stack, made: dict[int, list[backlog.Keyed]]) -> dict[str, float]:
    first, *batches = [list(zip(*batch, strict=True)) for batch in _batches(_rows(made))]
    inserted = sum(len(columns[0]) for columns in batches)
    url = stack.clickhouse.url
    with fresh_database(url) as store:
        database = store.query("SELECT currentDatabase() AS name")[0]["name"]
        parts = urlsplit(url)
        client = clickhouse_connect.get_client(host=parts.hostname, port=parts.port, database=database)
        try:
            insert = partial(
                client.insert, "events", column_names=sink_rows.EVENTS.columns, column_oriented=True
            )
            insert(first)  # not measured: it opens the connection and asks for the columns' types
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            for columns in batches:
                insert(columns)
            took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        finally:
            client.close()
    return {"rows_per_s": inserted / took_s, "cpu_us_per_row": cpu_s * 1e6 / inserted}


def _rows(made: dict[int, list[backlog.Keyed]]) -> list[Any]:
    intake = intake_of(sink_rows.EVENTS, Codec())
    flat = [
        Raw(EVENTS.name, partition, offset, record.key, record.value)
        for partition, records in made.items()
        for offset, record in enumerate(records)
    ]
    return [intake.row(raw) for raw in flat[:REFERENCE_ROWS]]


def _batches(rows: Sequence[Any]) -> list[Sequence[Any]]:
    return [rows[start : start + BATCH_ROWS] for start in range(0, len(rows), BATCH_ROWS)]
