"""The edge's Prometheus metrics; the catalogue in ``docs/metrics.md`` is tested against this file.

What only somebody who looks wants to know (a rate, a budget, an age) is worked out when he does. Before: whoever counts.
After: ``routes.operations``.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from edge.abort_rate import AbortRate
from edge.asgi.parting import REASONS

if TYPE_CHECKING:
    from edge.driver import Driver
    from edge.generation import Generation
    from edge.policy.breaker import Breaker
    from edge.policy.budgets import Bucket
    from edge.provider.health import Health

_MS = (5, 10, 25, 50, 100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 120_000, 300_000)
_PUBLISH_MS = (0.25, 0.5, 1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000, 30_000)
OTHER_MODEL = "other"
ALL_PROVIDERS = "all"


class Metrics:
    """One process's metrics, in a registry of their own.

    Args:
        models: which have a series of their own. A default route serves whatever name a client gives: those are one
            series together, since each would be kept for ever.
        now_us: the process's monotonic clock.

    """

    def __init__(self, models: Collection[str] = (), now_us: Callable[[], int] = lambda: 0) -> None:
        self._models = frozenset(models)
        self._now_us = now_us
        self.registry = CollectorRegistry()
        self._of_streams()
        self._of_generations()
        self._of_attempts()
        self._of_the_log()
        self._of_admission()
        self._of_claims()

    def _of_streams(self) -> None:
        self.first_token_ms = self._histogram(
            "sse_first_token_latency_ms",
            "Request received to first content written, by model",
            _MS,
            ["model"],
        )
        self.last_token_ms = self._histogram(
            "sse_last_token_latency_ms", "First content to terminal written, by model", _MS, ["model"]
        )
        self._aborts = self._counter(
            "sse_aborts_total",
            f"Connections whose stream ended before its time ({', '.join(REASONS)})",
            ["reason", "model"],
        )
        rate = self._gauge(
            "sse_abort_rate_permille",
            "The same of a thousand, over a model's last 1,000 connections or 5 minutes",
            ["reason", "model"],
        )
        self._rates = {model: AbortRate() for model in (*sorted(self._models), OTHER_MODEL)}
        for model, window in self._rates.items():
            for reason in REASONS:
                self._aborts.labels(reason, model)
                rate.labels(reason, model).set_function(partial(self._permille, window, reason))
        self.readers = self._gauge("tokentrail_readers", "Connections that read a generation here")
        self.resumes = self._counter(
            "tokentrail_resumes_total", "Resumes by what they were answered", ["status"]
        )

    def _of_generations(self) -> None:
        self.generations = self._counter(
            "tokentrail_generations_total", "Generations by terminal and code", ["terminal", "code"]
        )
        self.active = self._gauge("tokentrail_active_generations", "Generations that run here")
        self.window_bytes = self._gauge("tokentrail_window_bytes", "Recent events in memory")

    def _of_attempts(self) -> None:
        self.attempts = self._counter(
            "tokentrail_attempts_total",
            "Calls to providers: why (first, retry, fallback, hedge_ttft, hedge_stall, shrink, repair) and how they ended",
            ["provider", "reason", "outcome"],
        )
        self.stalls = self._counter(
            "tokentrail_stalls_total",
            "Gaps between content above the threshold, by what ended them",
            ["provider", "ended_by"],
        )
        self.unknown_events = self._counter(
            "tokentrail_unknown_events_total",
            "Events and parts of a provider whose type this version does not know: passed on, and no content",
            ["dialect"],
        )
        self.breaker_open = self._gauge(
            "tokentrail_breaker_open", "1 while a provider is left alone", ["provider"]
        )
        self.budget = self._gauge(
            "tokentrail_budget_tokens",
            "How many more attempts are paid for: retries by provider, hedges of all together",
            ["purpose", "provider"],
        )

    def _of_the_log(self) -> None:
        self.publish_ms = self._histogram(
            "tokentrail_publish_latency_ms",
            "An event captured to acknowledged by the log; of each generation one in 16 is measured",
            _PUBLISH_MS,
        )
        self._log_lag_ms = self._gauge(
            "tokentrail_log_lag_ms", "How long the oldest record of this edge waits for the log by now"
        )

    def _of_admission(self) -> None:
        self.waiting = self._gauge(
            "tokentrail_admission_waiting", "Calls that wait for room with their tenant or a provider"
        )

    def _of_claims(self) -> None:
        self.once = self._counter(
            "tokentrail_once_total",
            "Calls with an Idempotency-Key by their answer: begun, replayed, conflict, refused",
            ["answer"],
        )
        self.claims = self._gauge("tokentrail_claims", "Idempotency keys in memory")
        self.claims_forgotten = self._counter(
            "tokentrail_claims_forgotten_total",
            "Idempotency keys that left memory before their day was over: limit.claims_max is too low",
        )

    def watch(self, health: "Health", providers: Iterable[str], log_lag_ms: Callable[[], float]) -> None:
        """Show each provider's breaker, the budgets and the log's lag as they are when somebody looks."""
        self._log_lag_ms.set_function(log_lag_ms)
        for name in providers:
            record = health.of(name)
            self.breaker_open.labels(name).set_function(partial(self._is_open, record.breaker))
            self.budget.labels("retry", name).set_function(partial(_tokens_of, record.retries))
        self.budget.labels("hedge", ALL_PROVIDERS).set_function(partial(_tokens_of, health.hedges))

    def count(self, generation: "Generation", driver: "Driver") -> None:
        """Count a generation that came to its end, its attempts and their stalls."""
        terminal = generation.terminal.event if generation.terminal else None
        if terminal is not None:
            code = terminal.error.code if terminal.error else "none"
            self.generations.labels(terminal.kind.value, code).inc()
        self.unknown_events.labels(generation.identity.dialect).inc(driver.unknown_events)
        for result in driver.race.results.values():
            provider, outcome = result.target.route.provider, result.outcome.value
            self.attempts.labels(provider, result.of.reason, outcome).inc()
            for gap in result.capture.gaps:
                self.stalls.labels(provider, gap.ended_by.value).inc()

    def stream_ended(self, model: str, because: str | None) -> None:
        """A connection reads no more; ``because``: why before its time (``edge.asgi.parting``)."""
        self._rates[model].add(because, self._now_us())
        if because is not None:
            self._aborts.labels(because, model).inc()

    def model(self, name: str) -> str:
        """The label of a model."""
        return name if name in self._models else OTHER_MODEL

    def render(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    def _is_open(self, breaker: "Breaker") -> float:
        return float(not breaker.lets_through(self._now_us()))

    def _permille(self, window: AbortRate, reason: str) -> float:
        return window.permille(reason, self._now_us())

    def _counter(self, name: str, said: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, said, labels, registry=self.registry)

    def _gauge(self, name: str, said: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(name, said, labels, registry=self.registry)

    def _histogram(
        self, name: str, said: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram:
        return Histogram(name, said, labels, buckets=buckets, registry=self.registry)


def _tokens_of(bucket: "Bucket") -> float:
    return bucket.tokens
