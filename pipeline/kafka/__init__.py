"""The pipeline's Kafka: the only folder here that imports aiokafka.

``producer`` sends and returns when everything is acknowledged; ``consumer`` reads the group's partitions and commits
offset and P together; ``whole`` reads a small topic from its beginning. What passes by itself is ``Transient``.

Before: ``fold_service``, ``app``. After: the broker.
"""

from pipeline.kafka.consumer import Committed, FoldConsumer, WorkerStopped, parse_commit
from pipeline.kafka.producer import Message, Producer
from pipeline.kafka.whole import read_whole

__all__ = [
    "Committed",
    "FoldConsumer",
    "Message",
    "Producer",
    "WorkerStopped",
    "parse_commit",
    "read_whole",
]
