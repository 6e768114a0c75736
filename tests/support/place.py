"""Edges in this process on a real Kafka with a real ClickHouse behind them, in front of the simulator; and what clients see.

``Place.owner`` is where generations run; ``Place.url`` is another edge that has the ClickHouse, ``Place.blind`` one whose
ClickHouse is away: neither has anything of a generation in memory.
"""

import asyncio
import contextlib

from compose.embedded.simulator import Simulator
from compose.target import Target
from edge.log.kafka import KafkaLog
from schemas.codec import Codec
from schemas.errors import Poison
from schemas.settings import ApiKey, Settings
from schemas.topics import EVENTS
from sinks import rows
from sinks.erasure import erasure_of
from sinks.intake import EventIntake
from tests.casebook.edges import running_edge
from tests.support.dialects import KEY_SHA256, OTHER_SHA256, QUICK
from tests.support.eventlogs import KafkaBackend
from tests.support.sinks import log_of

SCRIPT = QUICK | {"tokens": 6, "reasoning_tokens": 2, "tool_call": {}}
CALLS = {
    "openai.chat": (
        "/v1/chat/completions",
        {"model": "sim-chat", "messages": [{"role": "user", "content": "go"}]},
    ),
    "anthropic.messages": (
        "/v1/messages",
        {"model": "sim-fast", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]},
    ),
    "openai.responses": ("/v1/responses", {"model": "sim-fast", "input": "go"}),
}


def settings_of(kafka, clickhouse, database, simulator, edge_id):
    """Give the settings of an edge on these services."""
    base_url = simulator.base_url
    providers = {
        "chat": {"base_url": base_url},
        "responses": {"base_url": base_url, "dialect": "openai.responses"},
        "messages": {"base_url": base_url.removesuffix("/v1"), "dialect": "anthropic.messages"},
    }
    return Settings(
        edge={"id": edge_id, "drain_s": 0},
        kafka={"bootstrap_servers": kafka},
        clickhouse={"url": clickhouse, "database": database},
        providers=providers,
        models={"sim-chat": [{"provider": "chat", "model": "sim-fast"}]},
        default_route=[{"provider": name} for name in providers],
        keys=[
            ApiKey(id="key-1", tenant="acme", sha256=KEY_SHA256),
            ApiKey(id="key-2", tenant="other", sha256=OTHER_SHA256),
        ],
    )


class Place:
    """Three edges on one Kafka."""

    def __init__(self, kafka, store, urls, settings):
        self.kafka = kafka
        self.store = store
        self.owner, self.url, self.blind = urls
        self.backend = KafkaBackend(kafka)
        self.settings = settings

    @property
    def target(self):
        """Give it as the command line has it; ClickHouse is not asked."""
        return Target(self.settings, None, None, self.kafka, None, (self.url,), ())

    async def store_all(self):
        """Do what the events sink does, once, with all that the log holds now."""
        intake, block = EventIntake(Codec()), []
        for record in await log_of(self.kafka, EVENTS):
            with contextlib.suppress(
                Poison
            ):  # what another test left on the shared log: a sink's dead letter
                row = intake.row(record)
                block += [] if row is None else [row]
        await asyncio.to_thread(self.store.insert, rows.EVENTS, block, f"{len(block)} rows")
        erasure = erasure_of(rows.EVENTS, block)
        if erasure is not None:
            await asyncio.to_thread(self.store.erase, erasure)


@contextlib.asynccontextmanager
async def place(kafka, clickhouse, store, *, alone=False):
    """Run them until the block is left; ``alone``: one edge is all three, and what it knows of others is the log's."""
    database = store.query("SELECT currentDatabase() AS name")[0]["name"]
    async with Simulator(port=0) as simulator, contextlib.AsyncExitStack() as stack:
        urls = []
        three = [("edge-o", clickhouse), ("edge-a", clickhouse), ("edge-b", "http://127.0.0.1:1")]
        for edge_id, url in three[:1] if alone else three:
            settings = settings_of(kafka, url, database, simulator, edge_id)
            edge = await stack.enter_async_context(running_edge(settings, KafkaLog(settings, Codec())))
            urls.append(f"http://127.0.0.1:{edge.port}")
        yield Place(kafka, store, urls * 3 if alone else urls, settings)


async def said(http, place, dialect):
    """Begin and read a generation; its id, and its numbered frames."""
    path, asked = CALLS[dialect]
    body = asked | {"stream": True, "simulate": SCRIPT}
    answer = await http.post(place.owner + path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-generation-id"], frames(answer.content)


def frames(body):
    """Give the frames of a body that have an id, as bytes, without what only the first of a connection has."""
    own = (b"retry:", b":")
    found = [
        b"\n".join(line for line in frame.split(b"\n") if not line.startswith(own))
        for frame in body.split(b"\n\n")
    ]
    return [frame for frame in found if b"id: " in frame]


def ids_of(kept):
    """Give the ids of frames."""
    return [next(line[4:] for line in f.decode().split("\n") if line.startswith("id: ")) for f in kept]


async def read(http, url, generation_id, dialect, last_id=None):
    """Read a stream from an edge; its frames."""
    headers = {"last-event-id": last_id} if last_id else {}
    answer = await http.get(
        f"{url}/v1/generations/{generation_id}/events", params={"dialect": dialect}, headers=headers
    )
    assert answer.status_code == 200, (answer.status_code, answer.text)
    return frames(answer.content)


def offset_of(event_id):
    """Give the offset that an id names."""
    return int(event_id.split("-")[1].split(".")[1])
