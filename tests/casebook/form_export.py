"""Form ``export``: records and exports in order, on a real ClickHouse; the files are compared with what the vector says.

A record goes the product's own way: it is billed by the pipeline's agent, its lines are decoded and stored by the sinks' code,
and each export is that of `tokentrail export bill` for the customer's side. A vector that leaves an earlier month open means it to
be billed with the next export, which the product does when it is asked to.
"""

import csv
import json
import uuid
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from pipeline.billing_agent import BillingAgent
from pipeline.tariff import Tariff
from schemas.codec import Codec
from schemas.events import AttemptEnd, Dispatch, Outcome, Usage, UsageSource
from schemas.ids import uuid7
from schemas.money import total
from schemas.prices import PriceBook, entry_of
from schemas.records import AttemptRecord
from sinks import derived
from sinks.exports.bill import Order, export_bill
from sinks.intake import intake_of
from tests.support.records import Raw
from tests.support.warehouse import empty_database

from .values import instant_us

SERVICES = ("clickhouse",)
TENANT = "t1"
LONG_AFTER, FAR_OFF = datetime(2100, 1, 1, tzinfo=UTC), "2099-12"
"""Every month of a vector is over by then, and before that one."""


def unsupported(vector):
    """Everything of this form is played."""


async def run(vector, tmp_path, clickhouse):
    """Play the steps, then compare lines, totals, identical exports, and what is quarantined and flagged."""
    with empty_database(clickhouse) as store:
        play = _Play(store, vector["prices"], tmp_path)
        for step in vector["steps"]:
            await play.step(step)
        told = [
            *play.exports,
            play.export(FAR_OFF, draft=True),
        ]  # the last names what came after the last step
    expect = vector["expect"]
    for made, wanted in zip(play.exports, expect["exports"], strict=True):
        assert made.month == wanted["month"]
        assert made.lines == {line["key"]: _wanted(line) for line in wanted["lines"]}
        assert (
            made.total == Decimal(wanted["total_usd"]) == total(amount for amount, *_ in made.lines.values())
        )
    for one, other in expect.get("identical", []):
        assert play.exports[one].files == play.exports[other].files
    assert {key for made in told for key in made.quarantined} == set(expect["quarantined"])
    assert {flag for made in told for flag in made.flags} == set(expect["flags"])


class _Play:
    """The books of one vector."""

    def __init__(self, store, prices, tmp_path):
        self._store, self._tmp_path = store, tmp_path
        self._codec = Codec()
        self._intake = intake_of(derived.LEDGER, self._codec)
        self._agent = BillingAgent(
            codec=self._codec,
            tariff=Tariff(PriceBook(entry_of(price) for price in prices)),
            publish=self._publish,
            dead_letter=_no_letter,
            halt=_no_halt,
        )
        self._offset = 0
        self._ids = {}
        self.exports = []

    async def step(self, step):
        """One record, or one export."""
        if step["op"] == "export":
            self.exports.append(self.export(step["month"]))
            return
        record = self._record(step)
        await self._agent.settle(record.generation_id.encode(), self._codec.encode(record))

    def key(self, generation_id, attempt):
        """Give the vector's name of an attempt."""
        labels = {known: label for label, known in self._ids.items()}
        return f"{labels[generation_id]}/{attempt}"

    def _record(self, step):
        started_us = instant_us(step["started_at"])
        label = step["generation_id"]
        self._ids.setdefault(label, uuid7(started_us // 1000, len(self._ids) + 1))
        end = AttemptEnd(
            provider="p1",
            model=step["model"],
            request_id="r1",
            started_us=started_us,
            outcome=Outcome.OK,
            committed=True,
            dispatch=Dispatch.ACCEPTED,
            finish_reason="stop",
            usage=msgspec.convert(step["usage"] | {"source": UsageSource.REPORTED}, Usage),
        )
        return AttemptRecord(
            tenant=TENANT,
            key_id="k1",
            generation_id=self._ids[label],
            attempt=step["attempt"],
            revision=1,
            dialect="openai.chat",
            edge_id="edge-1",
            wall_us=instant_us(step["finalized_at"]),
            end=end,
        )

    async def _publish(self, topic, key, value):
        row = self._intake.row(Raw(topic, 0, self._offset, key, value))
        self._store.insert(derived.LEDGER, [row], f"ledger:{self._offset}")
        self._offset += 1

    def export(self, month, *, draft=False):
        """Export a month into a folder of its own."""
        folder = self._tmp_path / str(len(self.exports))
        folder.mkdir()
        made = export_bill(
            self._store,
            Order(TENANT, month, with_earlier=True, draft=draft),
            folder / "bill.csv",
            now=LONG_AFTER,
            closing_id=str(uuid.uuid4()),
        )
        return _Export(self, month, folder, json.loads(made.manifest_path.read_text()))


class _Export:
    """What one export left in its folder."""

    def __init__(self, play, month, folder, manifest):
        self.month = month
        self.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        self.total = Decimal(manifest["sums"].get("USD", 0))
        self.quarantined = {play.key(*one["key"].split("/")) for one in manifest["quarantined"]}
        self.flags = {flag for one in manifest["quarantined"] for flag in one["flags"]}
        amounts, of = defaultdict(list), {}
        with (folder / "bill.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = play.key(row["generation_id"], row["attempt"])
                amounts[key].append(Decimal(row["amount"]))
                of[key] = (row["kind"], row["period"])
                self.flags |= set(row["flags"].split())
        self.lines = {key: (total(parts), *of[key]) for key, parts in amounts.items()}
        for key, (amount, kind, period) in self.lines.items():
            self.lines[key] = (amount, kind, period if kind == "adjustment" else None)


def _wanted(line):
    """A line of the vector, as ours are compared."""
    return Decimal(line["amount_usd"]), line.get("kind", "line"), line.get("period")


async def _no_letter(source, poison, *, stage):
    raise AssertionError(f"{stage}: a dead letter of {source}") from poison


def _no_halt(bug):
    raise bug
