"""Every topic as the specification lists it; what would lose data cannot slip in."""

import socket

import pytest

from compose.kafka import KafkaError, publish
from schemas.settings import Settings
from schemas.topics import (
    BILLING_GROUP,
    CLAIMS,
    CONTROL,
    DAY_MS,
    EVENTS,
    FOLD_GROUP,
    HOUR_MS,
    TOPICS,
    sink_group,
)

LISTED = {  # name: (partitions, retention_ms, cleanup)
    "tokentrail.events.v1": (32, 7 * DAY_MS, "delete"),
    "tokentrail.control.v1": (4, DAY_MS, "delete"),
    "tokentrail.claims.v1": (4, 25 * HOUR_MS, "delete"),
    "tokentrail.attempts.v1": (32, 30 * DAY_MS, "delete"),
    "tokentrail.generations.v1": (32, 30 * DAY_MS, "delete"),
    "tokentrail.ledger.v1": (32, 30 * DAY_MS, "delete"),
    "tokentrail.dead-letters.v1": (4, 30 * DAY_MS, "delete"),
    "tokentrail.schemas.v1": (1, None, "compact"),
    "tokentrail.config.v1": (1, None, "compact"),
}


def test_listed():
    """The topics are those of the specification, with its partitions, retention and cleanup."""
    assert {t.name: (t.partitions, t.retention_ms, t.cleanup) for t in TOPICS} == LISTED


def test_each_says_why():
    """Every topic has its key and a line of why."""
    assert all(topic.key and len(topic.why) > 20 for topic in TOPICS)


def test_events_outlive_a_resume(monkeypatch, tmp_path):
    """Events are kept for the default resume window and a day of billing lag, and are never compacted."""
    monkeypatch.chdir(tmp_path)
    assert EVENTS.retention_ms >= (Settings().resume.window_days + 1) * DAY_MS
    assert "compact" not in EVENTS.configs(1)["cleanup.policy"]


def test_log_time_where_decisions_are_made_by_it():
    """The broker stamps events, control and claims, and only them."""
    stamped = {t.name for t in TOPICS if "message.timestamp.type" in t.configs(1)}
    assert stamped == {EVENTS.name, CONTROL.name, CLAIMS.name}
    assert EVENTS.configs(1)["message.timestamp.type"] == "LogAppendTime"


def test_claims_roll_hourly():
    """Claims expire by segments of an hour, so that a claim outlives its key by little."""
    assert CLAIMS.configs(1)["segment.ms"] == str(HOUR_MS)


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, 1, "1"), (2, 1, "1"), (3, 3, "2"), (5, 3, "2")]
)
@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_durability(topic, brokers, replicas, in_sync):
    """On a cluster every topic has three copies of which two acknowledge; on one broker it can be written at all."""
    assert topic.replication(brokers) == replicas
    assert topic.configs(brokers)["min.insync.replicas"] == in_sync


def test_no_unclean_leader():
    """A broker that lags never becomes the leader of the stream."""
    assert EVENTS.configs(3)["unclean.leader.election.enable"] == "false"


def test_compacted_topics_keep_everything():
    """A compacted topic has no retention: what it holds is needed as long as the log."""
    for topic in TOPICS:
        if topic.cleanup == "compact":
            assert "retention.ms" not in topic.configs(1)


def test_groups():
    """The consumer groups have the names that operators look for."""
    assert (FOLD_GROUP, BILLING_GROUP) == ("tokentrail.fold.v1", "tokentrail.billing.v1")
    assert sink_group("events") == "tokentrail.sink.events.v1"


async def test_an_append_without_a_broker_is_an_expected_error():
    """Where nobody listens, ``publish`` raises the error that the command line says in a sentence."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host, port = unused.getsockname()
        with pytest.raises(KafkaError, match="took no record on topic"):
            await publish(f"{host}:{port}", "topic", [(b"key", b"value")])
