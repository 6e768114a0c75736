"""A sink process's Prometheus metrics, table by table: what its loops know anyway, read when somebody looks.

The catalogue is in ``docs/metrics.md``. Before: ``loop``, ``kafka``. After: ``schemas.exposition`` tells it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sinks.loop import Loop


class Ends(Protocol):
    """The log's ends."""

    def ends(self) -> Mapping[int, tuple[int, int]]:
        """Per partition: where this member began, and the end as of the last fetch."""


class Observed(NamedTuple):
    """One table."""

    name: str
    loop: Loop
    source: Ends


def lag_of(ends: Mapping[int, tuple[int, int]], stored: Mapping[int, int]) -> int:
    """Records between what is stored and committed and the log's end."""
    return sum(max(0, end - max(began, stored.get(p, 0))) for p, (began, end) in ends.items())


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SinkMetrics(Collector):
    """All tables' figures."""

    def __init__(self, tables: Sequence[Observed], wall_ms: Callable[[], int] = _wall_ms) -> None:
        self._tables, self._wall_ms = tables, wall_ms
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        labels = ["table"]
        lag = GaugeMetricFamily(
            "tokentrail_sink_lag_records", "Records read or to be read, not stored yet", labels=labels
        )
        fresh = GaugeMetricFamily(
            "tokentrail_sink_freshness_s",
            "Age of the newest stored record while more waits, else 0",
            labels=labels,
        )
        rows = CounterMetricFamily("tokentrail_sink_rows", "Rows stored and committed", labels=labels)
        letters = CounterMetricFamily(
            "tokentrail_dead_letters", "Records that were put aside", labels=["stage"]
        )
        for name, loop, source in self._tables:
            behind = lag_of(source.ends(), loop.stored)
            lag.add_metric([name], behind)
            waits = behind and loop.stored_until_ms is not None
            fresh.add_metric(
                [name], max(0, self._wall_ms() - (loop.stored_until_ms or 0)) / 1000 if waits else 0
            )
            rows.add_metric([name], loop.rows_stored)
            letters.add_metric([f"sink.{name}"], loop.dead_letters)
        yield from (lag, fresh, rows, letters)
