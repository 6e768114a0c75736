"""The shell around billing: what it does with lines, poison, failures that pass, bugs and the end."""

import asyncio

import msgspec
import pytest

from pipeline.billing_agent import BillingAgent
from pipeline.dead_letters import Source
from pipeline.tariff import Tariff
from schemas.codec import Codec
from schemas.errors import Transient
from schemas.events import AttemptEnd, Dispatch, Outcome, Usage, UsageSource
from schemas.prices import PriceBook, entry_of
from schemas.records import AttemptRecord, GenerationRecord, LedgerLine
from schemas.topics import ATTEMPTS, LEDGER

CODEC = Codec()
TARIFF = Tariff(
    PriceBook(
        [entry_of({"model": "alpha", "from": "2026-01-01T00:00:00Z", "input": "2.00", "output": "8.00"})]
    )
)
RECORD = AttemptRecord(
    tenant="acme",
    key_id="k1",
    generation_id="g1",
    attempt=0,
    revision=1,
    dialect="openai.chat",
    edge_id="edge-1",
    wall_us=1_777_622_400_000_000,
    end=AttemptEnd(
        provider="p1",
        model="alpha",
        request_id="r1",
        started_us=1_777_622_400_000_000,
        outcome=Outcome.OK,
        committed=True,
        dispatch=Dispatch.ACCEPTED,
        finish_reason="stop",
        usage=Usage(input=100, output=10, source=UsageSource.REPORTED),
    ),
)
VALUE = CODEC.encode(RECORD)


class Kafka:
    """Takes records, after it has failed so often as it is told."""

    def __init__(self, failures=0):
        self.failures = failures
        self.lines = []
        self.letters = []
        self.failed = asyncio.Event()

    def _fail(self):
        if self.failures:
            self.failures -= 1
            self.failed.set()
            raise Transient("the broker is away")

    async def publish(self, topic, key, value):
        self._fail()
        self.lines.append((topic, key, CODEC.decode(value, LedgerLine)))

    async def dead_letter(self, source, poison, *, stage):
        self._fail()
        self.letters.append((source, poison.reason, stage))


def agent(kafka, halted=None, **said):
    def halt(bug):
        if halted is None:
            raise bug
        halted.append(bug)

    said = {"codec": CODEC, "tariff": TARIFF, "halt": halt} | said
    return BillingAgent(publish=kafka.publish, dead_letter=kafka.dead_letter, **said)


async def test_every_line_is_published_under_the_generations_key():
    """One attempt gives its lines of both sides, keyed by generation, in the ledger's topic."""
    kafka = Kafka()
    billing = agent(kafka)
    await billing.settle(b"g1", VALUE)
    assert {(topic, key) for topic, key, _ in kafka.lines} == {(LEDGER.name, b"g1")}
    assert [line for _, _, line in kafka.lines] == TARIFF.bill(RECORD)
    assert (billing.attempts_settled, billing.lines_published, billing.dead_letters) == (1, 4, 0)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"g1", None, "tombstone"),
        (b"g1", b"\xc3\x01\x00", "undecodable"),
        (b"g2", VALUE, "key_mismatch"),
        (None, VALUE, "key_mismatch"),
        (b"g1", VALUE + b"\x00", "undecodable"),
    ],
)
async def test_poison_becomes_a_dead_letter_with_its_bytes(key, value, reason):
    """What can never be billed is set aside as it came, and nothing is published."""
    kafka = Kafka()
    await agent(kafka).settle(key, value, partition=3, offset=42)
    assert kafka.letters == [(Source(ATTEMPTS.name, 3, 42, key, value), reason, "billing")]
    assert kafka.lines == []


async def test_a_record_of_another_type_is_poison():
    """Well-formed bytes of another record are no attempt."""
    other = GenerationRecord(
        tenant="t",
        generation_id="g1",
        key_id="k",
        revision=0,
        status="complete",
        dialect="openai.chat",
        edge_id="e",
        terminal="error",
        terminal_seq=1,
    )
    kafka = Kafka()
    await agent(kafka).settle(b"g1", CODEC.encode(other))
    assert [letter[1] for letter in kafka.letters] == ["undecodable"]


@pytest.mark.parametrize("value", [VALUE, None])
async def test_a_failure_that_passes_is_tried_again_in_place(value):
    """With the broker away for a while, lines and dead letters still arrive, once each."""
    kafka = Kafka(failures=2)
    billing = agent(kafka)
    await billing.settle(b"g1", value)
    assert billing.retries == 2
    assert len(kafka.lines) + len(kafka.letters) == (4 if value else 1)


async def test_an_unknown_schema_is_waited_for_and_then_set_aside():
    """A fingerprint that nobody explains in time is a dead letter, not an endless wait."""
    kafka = Kafka()
    billing = agent(kafka, schema_wait_s=0.1)
    foreign = VALUE[:2] + b"\x01" * 8 + VALUE[10:]
    await billing.settle(b"g1", foreign)
    assert [letter[1] for letter in kafka.letters] == ["schema_version"]
    assert billing.retries >= 1


async def test_a_schema_that_comes_in_time_settles_the_record():
    """The record is decoded as soon as its schema has been learned."""
    kafka, codec = Kafka(), Codec()

    class Late:
        """A codec whose first look finds no schema."""

        looks = 0
        encode = staticmethod(codec.encode)

        def decode(self, value, record):
            self.looks += 1
            return codec.decode(VALUE[:2] + b"\x01" * 8 if self.looks == 1 else value, record)

    await agent(kafka, codec=Late()).settle(b"g1", VALUE)
    assert (len(kafka.lines), kafka.letters) == (4, [])


async def test_a_bug_halts_the_process_and_acknowledges_nothing():
    """An error that is neither poison nor transient never lets settle return."""

    class Broken(Tariff):
        def bill(self, record):
            raise ZeroDivisionError(record.attempt)

    halted = []
    billing = agent(Kafka(), halted, tariff=Broken(PriceBook([])))
    task = asyncio.create_task(billing.settle(b"g1", VALUE))
    _, pending = await asyncio.wait({task}, timeout=0.05)
    assert pending == {task}
    assert [type(bug) for bug in halted] == [ZeroDivisionError]
    assert billing.attempts_settled == 0
    task.cancel()


async def test_a_stop_during_a_retry_gives_up_instead_of_losing_the_record():
    """A worker that is stopped while the broker is away says that it gave up, and never acknowledges the record."""
    kafka, halted = Kafka(failures=1_000), []
    billing = agent(kafka, halted)
    task = asyncio.create_task(billing.settle(b"g1", VALUE))
    await kafka.failed.wait()
    billing.stop()
    await billing.gave_up.wait()
    _, pending = await asyncio.wait({task}, timeout=0.05)
    assert (pending, halted, billing.attempts_settled) == ({task}, [], 0)
    task.cancel()


async def test_settling_twice_publishes_equal_lines():
    """A record that is delivered again gives the same bytes, so that the ledger has nothing to decide."""
    kafka = Kafka()
    billing = agent(kafka)
    await billing.settle(b"g1", VALUE)
    await billing.settle(b"g1", VALUE)
    assert kafka.lines[:4] == kafka.lines[4:]
    changed = msgspec.structs.replace(RECORD, revision=2)
    await billing.settle(b"g1", CODEC.encode(changed))
    assert {line.revision for _, _, line in kafka.lines[8:]} == {2}
