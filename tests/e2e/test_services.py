"""The session's services are what the fixtures say."""

from compose.kafka import admin
from schemas.topics import TOPICS
from tests.support.clickhouse import connect


async def test_topics_fixture(topics):
    """The broker of the session has every topic of ours, with its partitions."""
    async with admin(topics) as cluster:
        live = await cluster.topics([topic.name for topic in TOPICS])
    assert {name: topic.partitions for name, topic in live.items()} == {t.name: t.partitions for t in TOPICS}


def test_topics_are_applied_once(topics, kafka):
    """Both fixtures are the same broker."""
    assert topics == kafka


def test_clickhouse_fixture(clickhouse):
    """The warehouse of the session answers a query at its URL."""
    with connect(clickhouse) as client:
        assert client.query("SELECT 40 + 2").result_rows == [(42,)]
