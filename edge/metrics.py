"""The edge's Prometheus metrics; the catalogue in the documentation is tested against this file."""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from edge.driver import Driver
    from edge.generation import Generation
    from edge.policy.breaker import Breaker
    from edge.provider.health import Health

_MS = (5, 10, 25, 50, 100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 120_000, 300_000)


OTHER_MODEL = "other"


class Metrics:
    """One process's metrics, in a registry of their own.

    Args:
        models: which have a series of their own. A default route serves whatever name a client gives: those are one
            series together, since each would be kept for ever.

    """

    def __init__(self, models: Collection[str] = ()) -> None:
        self._models = frozenset(models)
        self.registry = CollectorRegistry()
        self.first_token_ms = Histogram(
            "sse_first_token_latency_ms",
            "Request received to first content written, by model",
            ["model"],
            buckets=_MS,
            registry=self.registry,
        )
        self.last_token_ms = Histogram(
            "sse_last_token_latency_ms",
            "First content to terminal written, by model",
            ["model"],
            buckets=_MS,
            registry=self.registry,
        )
        self.aborts = Counter(
            "sse_aborts_total",
            "Streams that ended before their time",
            ["reason", "model"],
            registry=self.registry,
        )
        self.generations = Counter(
            "tokentrail_generations_total",
            "Generations by terminal and code",
            ["terminal", "code"],
            registry=self.registry,
        )
        self.unknown_events = Counter(
            "tokentrail_unknown_events_total",
            "Events and parts of a provider whose type this version does not know: passed on, and no content",
            ["dialect"],
            registry=self.registry,
        )
        self.active = Gauge(
            "tokentrail_active_generations", "Generations that run here", registry=self.registry
        )
        self.readers = Gauge(
            "tokentrail_readers", "Connections that read a generation here", registry=self.registry
        )
        self.resumes = Counter(
            "tokentrail_resumes_total",
            "Resumes by what they were answered",
            ["status"],
            registry=self.registry,
        )
        self.window_bytes = Gauge(
            "tokentrail_window_bytes", "Recent events in memory", registry=self.registry
        )

        self._of_attempts()
        self._of_admission()
        self._of_claims()

    def watch(self, health: "Health", providers: Iterable[str], now_us: Callable[[], int]) -> None:
        """Show each provider's breaker as it is when somebody looks."""
        for name in providers:
            breaker = health.of(name).breaker

            def is_open(breaker: "Breaker" = breaker) -> float:
                return float(not breaker.lets_through(now_us()))

            self.breaker_open.labels(name).set_function(is_open)

    def count(self, generation: "Generation", driver: "Driver") -> None:
        """Count a generation that came to its end, and its attempts."""
        terminal = generation.terminal.event if generation.terminal else None
        if terminal is not None:
            code = terminal.error.code if terminal.error else "none"
            self.generations.labels(terminal.kind.value, code).inc()
        self.unknown_events.labels(generation.identity.dialect).inc(driver.unknown_events)
        for result in driver.race.results.values():
            provider, outcome = result.target.route.provider, result.outcome.value
            self.attempts.labels(provider, result.of.reason, outcome).inc()

    def _of_attempts(self) -> None:
        self.attempts = Counter(
            "tokentrail_attempts_total",
            "Calls to providers: why (first, retry, fallback, hedge_ttft, hedge_stall, shrink, repair) and how they ended",
            ["provider", "reason", "outcome"],
            registry=self.registry,
        )
        self.breaker_open = Gauge(
            "tokentrail_breaker_open",
            "1 while a provider is left alone",
            ["provider"],
            registry=self.registry,
        )

    def _of_admission(self) -> None:
        self.waiting = Gauge(
            "tokentrail_admission_waiting",
            "Calls that wait for room with their tenant or a provider",
            registry=self.registry,
        )

    def _of_claims(self) -> None:
        self.once = Counter(
            "tokentrail_once_total",
            "Calls with an Idempotency-Key by their answer: begun, replayed, conflict, refused",
            ["answer"],
            registry=self.registry,
        )
        self.claims = Gauge("tokentrail_claims", "Idempotency keys in memory", registry=self.registry)
        self.claims_forgotten = Counter(
            "tokentrail_claims_forgotten_total",
            "Idempotency keys that left memory before their day was over: limit.claims_max is too low",
            registry=self.registry,
        )

    def model(self, name: str) -> str:
        """The label of a model."""
        return name if name in self._models else OTHER_MODEL

    def render(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
