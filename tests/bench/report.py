"""Results as text: a table for the terminal, and `docs/benchmarks.md`, which is made from `docs/benchmarks.json` alone.

A unit test makes the document again and compares, so that nobody edits a figure. Pure. Before: `results`. After:
`__main__` prints and writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.bench.results import Row

Results = Mapping[str, Any]
"""`machine` (None: never measured) and `rows`."""


class Figure(NamedTuple):
    """One line of the table: a figure of a row, what stands beside it, and what is to be reached."""

    what: str
    bench: str
    who: str
    name: str
    reference: tuple[str, str, str] | None = None  # how it is called, who, which figure
    reach: str = ""
    streams: int | None = None


def _edge(streams: int, added_p50: str, added_p99: str) -> tuple[Figure, ...]:
    def beside(name: str) -> tuple[str, str, str]:
        return ("bare proxy", "bare_proxy", name)

    cpu = "cpu_us_per_chunk"
    return (
        Figure(f"edge: CPU per chunk, log included, {streams} streams", "edge", "edge", cpu, beside(cpu),
               "≤ 100 µs" if streams == 100 else "", streams),
        Figure(f"edge: added latency p50, {streams} streams", "edge", "edge", "added_p50_ms", beside("p50_ms"),
               added_p50, streams),
        Figure(f"edge: added latency p99, {streams} streams", "edge", "edge", "added_p99_ms", beside("p99_ms"),
               added_p99, streams),
        Figure(f"broker: CPU per chunk, {streams} streams", "edge", "broker", cpu, None, "", streams),
    )  # fmt: skip


def _cancel(mode: str, where: str, reach: str = "") -> tuple[Figure, ...]:
    on = "its own" if where == "same" else "another"
    return tuple(
        Figure(
            f"{mode} cancel on {on} edge → provider's socket closed, {share}",
            "cancel",
            f"{mode}_{where}_edge",
            f"{share}_ms",
            ("a client's own socket", "own_socket", f"{share}_ms"),
            reach,
        )
        for share in ("p50", "p99")
    )


def _week(what: str, name: str, reach: str = "") -> tuple[Figure, ...]:
    return tuple(
        Figure(f"week: {what}, {called}", "week", way, name, reference, reach)
        for way, called, reference in (
            ("hedge", "hedged after 3 s", ("not hedged", "no_hedge", name)),
            ("hedge_learned", "hedged at the learned p95", ("not hedged, time-out of 10 s", "no_hedge_10_s", name)),
        )
    )  # fmt: skip


def _peers(what: str, name: str) -> tuple[Figure, ...]:
    return tuple(
        Figure(f"peers: {what}, {side}", "peers", who, name)
        for side, who in (
            ("the edge", "edge"),
            ("another edge", "other_edge"),
            ("Durable Streams (Node)", "durable_streams"),
            ("fastapi-resumable-stream (Redis)", "resumable_stream"),
        )
    )


_CONSUMER = "consumer per replay"
FIGURES = (
    *_edge(20, "≤ 2.5 ms", "≤ 8 ms"),
    *_edge(100, "≤ 4 ms", "≤ 15 ms"),
    Figure("edge: added time to first token p50", "ttft", "edge", "added_ttft_p50_ms",
           ("bare proxy, whole", "bare_proxy", "ttft_p50_ms"), "≤ 5 ms"),
    Figure("edge: added time to first token p99", "ttft", "edge", "added_ttft_p99_ms",
           ("bare proxy, whole", "bare_proxy", "ttft_p99_ms")),
    Figure("fold: records per second of a worker", "fold", "fold", "records_per_s",
           ("no-op Faust agent", "noop_faust", "records_per_s"), "≥ 30,000"),
    Figure("fold: CPU per record", "fold", "fold", "cpu_us_per_record",
           ("no-op Faust agent", "noop_faust", "cpu_us_per_record")),
    Figure("sink: rows per second of the events table", "sink", "sink", "rows_per_s",
           ("bare inserts", "bare_inserts", "rows_per_s"), "≥ 100,000"),
    Figure("sink: CPU per row", "sink", "sink", "cpu_us_per_row",
           ("bare inserts", "bare_inserts", "cpu_us_per_row")),
    Figure("freshness p50: terminal → row", "freshness", "freshness", "p50_ms",
           ("the poll itself", "poll", "p50_ms")),
    Figure("freshness p99: terminal → row", "freshness", "freshness", "p99_ms",
           ("the poll itself", "poll", "p99_ms"), "≤ 2,000 ms"),
    Figure("resume on the same edge: first event p50", "resume", "same_edge", "first_p50_ms",
           (_CONSUMER, "consumer_per_replay", "first_p50_ms"), "≤ 5 ms"),
    Figure("resume on the same edge: 1000th event p50", "resume", "same_edge", "last_p50_ms",
           (_CONSUMER, "consumer_per_replay", "last_p50_ms")),
    Figure("resume on another edge: first event p50", "resume", "other_edge", "first_p50_ms",
           (_CONSUMER, "consumer_per_replay", "first_p50_ms"), "≤ 15 ms"),
    Figure("resume on another edge: 1000th event p50", "resume", "other_edge", "last_p50_ms",
           (_CONSUMER, "consumer_per_replay", "last_p50_ms")),
    Figure("resume after the end: first event p50", "resume", "after_end", "first_p50_ms",
           (_CONSUMER, "consumer_per_replay", "first_p50_ms"), "≤ 15 ms"),
    Figure("resume after the end: 1000th event p50", "resume", "after_end", "last_p50_ms",
           (_CONSUMER, "consumer_per_replay", "last_p50_ms")),
    Figure("resume among 1 M records of its partition: first event p50", "crowded", "crowded", "first_p50_ms",
           ("in an empty partition", "alone", "first_p50_ms"), "the same"),
    Figure("resume among 1 M records of its partition: 1000th event p50", "crowded", "crowded", "last_p50_ms",
           ("in an empty partition", "alone", "last_p50_ms"), "the same"),
    *_cancel("hard", "same", "≤ 10 ms"),
    *_cancel("hard", "other"),
    *_cancel("soft", "same", "≤ 200 ms"),
    *_cancel("soft", "other"),
    *_week("TTFT p50", "ttft_p50_ms"),
    *_week("TTFT p99", "ttft_p99_ms", "less than half"),
    *_week("extra attempts", "extra_attempts_percent"),
    *_week("extra provider cost", "extra_cost_percent", "< 5 %"),
    *_week("extra cost if a provider says all to nobody", "extra_cost_unstopped_percent", "< 5 %"),
    *(
        Figure(f"storm: extra load in ten minutes of {what}", "week", f"storm_of_{what}", "extra_load_percent",
               ("calls made of those asked", f"storm_of_{what}", "calls_percent"), "< 10 %")
        for what in ("errors", "silence")
    ),
    *_peers("first event again p50", "first_p50_ms"),
    *_peers("first event again p99", "first_p99_ms"),
    *_peers("1000th event again p50", "last_p50_ms"),
    *_peers("1000th event again p99", "last_p99_ms"),
    *_peers("storm of 200, 1000th event p50", "storm_last_p50_ms"),
    *_peers("storm of 200, 1000th event p99", "storm_last_p99_ms"),
    *_peers("storm of 200, events per second", "storm_events_per_s"),
)  # fmt: skip

HEADER = ("what", "median (lowest–highest round)", "reference in the same run", "to reach")

_TITLE = """\
# Benchmarks

