"""Every topic of tokentrail, with its settings and why.

``compose.topics`` creates what is missing and compares the live topic with these values; a partition count never
changes (growth is a new topic version). Before: ``codec``. After: ``partition``.
"""

from typing import NamedTuple

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Topic(NamedTuple):
    """One topic. ``retention_ms`` None: kept (compacted). ``durable``: replication 3 and min ISR 2 on a cluster."""

    name: str
    key: str
    partitions: int
    retention_ms: int | None
    cleanup: str
    why: str
    log_append_time: bool = False
    segment_ms: int | None = None
    extra: tuple[tuple[str, str], ...] = ()

    def configs(self, brokers: int) -> dict[str, str]:
        """The full wanted configuration (alter_configs replaces, so it is always sent whole)."""
        wanted = {
            "cleanup.policy": self.cleanup,
            "min.insync.replicas": "2" if brokers >= 3 else "1",  # noqa: PLR2004 - a cluster is three
            "max.message.bytes": "1048588",
        }
        if self.retention_ms is not None:
            wanted["retention.ms"] = str(self.retention_ms)
        if self.segment_ms is not None:
            wanted["segment.ms"] = str(self.segment_ms)
        if self.log_append_time:
            wanted["message.timestamp.type"] = "LogAppendTime"
        return wanted | dict(self.extra)

    def replication(self, brokers: int) -> int:
        """Three copies where there are three brokers."""
        return 3 if brokers >= 3 else 1  # noqa: PLR2004


_CLEAN = (("unclean.leader.election.enable", "false"),)

EVENTS = Topic(
    "tokentrail.events.v1",
    "generation_id",
    32,
    7 * DAY_MS,
    "delete",
    "the stream itself: retention covers the resume window (6 days) and the billing lag (1 day); never compacted",
    log_append_time=True,
    extra=_CLEAN,
)
CONTROL = Topic(
    "tokentrail.control.v1",
    "generation_id",
    4,
    DAY_MS,
    "delete",
    "cancel calls, readers on other edges, providers' ids: read by every edge from the beginning",
    log_append_time=True,
)
CLAIMS = Topic(
    "tokentrail.claims.v1",
    "tenant + idempotency key (hashed)",
    4,
    25 * HOUR_MS,
    "delete",
    "idempotency keys live 24 h; one hour more so that a claim never expires before its key",
    log_append_time=True,
    segment_ms=HOUR_MS,
)
ATTEMPTS = Topic(
    "tokentrail.attempts.v1",
    "generation_id",
    32,
    30 * DAY_MS,
    "delete",
    "one AttemptRecord per attempt_end: billing",
)
GENERATIONS = Topic(
    "tokentrail.generations.v1",
    "generation_id",
    32,
    30 * DAY_MS,
    "delete",
    "one GenerationRecord per finalization",
)
LEDGER = Topic(
    "tokentrail.ledger.v1", "generation_id", 32, 30 * DAY_MS, "delete", "ledger lines, on their way to SQL"
)
DEAD_LETTERS = Topic(
    "tokentrail.dead-letters.v1",
    "original key",
    4,
    30 * DAY_MS,
    "delete",
    "records that can never be processed, with where they lay and why",
)
SCHEMAS = Topic(
    "tokentrail.schemas.v1",
    "fingerprint",
    1,
    None,
    "compact",
    "fingerprint → Avro schema: no registry server needed",
)
CONFIG = Topic(
    "tokentrail.config.v1",
    "kind + name",
    1,
    None,
    "compact",
    "API keys (hashes), and what is forgotten on request: read by every edge from the beginning",
)

TOPICS: tuple[Topic, ...] = (
    EVENTS,
    CONTROL,
    CLAIMS,
    ATTEMPTS,
    GENERATIONS,
    LEDGER,
    DEAD_LETTERS,
    SCHEMAS,
    CONFIG,
)

FOLD_GROUP = "tokentrail.fold.v1"
BILLING_GROUP = "tokentrail.billing.v1"


def sink_group(table: str) -> str:
    """The consumer group of the sink of one table."""
    return f"tokentrail.sink.{table}.v1"


DEAD_LETTER_HEADERS = ("topic", "partition", "offset", "stage", "reason", "detail", "failed_us")
"""Headers of a dead letter, each UTF-8 text; the value is the original bytes, the key the original key."""
