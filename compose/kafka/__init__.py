"""What compose asks of a Kafka. The only folder of compose that imports aiokafka.

``admin`` (topics, settings, leaders, groups) · ``reader`` (the log from chosen offsets, without a group) · ``errors``.
"""

from compose.kafka.admin import Admin, LiveTopic, NewTopicSpec, admin
from compose.kafka.errors import KafkaError
from compose.kafka.reader import LogReader, Record, publish, read_whole

__all__ = [
    "Admin",
    "KafkaError",
    "LiveTopic",
    "LogReader",
    "NewTopicSpec",
    "Record",
    "admin",
    "publish",
    "read_whole",
]