`make bench ARGS=--write-docs` measures all of it, in less than ten minutes, and writes this file and
`docs/benchmarks.json` beside it; a test holds them to one another. `make bench ARGS="NAME --json"` measures one row:
`edge`, `ttft`, `fold`, `sink`, `freshness`, `resume`, `crowded`, `cancel`, `week` or `peers`.
`peers` installs two other servers, so it is measured by its name, or with `--peers` beside all others.
"""

_METHOD = """\
## How it is measured

Everything runs on one machine, each in a process of its own: a real Kafka of one node, the scripted provider, the edge,
the load client, and where a row needs them the pipeline worker, the sinks and ClickHouse, started with the commands and
the defaults of `tokentrail up`. Each figure has its reference in the same run; rounds alternate (ours, reference, ours,
reference). A figure is the median of its rounds; in brackets are the lowest and the highest round.

On two shared cores the latencies are mostly a process waiting for a CPU: provider, edge, broker and client are all awake
for each chunk. So they say little in absolute terms; what counts is the difference to the bare proxy of the same round,
and the CPU per chunk.

- **edge**: 20 and 100 streams, begun within a second, with a chunk every 20 ms through one edge worker. The provider
  stamps each chunk with the clock that all processes of a machine share, the client notes its arrival and reads the
  stamps when all is over. CPU is user and system time of the process from /proc over the chunks, the opening and the
  end of the streams included. The bare proxy (`tests/bench/bare_proxy.py`) has the same route and the same server and
  passes bytes on: no log, no ids.
- **ttft**: one request at a time, the two sides in turn, from the request on an open connection to the first chunk with
  content. Before it the edge has two records acknowledged by Kafka.
