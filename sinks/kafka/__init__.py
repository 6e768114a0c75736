"""Kafka as the sinks use it. The only folder of theirs that imports aiokafka.

``source`` the topic of a table · ``small`` dead letters and schemas · ``connection`` the beginning and end of a client
"""

from sinks.kafka.small import KafkaGraveyard, KafkaSchemas
from sinks.kafka.source import KafkaSource, LostRange

__all__ = ["KafkaGraveyard", "KafkaSchemas", "KafkaSource", "LostRange"]
