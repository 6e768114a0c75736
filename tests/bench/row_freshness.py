"""From a terminal to its generation's row in ClickHouse, with the whole stack under the load of 20 streams.

It begins at the terminal's own wall clock (`end_wall`: written just before it is published) and ends when a query that
shows the row has been answered, so publishing and half a poll are in it. The poll's own cost stands beside it.
Before: `__main__`. After: `client`, `stack`.
"""

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from tests.bench.client import chat_request, exchange, percentile
from tests.bench.results import Round, Row, row_of
from tests.bench.stack import BenchFailed, Stack, bench_stack

STREAMS = 20
TOKENS = 100
INTERVAL_MS = 20
"""Twenty clients, each with one answer of two seconds after the other, spread evenly over these two seconds."""
REPEATS = 5
REPEATS_QUICK = 1
ROUNDS = 3
POLL_S = 0.02
LATE_S = 30.0
COUNT = "SELECT count() FROM generations"
ROWS = "SELECT DISTINCT toString(generation_id), toUnixTimestamp64Micro(assumeNotNull(end_wall)) FROM generations"


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row."""
    count = rounds or (1 if quick else ROUNDS)
    parts = ("clickhouse", "provider", "sinks", "pipeline", "edge-1")
    async with bench_stack(*parts, edges=1) as stack:
        address = urlsplit(stack.clickhouse.url)
        client = clickhouse_connect.get_client(host=address.hostname, port=address.port)
        try:
            watch = _Watch(client)
            await _round(stack, watch, 1)  # the first of everything
            found = []
            for nth in range(count):
                tell(f"freshness: round {nth + 1} of {count}")
                found.append(await _round(stack, watch, REPEATS_QUICK if quick else REPEATS))
        finally:
            client.close()
    return [row_of("freshness", found, streams=STREAMS)]


class _Watch:
    """Sees rows come."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._count = 0
        self._seen: set[str] = set()
        self.fresh_ms: list[float] = []
        self.polls_ms: list[float] = []

    def begin(self) -> None:
        """Forget the times of the round before; rows seen stay seen."""
        self.fresh_ms, self.polls_ms = [], []

    def poll(self) -> None:
        """Ask for the number of rows; where it grew, which ones are new and how old their terminals are."""
        began_s = time.perf_counter()
        count = self._client.query(COUNT).result_rows[0][0]
        self.polls_ms.append((time.perf_counter() - began_s) * 1000)
        if count == self._count:
            return
        rows = self._client.query(ROWS).result_rows
        now_us = time.time_ns() // 1000
        self._count = count
        for generation_id, ended_us in rows:
            if generation_id not in self._seen:
                self._seen.add(generation_id)
                self.fresh_ms.append((now_us - ended_us) / 1000)


async def _round(stack: Stack, watch: _Watch, repeats: int) -> Round:
    watch.begin()
    expected = repeats * STREAMS
    loading = asyncio.create_task(_load(stack, repeats))
    deadline_s: float | None = None
    while len(watch.fresh_ms) < expected:
        await asyncio.to_thread(watch.poll)
        if loading.done():
            loading.result()
            deadline_s = deadline_s or time.monotonic() + LATE_S
            if time.monotonic() > deadline_s:
                raise BenchFailed(
                    f"{len(watch.fresh_ms)} of {expected} generations have a row {LATE_S:.0f} s after"
                )
        await asyncio.sleep(POLL_S)
    await loading
    fresh_ms, polls_ms = sorted(watch.fresh_ms), sorted(watch.polls_ms)
    return {
        "freshness": {
            "p50_ms": percentile(fresh_ms, 0.5),
            "p99_ms": percentile(fresh_ms, 0.99),
            "max_ms": fresh_ms[-1],
        },
        "poll": {
            "interval_ms": POLL_S * 1000,
            "p50_ms": percentile(polls_ms, 0.5),
            "p99_ms": percentile(polls_ms, 0.99),
        },
    }


async def _load(stack: Stack, repeats: int) -> None:
    request = chat_request(stack.key, tokens=TOKENS, interval_ms=INTERVAL_MS, ttft_ms=10)

    async def client(nth: int) -> None:
        await asyncio.sleep(TOKENS * INTERVAL_MS / 1000 * nth / STREAMS)
        for _ in range(repeats):
            answer = await exchange(stack.ports["edge-1"], request)
            await answer.closed
            answer.check()

    await asyncio.gather(*(client(nth) for nth in range(STREAMS)))
