"""A real Kafka for a test session: `session_kafka` is the body of a session fixture."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from compose.embedded.kafka import EmbeddedKafka, KafkaOptions, default_cache_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def kafka_options(
    data_dir: Path, *, nodes: Literal[1, 3] = 1, port: int = 0, controller_port: int = 0
) -> KafkaOptions:
    """Give options for a test's broker: its own directory, the user's cache of jars."""
    return KafkaOptions(
        data_dir=data_dir,
        cache_dir=default_cache_dir(os.environ),
        environ=os.environ,
        port=port,
        controller_port=controller_port,
        nodes=nodes,
    )


@contextmanager
def session_kafka(tmp_dir: Path, nodes: Literal[1, 3] = 1) -> Iterator[EmbeddedKafka]:
    """Run a broker (or three) below `tmp_dir`, stopped at the end and killed with a test runner that dies.

    @pytest.fixture(scope="session")
    def kafka(tmp_path_factory):
        with session_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
            yield kafka
    """
    with EmbeddedKafka(kafka_options(tmp_dir / "kafka", nodes=nodes), die_with_parent=True) as kafka:
        yield kafka
