"""What a streamed chunk costs at one edge, its log included: CPU of the edge and of the broker, latency to the client.

Both sides of a round take the same streams: the edge (publish, acknowledge, emit, on a real Kafka), then the bare proxy.
A figure with `added_` is the edge's minus the bare proxy's of the same round. `harness` is what provider and client took
of the shared cores meanwhile. Before: `__main__`. After: `client`, `stack`.
"""

from collections.abc import Callable

from tests.bench.client import Load, Streams, load, percentile
from tests.bench.results import Round, Row, row_of
from tests.bench.stack import Stack, bench_stack

STREAMS = (20, 100)
TOKENS = 300
TOKENS_QUICK = 50
WARM_UP_TOKENS = 150
"""Some 15,000 chunks: by then the broker's compiler is done with the hot path."""
ROUNDS = 3
PROCESSES = ("edge-1", "bare_proxy", "kafka", "provider")


async def measure(rounds: int | None, tell: Callable[[str], None], *, quick: bool) -> list[Row]:
    """One row for each number of streams."""
    count = rounds or (1 if quick else ROUNDS)
    tokens = TOKENS_QUICK if quick else TOKENS
    found: dict[int, list[Round]] = {streams: [] for streams in STREAMS}
    async with bench_stack("provider", "bare_proxy", "edge-1", edges=1) as stack:
        warm_up = Streams(max(STREAMS), TOKENS_QUICK if quick else WARM_UP_TOKENS)
        for name in ("edge-1", "bare_proxy"):
            await load(stack.ports[name], stack.key, warm_up)
        for nth in range(count):
            for streams in STREAMS:
                tell(f"edge: {streams} streams, round {nth + 1} of {count}")
                found[streams].append(await _round(stack, Streams(streams, tokens)))
    return [row_of("edge", each, streams=streams) for streams, each in found.items()]


async def _round(stack: Stack, streams: Streams) -> Round:
    edge, edge_cpu_us = await _side(stack, "edge-1", streams)
    bare, bare_cpu_us = await _side(stack, "bare_proxy", streams)
    edge_ms, bare_ms = _latencies(edge), _latencies(bare)
    added = {f"added_{name}": edge_ms[name] - bare_ms[name] for name in edge_ms}
    return {
        "edge": {"cpu_us_per_chunk": edge_cpu_us["edge-1"], **added, **edge_ms},
        "bare_proxy": {"cpu_us_per_chunk": bare_cpu_us["bare_proxy"], **bare_ms},
        "broker": {"cpu_us_per_chunk": edge_cpu_us["kafka"]},
        "harness": {
            "provider_cpu_us_per_chunk": edge_cpu_us["provider"],
            "client_cpu_us_per_chunk": edge.client_cpu_s * 1e6 / edge.chunks,
        },
    }


async def _side(stack: Stack, name: str, streams: Streams) -> tuple[Load, dict[str, float]]:
    """The load on one of both, and what each process took of the CPU, microseconds per chunk."""
    before = {process: stack.cpu_s(process) for process in PROCESSES}
    came = await load(stack.ports[name], stack.key, streams)
    return came, {
        process: (stack.cpu_s(process) - cpu_s) * 1e6 / came.chunks for process, cpu_s in before.items()
    }


def _latencies(came: Load) -> dict[str, float]:
    return {
        "p50_ms": percentile(came.latencies_ms, 0.5),
        "p99_ms": percentile(came.latencies_ms, 0.99),
    }
