"""A worker's Prometheus metrics: what the fold and billing count anyway, read when somebody looks.

The catalogue is in ``docs/metrics.md``. Before: ``fold_service``, ``billing_agent``. After: ``schemas.exposition`` tells it.
"""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline.billing_agent import STAGE as BILLING
from pipeline.billing_agent import BillingAgent
from pipeline.dead_letters import STAGE_FOLD as FOLD


class Fold(Protocol):
    """What the fold says of itself."""

    dead_letters: int

    def lag(self) -> int:
        """Records behind the ends of its partitions, as of their last fetch."""

    def open_count(self) -> int:
        """Generations without a terminal."""

    def total(self, name: str) -> int:
        """A counter of all its partitions."""


class WorkerMetrics(Collector):
    """One worker's figures."""

    def __init__(self, fold: Fold, billing: BillingAgent) -> None:
        self._fold, self._billing = fold, billing
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        fold, billing = self._fold, self._billing
        yield GaugeMetricFamily(
            "tokentrail_fold_lag_records", "Records behind the log's end, as of the last fetch", fold.lag()
        )
        yield GaugeMetricFamily(
            "tokentrail_fold_open_generations", "Generations without a terminal here", fold.open_count()
        )
        yield CounterMetricFamily(
            "tokentrail_fold_generations", "Generations that were closed here", fold.total("generations")
        )
        yield CounterMetricFamily(
            "tokentrail_billed_attempts",
            "Attempts whose ledger lines are acknowledged",
            billing.attempts_settled,
        )
        yield CounterMetricFamily(
            "tokentrail_unpriced_lines",
            "Ledger lines whose model has no price: their amounts are unknown, not zero",
            billing.lines_unpriced,
        )
        letters = CounterMetricFamily(
            "tokentrail_dead_letters", "Records that were put aside", labels=["stage"]
        )
        letters.add_metric([FOLD], fold.dead_letters)
        letters.add_metric([BILLING], billing.dead_letters)
        yield letters
