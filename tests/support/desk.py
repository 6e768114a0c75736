"""A generation in the log, and the desk of the edge that runs it or of another one."""

import asyncio

from edge.metrics import Metrics
from edge.reading.resume import Desk, Opened, Presented
from edge.registry import Registry
from schemas.cursor import render, sign
from schemas.events import LogEvent
from schemas.settings import ApiKey
from tests.support.edge import CODEC, SECRET, Client, Writer, settings_of, turns

OWNER = ApiKey(id="key-1", tenant="acme", sha256="0" * 64)
COLLEAGUE = ApiKey(id="key-2", tenant="acme", sha256="1" * 64)
STRANGER = ApiKey(id="key-9", tenant="other", sha256="2" * 64)


class Scene:
    """A generation in the log, and the desk of the edge that runs it (memory) or of another one (log)."""

    def __init__(self, where, secrets=None, archive=None, configured=None):
        self.writer = Writer()
        self.where = where
        self.archive = archive
        self.offsets = {}
        settings = settings_of(secrets={"cursor": list(secrets or [SECRET.decode()])})
        self.registry = Registry(settings, Metrics(), self.writer.clock.now_us)
        if where == "memory":
            self.registry.add(self.writer.generation, driver=None)
        clock = self.writer.clock.clock()
        self.desk = Desk(
            settings,
            self.writer.log,
            CODEC,
            self.registry,
            clock,
            archive,
            configured,
            lambda tenant: {k.id for k in (OWNER, COLLEAGUE, STRANGER) if k.tenant == tenant},
        )

    @property
    def id(self):
        """Give the generation's id."""
        return self.writer.identity.generation_id

    async def written(self, texts=3, end="proper"):
        """Write a start, some text, and an end or none."""
        self.writer.start()
        for number in range(texts):
            self.writer.text(f"{number}")
        if end == "proper":
            self.writer.end()
        elif end == "error":
            self.writer.fail("edge_lost")
        await turns()
        return self

    def offset_of(self, seq):
        """Give the offset of a seq's (last) record, 0 for one that is not there."""
        key = self.id.encode()
        found = [r[0] for r in self.writer.log.records(self.writer.partition) if r[2] == key]
        held = [r for r in self.writer.log.records(self.writer.partition) if r[0] in found]
        return next((r[0] for r in reversed(held) if CODEC.decode(r[3], LogEvent).seq == seq), 0)

    def cursor(self, seq, *, secret=SECRET, key_id="key-1", offset=None, partition=None):
        """Give the id that a client was sent with an event."""
        where = self.writer.partition if partition is None else partition
        hint = self.offset_of(seq) if offset is None else offset
        return render(seq, where, hint, sign(secret, self.id, seq, key_id))

    async def ask(self, caller=OWNER, generation_id=None, **shown):
        """Present something to the desk."""
        async with asyncio.timeout(10):
            return await self.desk.open_stream(caller, generation_id or self.id, Presented(**shown))

    async def seqs(self, caller=OWNER, **shown):
        """Give the seqs that a stream gives to its end."""
        opened = await self.ask(caller, **shown)
        assert isinstance(opened, Opened), opened
        return (await Client(opened.follower).done()).seqs
