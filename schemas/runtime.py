"""How long the edge waits, what it tries again, and what it races: the sections of the settings that the runtime obeys.

Each field: unit in its name, default, reason. Their relations are asserted at start (``check_times``). Before:
``providers``. After: ``settings``.
"""

from collections.abc import Iterator, Mapping

from pydantic import Field

from schemas.providers import Route, Section

CLIENT_IDLE_S = 60
"""What clients wait for any byte before they take a connection for dead: four heartbeats."""


class Stream(Section):
    """What is watched while a provider streams."""

    heartbeat_s: float = Field(15, gt=0, description="proxies and clients cut what is idle for a minute")
    stall_threshold_ms: int = Field(
        2_000, gt=0, description="measures only: a longer gap is a stall on record"
    )
    ttft_timeout_s: float = Field(
        300, gt=0, description="from dispatch to content; a long prompt takes minutes"
    )
    stall_timeout_s: float = Field(
        120, gt=0, description="between contents; models that think say something meanwhile"
    )
    usage_grace_s: float = Field(5, ge=0, description="how long usage is awaited after the finish reason")


class Timeout(Section):
    """The layers of time-outs."""

    generation_s: float = Field(900, gt=0, description="all of it, also in the background: what one can cost")
    request_s: float = Field(900, gt=0, description="all of it, where somebody waits for the answer")
    queue_s: float = Field(120, gt=0, description="without a response head; another provider may be idle")
    decode_s: float = Field(600, gt=0, description="from the first content: what repeats itself has no end")
    tool_s: float = Field(60, gt=0, description="from the answer's end to a tool's report; ends nothing")
    postprocess_s: float = Field(
        10, gt=0, description="the check of the whole answer, tried twice; usually a millisecond"
    )
    connect_s: float = Field(10, gt=0, description="TCP and TLS to the provider")


class Admission(Section):
    """Who may begin on one edge, and who waits for that; off while neither a tenant nor a provider has a limit."""

    tenant_generations: int | None = Field(
        None, gt=0, description="of one tenant at once on each edge; None: no limit"
    )
    tenant_starts_per_s: float | None = Field(
        None, gt=0, le=1_000_000, description="of one tenant's generations on each edge; None: no limit"
    )
    waiting_max: int = Field(1_000, ge=0, description="calls that wait for room, a task and a socket each")
    waiting_tenant_max: int = Field(100, ge=0, description="of one tenant, so that none fills the queue")
    wait_s: float = Field(10, gt=0, lt=CLIENT_IDLE_S, description="no byte goes to a client while it waits")


class Disconnect(Section):
    """What a lost connection means."""

    grace_s: float = Field(30, ge=0, description="a generation runs on so long without any reader")
    policy: str = Field("grace", pattern="^(grace|continue|cancel)$")


class Cancel(Section):
    """How a cancel ends the provider's stream."""

    soft_ms: int = Field(200, ge=0, description="soft lets the read in progress finish, at most so long")
    answer_s: float = Field(2, gt=0, description="how long a cancel call follows before it answers 202")


class Retry(Section):
    """Attempts of one generation."""

    backoff_ms: int = Field(250, ge=0)
    max_attempts: int = Field(3, ge=1, le=5, description="of one generation, hedges included")
    budget_tokens: float = Field(
        50, ge=0, description="retries in a row that one provider's record pays for while nothing succeeds"
    )
    budget_share: float = Field(0.1, ge=0, le=1, description="of a token that each success puts back")
    long_context_tokens: int | None = Field(
        None, gt=0, description="a longer prompt without content in time is only retried shortened to this"
    )


class Breaker(Section):
    """When a provider is left alone for a while."""

    failures: int = Field(10, ge=1, description="in the window at least; fewer say little")
    share: float = Field(0.5, gt=0, le=1, description="of all its outcomes in the window")
    window_s: float = Field(30, gt=0)
    open_s: float = Field(10, gt=0, description="then one call may try; every retry of a client is this late")


class Hedge(Section):
    """A second attempt beside a silent one; off while both times are."""

    after_s: float | None = Field(None, gt=0, description="without content since the dispatch; None: off")
    stall_after_s: float | None = Field(
        None, gt=0, description="since the last content, while nothing was delivered; None: off"
    )
    quantile: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="adaptive: after this quantile of a provider's recent times to first content, as 0.9; `after_s` "
        "while too few are known; None: off",
    )
    max_in_flight: int = Field(1, ge=1, le=4, description="beside the first, of one generation")
    models: tuple[str, ...] = Field(
        ("*",), description="whose calls may be hedged; a key that allows it may always be"
    )
    budget_tokens: float = Field(20, ge=2, description="hedges are paid while at least half of them are left")
    budget_share: float = Field(0.1, ge=0, le=1, description="of a token that each success puts back")
    hold_ms_max: int = Field(30_000, ge=0, description="the longest X-Tokentrail-Hold-Ms that is obeyed")


def check_times_of_routes(
    named: Mapping[str, tuple[Route, ...]],
    stream: Stream,
    timeout: Timeout,
    hedge: Hedge,
    half_orphan_s: float,
) -> Iterator[str]:
    """The same with the times of each route's own, where it has any."""
    for name, routes in named.items():
        for route in routes:
            times = route.times()
            here = stream.model_copy(update={k: v for k, v in times.items() if k in Stream.model_fields})
            there = timeout.model_copy(update={k: v for k, v in times.items() if k in Timeout.model_fields})
            for said in check_times(here, there, hedge, half_orphan_s) if times else ():
                yield f"{said} (of {name} at {route.provider})"


def check_times(stream: Stream, timeout: Timeout, hedge: Hedge, half_orphan_s: float) -> Iterator[str]:
    """The relations between times that do not hold, each as a sentence."""
    for holds, said in (
        (2 * stream.heartbeat_s <= half_orphan_s, "2 × stream.heartbeat_s ≤ pipeline.orphan_after_s / 2"),
        (stream.heartbeat_s < CLIENT_IDLE_S, f"stream.heartbeat_s < {CLIENT_IDLE_S}, the clients' idle time"),
        (stream.stall_threshold_ms < stream.stall_timeout_s * 1000, "stall threshold < stall time-out"),
        (
            timeout.request_s >= stream.ttft_timeout_s + timeout.decode_s,
            "timeout.request_s ≥ stream.ttft_timeout_s + timeout.decode_s",
        ),
        (
            hedge.after_s is None or hedge.after_s < stream.ttft_timeout_s,
            "hedge.after_s < stream.ttft_timeout_s",
        ),
        (
            hedge.stall_after_s is None or hedge.stall_after_s < stream.stall_timeout_s,
            "hedge.stall_after_s < stream.stall_timeout_s",
        ),
    ):
        if not holds:
            yield said
