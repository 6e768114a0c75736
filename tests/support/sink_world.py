"""A sink's surroundings in memory, which outlive it: a log, a store, a graveyard, a clock, and crashes on order."""

from __future__ import annotations

import asyncio

from schemas.parts import SLICE_BYTES, cut
from sinks import rows
from sinks.batch import Limits
from sinks.intake import EventIntake
from sinks.loop import Loop, Ports
from sinks.memory import MemoryStore
from tests.support.records import CODEC, Raw, delta, generation_id, raw_of

STEPS = ("read", "bury", "insert", "inserted", "erase", "erased", "commit", "committed")
PARTITIONS = 2
SMALL = Limits(rows=3, bytes=10**9, age_s=1.0)


class Crash(BaseException):
    """The process is gone."""


class World:
    """A log, a store, a graveyard, and a clock, all of which outlive a sink; ``crashes`` says when it dies.

    A crash is the n-th time that a step is about to be taken ("inserted" and "committed": just after it took effect).
    """

    def __init__(self, log: list[list[Raw]], crashes=(), store: MemoryStore | None = None):
        self.log = log
        self.store = store or MemoryStore()
        self.crashes = set(crashes)
        self.committed = dict.fromkeys(range(len(log)), 0)
        self.buried: list[tuple[int, int, str]] = []
        self.counts = dict.fromkeys(STEPS, 0)
        self.trace: list[str] = []
        self.now = 0.0
        self.schema_refreshes = 0
        self.fifth_insert = asyncio.Event()

    def step(self, name):
        self.trace.append(name)
        self.counts[name] += 1
        if (name, self.counts[name]) in self.crashes:
            raise Crash

    def session(self, **changes):
        ports = Ports(Source(self), self, self, self, lambda: self.now)
        arguments = {"limits": SMALL, "schema_wait_s": 1.0} | changes
        return Loop(rows.EVENTS, lambda: EventIntake(CODEC), ports, **arguments)

    async def insert(self, table, block, token):
        self.step("insert")
        if self.counts["insert"] == 5:
            self.fifth_insert.set()
        self.store.insert(table, block, token)
        self.step("inserted")

    async def erase(self, erasure):
        self.step("erase")
        self.store.erase(erasure)
        self.step("erased")

    async def bury(self, record, stage, reason, detail):
        del stage, detail
        self.step("bury")
        self.buried.append((record.partition, record.offset, reason))

    async def refresh(self):
        self.schema_refreshes += 1

    def places(self):
        """Partition and offset of every row in the store, as a view counts them."""
        return sorted((row[0], row[1]) for row in self.store.final(rows.EVENTS))


class Source:
    """A consumer: its positions die with it, commits stay."""

    def __init__(self, world: World, chunk: int = 2):
        self.world = world
        self.positions = dict(world.committed)
        self.chunk = chunk

    async def read(self, wait_s):
        self.world.step("read")
        got = []
        for partition, at in self.positions.items():
            records = self.world.log[partition][at : at + self.chunk]
            self.positions[partition] += len(records)
            got += records
        if not got:
            self.world.now += wait_s
        return got

    async def commit(self, next_offsets):
        self.world.step("commit")
        self.world.committed |= next_offsets
        self.world.step("committed")


async def run_to_the_end(world: World, turns: int = 400):
    """Start a sink again whenever it died, until everything is committed."""
    ends = {p: len(records) for p, records in enumerate(world.log)}
    for _ in range(100):
        loop = world.session()
        try:
            for _ in range(turns):
                await loop.turn()
                if world.committed == ends:
                    return
        except Crash:
            if loop._settling is not None:
                loop._settling.cancel()
    raise AssertionError(f"not settled: {world.committed} of {ends}")


def log_of(kinds: str) -> list[list[Raw]]:
    """A log of two partitions: d delta, p poison, b a record in three parts."""
    log: list[list[Raw]] = [[] for _ in range(PARTITIONS)]
    for number, kind in enumerate(kinds):
        partition = number % PARTITIONS
        gid = generation_id(number)
        records = log[partition]
        if kind == "p":
            records.append(Raw("t", partition, len(records), gid.encode(), b"?"))
        elif kind == "d":
            records.append(raw_of("t", partition, len(records), delta(gid, 0, "x")))
        else:
            for value in cut(CODEC, delta(gid, 0, "y" * (SLICE_BYTES * 2))):
                records.append(Raw("t", partition, len(records), gid.encode(), value))
    return log


def expected(log):
    """Places of the rows and of the dead letters that a log must give."""
    stored, buried = [], []
    for records in log:
        intake = EventIntake(CODEC)
        for record in records:
            if record.value == b"?":
                buried.append((record.partition, record.offset, "undecodable"))
            elif intake.row(record) is not None:
                stored.append((record.partition, record.offset))
    return sorted(stored), sorted(buried)
