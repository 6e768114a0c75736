"""What this edge knows of its providers: retry budget, circuit breaker, push-back, how soon they answer; and the hedge budget.

A retry is paid for by the record of the provider that it loads once more. A hedge is not: the provider that it goes to
may serve nothing else, so all of an edge's successes pay for all of its hedges.

Shared by all generations of the process; every call is reported when it begins and when it ends. An attempt that we
ended ourselves (a cancel, a lost race, the log, a stop) feeds nothing: it says nothing about the provider. Times are
the process's monotonic microseconds. Before: ``edge.policy``. After: ``race``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from edge.policy.breaker import Breaker
from edge.policy.budgets import Bucket
from edge.policy.moves import World
from edge.provider.latencies import Latencies
from schemas.errors import TokentrailError
from schemas.settings import Settings

PUSH_BACK_US_MAX = 60_000_000
"""One answer keeps every generation from a provider for so long at most; its own chain waits as long as it was told."""
UNFED = frozenset(
    {"bad_request", "cancelled", "superseded", "log_unavailable", "timeout", "edge_lost", "foreign_terminal"}
)
"""Endings that are the client's fault or our own doing."""
BUSY = frozenset({"rate_limited"})
"""The provider is well and says when to come again: no failure to the breaker."""
HEDGE_FLOOR = 0.5
"""Of the hedge budget's tokens: with fewer there is no hedge, so that failures end hedging long before retries."""


class ProvidersAway(TokentrailError):
    """Every provider of a model has failed too often lately.

    Args:
        retry_after_s: when the first of them is tried again.
    """

    def __init__(self, model: str, retry_after_s: int) -> None:
        super().__init__(f"every provider of {model!r} has failed too often lately; one is tried again soon")
        self.retry_after_s = retry_after_s


class Outcome(NamedTuple):
    """How an attempt ended, as far as its provider's record goes. ``code`` None: a proper end."""

    code: str | None
    content: bool
    asked_us: int | None = None


class ProviderHealth:
    """One provider's record."""

    def __init__(self, settings: Settings) -> None:
        retry, breaker = settings.retry, settings.breaker
        self.retries = Bucket(retry.budget_tokens, retry.budget_share)
        self.breaker = Breaker(
            breaker.failures,
            breaker.share,
            int(breaker.window_s * 1_000_000),
            int(breaker.open_s * 1_000_000),
        )
        self.pushed_until_us = 0


class Health:
    """Every provider's record, by its name in the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_name: dict[str, ProviderHealth] = {}
        self.latencies = Latencies()
        hedge = settings.hedge
        self.hedges = Bucket(
            hedge.budget_tokens,
            hedge.budget_share,
            failure_cost=1.0,
            floor=hedge.budget_tokens * HEDGE_FLOOR,
        )

    def of(self, provider: str) -> ProviderHealth:
        """The record of a provider; names come from the settings, so they are few."""
        found = self._by_name.get(provider)
        if found is None:
            found = self._by_name[provider] = ProviderHealth(self._settings)
        return found

    def world(self, providers: Sequence[str], now_us: int, accepted_us: int, jitter: float) -> World:
        """What a chain must know, its times counted from the generation's own beginning."""
        records = [self.of(name) for name in providers]
        is_open = frozenset(i for i, r in enumerate(records) if r.breaker.lets_through(now_us))
        return World(
            now_us=now_us - accepted_us,
            jitter=jitter,
            open=is_open,
            paid=frozenset(i for i in is_open if records[i].retries.can_pay()),
            hedge_paid=is_open if self.hedges.can_pay() else frozenset(),
            pushed_us=tuple(max(0, r.pushed_until_us - accepted_us) for r in records),
        )

    def check(self, model: str, providers: Iterable[str], now_us: int) -> None:
        """Refuse what nobody can serve now; raises ProvidersAway."""
        breakers = [self.of(name).breaker for name in providers]
        if not any(breaker.lets_through(now_us) for breaker in breakers):
            wait_us = min(breaker.opens_in_us(now_us) for breaker in breakers)
            raise ProvidersAway(model, max(1, -(-wait_us // 1_000_000)))

    def pay(self, provider: str, *, hedge: bool) -> None:
        """One more attempt than the first is decided on."""
        (self.hedges if hedge else self.of(provider).retries).pay()

    def called(self, provider: str, now_us: int) -> None:
        """A call is made."""
        self.of(provider).breaker.called(now_us)

    def let_go(self, provider: str, began_us: int) -> None:
        """A call that was made at ``began_us`` was ended by us."""
        self.of(provider).breaker.let_go(began_us)

    def ended(self, provider: str, outcome: Outcome, began_us: int, now_us: int) -> None:
        """A call that was made at ``began_us`` came to its end by what the provider did."""
        record = self.of(provider)
        if outcome.asked_us:
            until_us = now_us + min(outcome.asked_us, PUSH_BACK_US_MAX)
            record.pushed_until_us = max(record.pushed_until_us, until_us)
        if outcome.code in UNFED:
            record.breaker.let_go(began_us)
            return
        if outcome.code in BUSY:
            record.breaker.let_go(began_us)
            self.hedges.failure()
            return
        failed = outcome.code is not None or not outcome.content
        record.breaker.ended(now_us, began_us, failed=failed)
        for bucket in (record.retries, self.hedges):
            if failed:
                bucket.failure()
            else:
                bucket.success()
