"""How every producer of ours is made: what the order and the durability of the log rest on."""

import pytest

from edge.log import connections
from pipeline.kafka import producer as of_pipeline
from pipeline.kafka.producer import Producer
from schemas.settings import Kafka
from sinks.kafka import small as of_sinks

SETTINGS = Kafka(bootstrap_servers="127.0.0.1:1")


class Made:
    """Takes a producer's settings, and connects to nothing."""

    def __init__(self, **settings):
        self.settings = settings

    async def start(self):
        pass

    async def stop(self):
        pass


async def of_edge(monkeypatch):
    monkeypatch.setattr(connections, "AIOKafkaProducer", Made)
    return await connections.started(SETTINGS)


async def of_worker(monkeypatch):
    monkeypatch.setattr(of_pipeline, "AIOKafkaProducer", Made)
    producer = Producer(SETTINGS)
    await producer.start()
    return producer._client


async def of_graveyard(monkeypatch):
    monkeypatch.setattr(of_sinks.aiokafka, "AIOKafkaProducer", Made)
    return of_sinks.KafkaGraveyard(SETTINGS)._producer


@pytest.mark.parametrize("make", [of_edge, of_worker, of_graveyard])
async def test_no_producer_gives_up_order_or_copies(monkeypatch, make):
    """Idempotent, so that a retry neither doubles nor overtakes, and acknowledged by all replicas that are in sync."""
    made = await make(monkeypatch)
    assert (made.settings["acks"], made.settings["enable_idempotence"]) == ("all", True)


async def test_the_client_refuses_the_one_without_the_other():
    """The check at the start is the client's own: idempotence with fewer acknowledgements is no producer."""
    with pytest.raises(ValueError, match="acks"):
        connections.AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", acks=1, enable_idempotence=True)