- **fold**: a backlog of records that a real edge wrote, multiplied under new ids, folded by one real pipeline worker,
  its rows acknowledged and counted, billing of the attempts included; the slope between its first and its last commit.
  The reference, a Faust agent, reads the same topic and does nothing, not even decode.
- **sink**: the same kind of backlog into ClickHouse by the real sinks, every row counted afterwards; the slope between
  commits. The reference inserts rows that were made before, in batches of the same size, with the vendor's client alone.
- **freshness**: the whole stack under 20 streams; from the terminal's wall clock, taken just before it is published, to
  the answer of a query that shows the generation's row. The query is repeated every 20 ms; what it takes itself stands
  beside it.
- **resume**: 1000 events behind the cursor of an answer's first event, one resume at a time: of a running generation on
  its own edge and on another, and of an ended one. The reference is a new Kafka consumer that seeks to the cursor's place
  and filters by key, without rendering anything.
- **crowded**: one answer's records under new ids, so that no edge has seen them: some lie in the middle of a partition
  with 1 M small records of 500 other generations, written before and behind them, some in a partition that holds nothing
  else. 1000 events behind the cursor of the first one, one resume at a time, the two in turn; each copy is asked for once.
- **cancel**: one at a time, of a stream with a chunk every 20 ms; from the sending of the call, on a new connection, to the
  moment at which the provider sees its own connection closed. A soft cancel waits for the read in progress. The reference
  is a client of the provider that closes its socket itself.
- **week**: no machine's speed is in it. 100,000 generations over seven days in virtual time, 5 % of all answers silent for
  ever (the simulator's profile `silent`), two providers in order; every decision is made by the edge's own code, and the
  rounds are the seeds 1, 2 and 3. All ways are given the same answers: without hedging at the default time-out (300 s)
  and at one of 10 s, both with the usual retries; hedged after 3 s, and at the 95th percentile of recent answers. A
  cost is the tokens of all attempts until they were cancelled, 1,000 of prompt for each one, at the list prices of
  `sim-fast` in `compose/prices.toml`, beside the way that is not hedged; a provider that goes on when nobody
  listens costs the whole answer. The storm: 1,000 clients call twice a minute, their only provider fails for ten
  minutes; extra load is what the edge's own retries and hedges add to what clients asked for. The breaker refuses most
  of that at once, so that fewer calls are made than were asked.
- **peers**: the same 1000 events, behind the first one of an ended answer, from the edge that it ran on (out of its memory),
  from another (out of Kafka; what one reader had decoded serves the others), and from two servers that do a part of it: `@durable-streams/server` in Node, file-backed, and `fastapi-resumable-stream` under
  uvicorn with Redis (append-only file). They are filled with our answers' events, one append for each, and asked by
  their own protocols (SSE behind an offset, behind a count). One at a time, 50 a round; then 200 clients at once over four
  streams. Each is one process of its own beside its store. The edge checks keys, reads a replicated log and renders
  a dialect; the peers give back stored bytes and know no keys. A peer that cannot be installed is left out by name.
"""

_NEVER = "There are no figures yet: none were taken on a quiet machine.\n"


def document(results: Results) -> str:
    """The text of `docs/benchmarks.md`."""
    machine = results["machine"]
    if machine is None:
        return f"{_TITLE}\n{_NEVER}\n{_METHOD}"
    taken = (
        f"Taken {machine['at']} on {machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_gib']} GiB, "
        f"{machine['kernel']}, Python {machine['python']}; load average before: {machine['load_before']}."
    )
    lines = [f"| {' | '.join(HEADER)} |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(cells)} |" for cells in cells_of(results["rows"])]
    table = "\n".join(lines)
    return f"{_TITLE}\n{taken}\n\n{table}\n\n{_METHOD}"


def cells_of(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, str]]:
    """The table's lines: every figure that these rows have."""
    for figure in FIGURES:
        for row in rows:
            known = (
                row["bench"] == figure.bench and figure.who in row
            )  # a peer that was left out is in no line
            if known and figure.streams in (None, row.get("streams")):
                reference = ""
                if figure.reference is not None:
                    called, who, name = figure.reference
                    reference = f"{called}: {_value(row, who, name)}"
                yield figure.what, _value(row, figure.who, figure.name), reference, figure.reach


def _value(row: Row, who: str, name: str) -> str:
    unit = next(
        (
            unit
            for mark, unit in (("_us", " µs"), ("_ms", " ms"), ("_percent", " %"))
            if f"{mark}_" in name or name.endswith(mark)
        ),
        "",
    )
    low, high = row["spread"][who][name]
    return f"{_number(row[who][name])}{unit} ({_number(low)}–{_number(high)})"


def _number(value: float) -> str:
    """Three significant digits, never an exponent."""
    if abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
