"""`topics apply` against a real broker: made once, left alone, corrected, refused."""

import pytest
from aiokafka import AIOKafkaConsumer

from compose.kafka import KafkaError, NewTopicSpec, admin, read_whole
from compose.topics import TopicsRefused, announce_schemas, apply, inspect
from schemas.codec import Codec
from schemas.topics import DAY_MS, EVENTS, SCHEMAS, TOPICS
from tests.support.kafka import session_kafka

pytestmark = pytest.mark.services
WINDOW_DAYS = 6


@pytest.fixture
def broker(tmp_path):
    with session_kafka(tmp_path) as kafka:
        yield kafka.bootstrap_servers


async def test_topics_apply_on_a_real_broker(broker):
    """Topics are created with leaders and schemas, left alone the second time, corrected when they drift."""
    first = await apply(broker, window_days=WINDOW_DAYS)
    assert set(first.created) == {t.name for t in TOPICS}
    async with admin(broker) as cluster:
        live = await cluster.topics([EVENTS.name])
    assert live[EVENTS.name].partitions == 32
    assert live[EVENTS.name].effective["message.timestamp.type"] == "LogAppendTime"
    announced = {
        record.key.decode(): record.value.decode() for record in await read_whole(broker, SCHEMAS.name)
    }
    assert announced == Codec().own_schemas
    assert set(first.schemas_announced) == set(announced)

    second = await apply(broker, window_days=WINDOW_DAYS)
    assert (second.created, second.altered, second.schemas_announced) == ((), (), ())

    async with admin(broker) as cluster:
        drifted = EVENTS.configs(1) | {"message.timestamp.type": "CreateTime", "compression.type": "zstd"}
        await cluster.alter({EVENTS.name: drifted})
    third = await apply(broker, window_days=WINDOW_DAYS)
    assert [a.name for a in third.altered] == [EVENTS.name]
    async with admin(broker) as cluster:
        settings = (await cluster.topics([EVENTS.name]))[EVENTS.name].effective
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["retention.ms"] == str(7 * DAY_MS)
    assert settings["compression.type"] == "zstd"


async def test_a_losing_topic_is_refused_before_anything_is_made(broker):
    """On a compacted, short-lived events topic of another width nothing at all is created or changed."""
    async with admin(broker) as cluster:
        await cluster.create(
            [NewTopicSpec(EVENTS.name, 3, 1, {"cleanup.policy": "compact", "retention.ms": "60000"})]
        )
    with pytest.raises(TopicsRefused) as refused:
        await apply(broker, window_days=WINDOW_DAYS)
    assert len(refused.value.refusals) == 3
    async with admin(broker) as cluster:
        live = await cluster.topics(t.name for t in TOPICS)
    assert set(live) == {EVENTS.name}
    assert live[EVENTS.name].effective["retention.ms"] == "60000"
    assert len((await inspect(broker, window_days=WINDOW_DAYS)).create) == len(TOPICS) - 1
    with pytest.raises(KafkaError, match="topics apply"):
        await announce_schemas(broker)


async def test_a_refused_creation_is_an_error(broker):
    """A topic that the broker does not create is an error, although the client library does not raise."""
    async with admin(broker) as cluster:
        with pytest.raises(KafkaError, match="did not create too-wide"):
            await cluster.create([NewTopicSpec("too-wide", 1, 5, {})])


async def test_nobody_there_says_what_to_do():
    """Where no broker answers, the error names the address and the way out."""
    with pytest.raises(KafkaError, match="tokentrail up"):
        await apply("127.0.0.1:1", window_days=WINDOW_DAYS)


async def test_group_states_are_told(broker):
    """A group with a member is Stable and names it, one that nobody has joined is not and has none."""
    await apply(broker, window_days=WINDOW_DAYS)
    consumer = AIOKafkaConsumer(EVENTS.name, bootstrap_servers=broker, group_id="present")
    await consumer.start()
    try:
        async with admin(broker) as cluster:
            states = await cluster.groups(["present", "absent"])
    finally:
        await consumer.stop()
    assert (states["present"].state, len(states["present"].members)) == ("Stable", 1)
    assert states["absent"].state != "Stable"
    assert not states["absent"].members
