"""Reading a small topic from its beginning to its end, without a group.

Before: ``schema_topic``. After: the broker.
"""

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from pipeline.kafka.closing import close
from schemas.errors import Transient
from schemas.settings import Kafka

POLL_MS = 200
CLOSE_S = 3.0


async def read_whole(settings: Kafka, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of every record of a small topic with one partition; Transient while it cannot be read."""
    tp = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers,
        auto_offset_reset="none",
        enable_auto_commit=False,
        request_timeout_ms=settings.request_timeout_ms,
    )
    records: list[tuple[bytes | None, bytes | None]] = []
    try:
        await consumer.start()
        begin, end = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
        consumer.assign([tp])
        consumer.seek(tp, begin)
        while await consumer.position(tp) < end:
            batches = await consumer.getmany(timeout_ms=POLL_MS)
            records += [(record.key, record.value) for batch in batches.values() for record in batch]
    except KafkaError as error:
        raise Transient(f"{topic} cannot be read: {error!r}") from error
    finally:
        await close(consumer, CLOSE_S)
    return records
