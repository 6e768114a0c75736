"""Time to the first token, one request at a time: what the edge adds before it, two acknowledged records included.

Requests alternate (edge, bare proxy, edge, …); the time is that from the request on an open connection to the first chunk
with content, the provider's own 10 ms included on both sides. Before: `__main__`. After: `client`, `stack`.
"""

from collections.abc import Callable
from itertools import islice

from tests.bench.client import STAMP, chat_request, exchange, percentile
from tests.bench.results import Round, Row, row_of
from tests.bench.stack import BenchFailed, Stack, bench_stack

PAIRS = 60
PAIRS_QUICK = 10
WARM_UP_PAIRS = 10
ROUNDS = 3
TTFT_MS = 10
SIDES = {"edge": "edge-1", "bare_proxy": "bare_proxy"}


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row."""
    count = rounds or (1 if quick else ROUNDS)
    async with bench_stack("provider", "bare_proxy", "edge-1", edges=1) as stack:
        await _round(stack, WARM_UP_PAIRS)
        found = []
        for nth in range(count):
            tell(f"ttft: round {nth + 1} of {count}")
            found.append(await _round(stack, PAIRS_QUICK if quick else PAIRS))
    return [row_of("ttft", found)]


async def _round(stack: Stack, pairs: int) -> Round:
    took_ms: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(pairs):
        for side, process in SIDES.items():
            took_ms[side].append(await _ttft_ms(stack.ports[process], stack.key))
    ordered = {side: sorted(times_ms) for side, times_ms in took_ms.items()}
    figures = {
        side: {"ttft_p50_ms": percentile(times_ms, 0.5), "ttft_p99_ms": percentile(times_ms, 0.99)}
        for side, times_ms in ordered.items()
    }
    added = {f"added_{name}": value - figures["bare_proxy"][name] for name, value in figures["edge"].items()}
    return {"edge": added | figures["edge"], "bare_proxy": figures["bare_proxy"]}


async def _ttft_ms(port: int, key: str) -> float:
    asked = await exchange(port, chat_request(key, tokens=1, ttft_ms=TTFT_MS))
    await asked.closed
    asked.check()
    stamped = list(islice(asked.arrivals(STAMP), 2))  # the role's chunk, then the first with content
    if len(stamped) < 2:
        raise BenchFailed(f"no first token came: {asked.whole[-400:]!r}")
    return (stamped[1][1] - asked.sent_ns) / 1e6
