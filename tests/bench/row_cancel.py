"""From a cancel call to the provider's socket closed: soft and hard, on the generation's own edge and on the other.

One at a time, of a stream with a chunk every 20 ms; the call is on a new connection, as a user's is. The provider notes
when it sees its connection closed, by the clock that all processes of a machine share. It is asked for that when all is
over, and forgets what it told: a provider that is busy answering us would see a close late. The reference is a client of
the provider itself that closes its own socket. Before: `__main__`. After: `client`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import orjson

from tests.bench.client import GENERATION_ID, Exchange, chat_request, exchange, percentile, request_of
from tests.bench.results import Round, Row, row_of
from tests.bench.stack import BenchFailed, Stack, bench_stack

TIMES, TIMES_QUICK = 40, 3
ROUNDS = 3
EVENTS = 5
ENDLESS = 100_000
OWNER, OTHER = "edge-1", "edge-2"
LATE_S = 10.0
_POLL_S = 0.002


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row."""
    count = rounds or (1 if quick else ROUNDS)
    found = []
    async with bench_stack("provider", OWNER, OTHER, edges=2) as stack:
        await _round(stack, 1)  # the first of everything
        for nth in range(count):
            tell(f"cancel: round {nth + 1} of {count}")
            found.append(await _round(stack, TIMES_QUICK if quick else TIMES))
    return [row_of("cancel", found)]


async def _round(stack: Stack, times: int) -> Round:
    ways: dict[str, Callable[[str], Awaitable[float]]] = {
        "hard_same_edge": partial(_cancel, stack, OWNER, "hard"),
        "hard_other_edge": partial(_cancel, stack, OTHER, "hard"),
        "soft_same_edge": partial(_cancel, stack, OWNER, "soft"),
        "soft_other_edge": partial(_cancel, stack, OTHER, "soft"),
        "own_socket": partial(_close, stack),
    }
    took_ms: dict[str, list[float]] = {way: [] for way in ways}
    for nth in range(times):
        for way, ended in ways.items():
            async with asyncio.timeout(LATE_S):
                took_ms[way].append(await ended(f"{way}-{nth}-{time.monotonic_ns()}"))
    return {
        way: {"p50_ms": percentile(sorted(times_ms), 0.5), "p99_ms": percentile(sorted(times_ms), 0.99)}
        for way, times_ms in took_ms.items()
    }


async def _cancel(stack: Stack, edge: str, mode: str, tag: str) -> float:
    """Milliseconds from the call to the end of the provider's connection."""
    running = await _begun(stack, OWNER, tag)
    head = GENERATION_ID.search(running.whole)
    if head is None:
        raise BenchFailed(f"an answer without its id: {running.whole[:400]!r}")
    path = f"/v1/cancel/{head[1].decode()}"
    called = await exchange(stack.ports[edge], request_of("POST", path, stack.key, {"mode": mode}))
    await called.closed
    called.check()
    await running.closed
    return (await _closed_ns(stack, tag) - called.sent_ns) / 1e6


async def _close(stack: Stack, tag: str) -> float:
    """The same where the client closes the provider's connection itself."""
    running = await _begun(stack, "simulator", tag)
    closing_ns = time.monotonic_ns()
    running.cut()
    await running.closed
    return (await _closed_ns(stack, tag) - closing_ns) / 1e6


async def _begun(stack: Stack, where: str, tag: str) -> Exchange:
    """A stream that runs."""
    request = chat_request(stack.key, tokens=ENDLESS, interval_ms=20, ttft_ms=1, tag=tag)
    running = await exchange(stack.ports[where], request, EVENTS)
    await running.reached
    running.check()
    return running


async def _closed_ns(stack: Stack, tag: str) -> int:
    """When the provider saw its connection closed; asked until it has, and forgotten then."""
    while True:
        for one in orjson.loads(await _seen(stack, "GET")):
            if one["tag"] == tag and one["end"] == "aborted":
                await _seen(stack, "DELETE")
                return round(one["finished_s"] * 1e9)
        await asyncio.sleep(_POLL_S)


async def _seen(stack: Stack, method: str) -> bytes:
    """The body of what the provider says of the requests that it saw."""
    asked = await exchange(stack.ports["simulator"], request_of(method, "/_sim/requests", stack.key))
    await asked.closed
    return asked.whole.partition(b"\r\n\r\n")[2]
