"""`topics apply` decides right: what to create, to alter, to refuse."""

import pytest

from compose.kafka import LiveTopic
from compose.topics import plan, wanted_topics
from schemas.topics import DAY_MS, EVENTS, LEDGER, SCHEMAS, TOPICS

WINDOW_DAYS = 6
BROKERS = 3


def live_topic(topic, *, brokers=BROKERS, partitions=None, replication=None, **changed):
    settings = {
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
        **topic.configs(brokers),
    }
    changed = {name.replace("_", "."): value for name, value in changed.items()}
    return LiveTopic(
        topic.name,
        topic.partitions if partitions is None else partitions,
        topic.replication(brokers) if replication is None else replication,
        settings | changed,
        frozenset(topic.configs(brokers)) | frozenset(changed),
    )


def planned(*changed, brokers=BROKERS, window_days=WINDOW_DAYS):
    """The plan for a cluster whose topics are right but for the changed ones."""
    live = {t.name: live_topic(t, brokers=brokers) for t in wanted_topics(window_days)}
    live |= {t.name: t for t in changed}
    return plan(live, wanted_topics(window_days), brokers=brokers, window_days=window_days)


def test_empty_cluster_creates_all():
    """On an empty cluster every topic is created with its partitions, replicas and settings."""
    todo = plan({}, wanted_topics(WINDOW_DAYS), brokers=3, window_days=WINDOW_DAYS)
    assert [c.name for c in todo.create] == [t.name for t in TOPICS]
    events = todo.create[0]
    assert (events.partitions, events.replication) == (32, 3)
    assert events.configs["min.insync.replicas"] == "2"
    assert events.configs["message.timestamp.type"] == "LogAppendTime"
    assert not todo.alter
    assert not todo.refuse


def test_one_broker_has_one_replica():
    """A single broker gets one replica and asks for one acknowledgement."""
    todo = plan({}, wanted_topics(WINDOW_DAYS), brokers=1, window_days=WINDOW_DAYS)
    assert {(c.replication, c.configs["min.insync.replicas"]) for c in todo.create} == {(1, "1")}


def test_right_topics_need_nothing():
    """A cluster whose topics are right is left alone."""
    assert planned().is_clean


@pytest.mark.parametrize(
    ("changed", "reason", "remedy"),
    [
        ({"cleanup_policy": "compact"}, "compacted", "cleanup.policy=delete"),
        ({"cleanup_policy": "compact,delete"}, "compacted", "cleanup.policy=delete"),
        ({"retention_ms": str(7 * DAY_MS - 1)}, "resume window", f"retention.ms={7 * DAY_MS}"),
        ({"retention_bytes": "1000000"}, "1000000 bytes", "retention.bytes=-1"),
        ({"unclean_leader_election_enable": "true"}, "leader", "unclean.leader.election.enable=false"),
        ({"partitions": 16}, "16 partitions", "never changes"),
        ({"partitions": 64}, "64 partitions", "never changes"),
        ({"replication": 1}, "1 replica", "kafka-reassign-partitions"),
    ],
)
def test_events_that_would_lose_data_are_refused(changed, reason, remedy):
    """Each way in which the events topic would lose data is refused with its reason and the way out."""
    todo = planned(live_topic(EVENTS, **changed))
    (refusal,) = todo.refuse
    assert refusal.name == EVENTS.name
    assert reason in refusal.reason
    assert remedy in refusal.remedy
    assert not todo.alter


def test_every_reason_is_named():
    """Two faults are both named, so that they are corrected in one go."""
    todo = planned(live_topic(EVENTS, cleanup_policy="compact", partitions=1))
    assert len(todo.refuse) == 2


def test_compacted_ledger_is_refused():
    """Compaction is refused on derived topics too: a generation has many ledger lines under one key."""
    assert [r.name for r in planned(live_topic(LEDGER, cleanup_policy="compact")).refuse] == [LEDGER.name]


def test_retention_exactly_at_the_bound_is_enough():
    """Retention equal to window plus lag is accepted, one millisecond less is not (see above)."""
    assert planned(live_topic(EVENTS, retention_ms=str(7 * DAY_MS))).is_clean


def test_a_longer_window_needs_longer_retention():
    """A window of nine days is wanted with ten days of retention, and a topic of seven is refused."""
    assert wanted_topics(9)[0].retention_ms == 10 * DAY_MS
    todo = planned(live_topic(EVENTS, retention_ms=str(7 * DAY_MS)), window_days=9)
    assert [r.name for r in todo.refuse] == [EVENTS.name]


@pytest.mark.parametrize("kept_ms", ["-1", str(365 * DAY_MS)])
def test_longer_retention_stays(kept_ms):
    """A topic that keeps more than asked is not shortened: that would delete records."""
    assert planned(live_topic(EVENTS, retention_ms=kept_ms)).is_clean


def test_altering_sends_the_whole_set():
    """An alteration carries every wanted setting and the operator's own, since Kafka replaces them all."""
    todo = planned(
        live_topic(EVENTS, message_timestamp_type="CreateTime", retention_ms="-1", compression_type="zstd")
    )
    (altered,) = todo.alter
    assert [(c.setting, c.live, c.wanted) for c in altered.changes] == [
        ("message.timestamp.type", "CreateTime", "LogAppendTime")
    ]
    assert altered.configs == EVENTS.configs(3) | {"compression.type": "zstd", "retention.ms": "-1"}


def test_a_broker_away_does_not_weaken_the_topic():
    """While two of three brokers serve, min ISR 2 of a topic with three replicas stays as it is."""
    live = {t.name: live_topic(t, brokers=3) for t in TOPICS}
    assert plan(live, TOPICS, brokers=2, window_days=WINDOW_DAYS).is_clean


def test_more_replicas_are_welcome():
    """More replicas than wanted are no fault."""
    assert planned(live_topic(EVENTS, replication=5)).is_clean


def test_a_deleting_schemas_topic_is_altered():
    """The schemas topic is made compacted again where somebody let it expire."""
    todo = planned(live_topic(SCHEMAS, cleanup_policy="delete"))
    assert [a.name for a in todo.alter] == [SCHEMAS.name]
