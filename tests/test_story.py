"""One event through all of it, in memory, top to bottom: read this first.

A client asks, the provider answers in pieces, the connection breaks, another edge goes on, the log is folded, billed and
stored. Only the network, Kafka and ClickHouse are left out; what stands in for them passes the same contract suites.
"""

import asyncio
import hashlib
from decimal import Decimal

from edge.app import build_app
from edge.clock import system_clock
from edge.log.memory import MemoryLog
from pipeline.fold import FoldPartition
from pipeline.tariff import Tariff
from schemas.digest import ContentDigest
from schemas.events import Canonical, Kind, PartType
from schemas.prices import PriceBook, entry_of
from schemas.records import AttemptRecord, GenerationRecord
from schemas.settings import ApiKey
from sinks import derived, rows
from sinks.intake import intake_of
from sinks.memory import MemoryStore
from tests.support.asgi import get, post
from tests.support.edge import CODEC
from tests.support.records import Raw, raw_of
from tests.support.running import BODY, RunningEdge
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, finish, usage

KEY = "a client's key"
AUTH = {"authorization": f"Bearer {KEY}"}
KEYS = (ApiKey(id="key-1", tenant="acme", sha256=hashlib.sha256(KEY.encode()).hexdigest()),)
PRICES = PriceBook(
    [entry_of({"model": "gpt-x", "from": "2025-01-01T00:00:00Z", "input": "2.00", "output": "8.00"})]
)


async def test_one_event_through_all_of_it():
    """What the provider said is what the clients got, what the log holds, what is billed and what SQL will answer."""
    # Two edges share nothing but the log; the provider says two words, waits, and says the rest.
    clock, go_on = system_clock(), asyncio.Event()
    log = MemoryLog(lambda: clock.wall_us() // 1000, partitions=4)
    provider = ScriptedUpstream(
        Script(chunk("Hello"), chunk(", "), go_on, chunk("world"), finish(), usage(3, 4), DONE)
    )
    edge_a = RunningEdge(provider, clock, log, keys=KEYS, edge={"id": "edge-a"})
    edge_b = RunningEdge(ScriptedUpstream(), clock, log, keys=KEYS, edge={"id": "edge-b"})
    async with edge_a, edge_b:
        # A client posts an ordinary chat request to one edge and reads the first words as they come.
        first = post(build_app(edge_a.service), "/v1/chat/completions", BODY, AUTH)
        await first.until(b'", "')
        generation_id, last_id = first.headers["x-generation-id"], first.events[-1].id

        # The connection breaks; the generation runs on, since a lost connection is no cancel.
        await first.hang_up()

        # The client comes back to the other edge with the id of the last event that it has.
        stream = f"/v1/generations/{generation_id}/events?dialect=openai.chat"
        second = get(build_app(edge_b.service), stream, AUTH | {"last-event-id": last_id})
        go_on.set()
        await second.done()
        assert second.headers["x-resumed-from"] == "2"

        # Both connections together are the whole stream: what a replay gives, ids included, nothing lost or repeated.
        replay = await get(build_app(edge_b.service), stream, AUTH).done()
        assert wire(first) + wire(second) == wire(replay)
        assert provider.calls[0].drained

    # The log is the stream: every event of the provider is one record, between our own records of what was done.
    ((key, partition),) = {(record[2], number) for number, record in log.all_records()}
    assert key == generation_id.encode()
    kinds = [event.kind for event in edge_a.records()]
    assert kinds[:2] == [Kind.MESSAGE_START, Kind.ATTEMPT_START]
    assert kinds[-2:] == [Kind.ATTEMPT_END, Kind.MESSAGE_END]
    assert kinds.count(Kind.DELTA) == 3

    # The pipeline folds the partition, record by record, into what is known of its attempt and its generation.
    fold = FoldPartition(CODEC)
    outputs = [output for offset, event in enumerate(edge_a.records()) for output in fold.step(offset, event)]
    attempt, generation = outputs
    assert isinstance(attempt, AttemptRecord)
    assert isinstance(generation, GenerationRecord)
    assert (generation.status, generation.terminal, generation.trace_complete) == (
        "complete",
        "message_end",
        True,
    )
    assert generation.output_hash == digest_of("Hello, world")
    assert fold.safe().commit_offset == len(edge_a.records())

    # Billing prices the attempt by what the provider reported: 3 tokens in, 4 out, exact.
    lines = Tariff(PRICES).bill(attempt)
    cost = {line.bucket: Decimal(line.amount) for line in lines if line.side == "provider_cost"}
    assert cost == {"input": Decimal("0.000006"), "output": Decimal("0.000032")}

    # The sinks turn all of it into rows and store them, twice, as after a crash; the store counts them once.
    store = MemoryStore()
    for token in ("a block", "the same records in another block"):
        raws = [
            Raw(rows.EVENTS.topic.name, partition, r[0], r[2], r[3], r[1]) for r in log.records(partition)
        ]
        insert(store, rows.EVENTS, raws, token)
        for table, records in (
            (derived.ATTEMPTS, [attempt]),
            (derived.GENERATIONS, [generation]),
            (derived.LEDGER, lines),
        ):
            raws = [raw_of(table.topic.name, 0, i, record) for i, record in enumerate(records)]
            insert(store, table, raws, token)

    # What SQL will answer: the text that the client saw, one generation, one attempt, what it cost.
    events = shown(store, rows.EVENTS)
    texts = [row["text"] for row in sorted(events, key=lambda row: row["offset"]) if row["seq"] is not None]
    assert "".join(texts) == "Hello, world"
    (row,) = shown(store, derived.GENERATIONS)
    assert (row["generation_id"], row["usage_output"], row["finish_reason"]) == (generation_id, 4, "stop")
    (row,) = shown(store, derived.ATTEMPTS)
    assert (row["outcome"], row["committed"]) == ("ok", True)
    ledger = shown(store, derived.LEDGER)
    assert sum(row["amount"] for row in ledger if row["side"] == "provider_cost") == Decimal("0.000038")


def wire(connection):
    """Give what a stream's reader is given: id, event and data of each event."""
    return [(event.id, event.event, event.data) for event in connection.events]


def digest_of(text):
    """Give the content hash of an answer of one text."""
    digest = ContentDigest()
    digest.update([Canonical(type=PartType.TEXT, text=text)])
    return digest.output_hash()


def insert(store, table, raws, token):
    """Do what a sink does with a batch: records to rows, rows to the store."""
    intake = intake_of(table, CODEC)
    store.insert(table, [intake.row(raw) for raw in raws], token)


def shown(store, table):
    """Give the rows that every view counts, by column."""
    return [dict(zip(table.columns, row, strict=True)) for row in store.final(table)]
