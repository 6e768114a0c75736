"""One generation of an edge for tests: a clock that tests move, its memory, its recorder, and readers that collect."""

import asyncio

from edge.clock import Clock
from edge.follow import Follower, Hole, LogSilent, OffsetGone
from edge.generation import Generation, Identity
from edge.log.memory import MemoryLog
from edge.reading.replays import Replays
from edge.recorder import Recorder
from schemas.codec import Codec
from schemas.events import Canonical, ErrorEnd, Kind, MessageEnd, MessageStart, PartType
from schemas.ids import uuid7
from schemas.partition import partition_of
from schemas.settings import Settings

CODEC = Codec()
T0_US = 1_796_000_000_000_000
SECRET = b"a test's secret"
HALF_ORPHAN_US = 30_000_000
PARTITIONS = 4
START = MessageStart(request_id="req-1", model="gpt-x", model_route="sim/gpt-x", prompt_hash="ab" * 32)


class VirtualClock:
    """A clock that stands still until it is moved; its random bits count up."""

    def __init__(self):
        self.us = 0
        self._drawn = 0

    def now_us(self):
        """Give the monotonic microseconds."""
        return self.us

    def wall_us(self):
        """Give the UTC microseconds."""
        return T0_US + self.us

    def wall_ms(self):
        """Give the UTC milliseconds, as a log stamps its records."""
        return self.wall_us() // 1000

    def random_bits(self, count):
        """Give a number that was not drawn before."""
        self._drawn += 1
        return self._drawn % (1 << count)

    def clock(self):
        """Give it as the edge takes it."""
        return Clock(self.now_us, self.wall_us, self.random_bits, lambda: 0.0)


def settings_of(**sections):
    """Give settings of which a test names sections; neither the environment's nor a file's."""
    return Settings(**sections)


def identity_of(number=0, *, tenant="acme", key_id="key-1", dialect="openai.chat", at_us=T0_US):
    """Give the identity of the n-th generation of a test."""
    generation_id = uuid7(at_us // 1000, number)
    partition = partition_of(generation_id.encode(), PARTITIONS)
    return Identity(generation_id, tenant, key_id, dialect, partition, SECRET, START)


class Writer:
    """The owner edge's side of one generation: memory and recorder on a log in memory."""

    def __init__(self, clock=None, log=None, number=0, edge_id="edge-1", identity=None):
        self.clock = clock or VirtualClock()
        self.log = log or MemoryLog(self.clock.wall_ms, PARTITIONS)
        self.identity = identity or identity_of(number)
        self.generation = Generation(self.identity, self.clock.us, self.clock.wall_us(), "grace")
        self.told = []
        self.replays = Replays(1 << 20)  # of the edge whose readers follow the log
        self.recorder = Recorder(
            self.generation,
            self.log,
            CODEC,
            self.clock.clock(),
            edge_id,
            HALF_ORPHAN_US,
            self.told.append,
        )

    @property
    def partition(self):
        """Give the partition that it lies in."""
        return self.identity.partition

    def start(self):
        """Append message_start."""
        return self.recorder.numbered(Kind.MESSAGE_START, 0, message_start=START)

    def text(self, fragment="x"):
        """Append a delta."""
        parts = [Canonical(type=PartType.TEXT, text=fragment, tokens_estimate=1)]
        return self.recorder.numbered(Kind.DELTA, self.recorder.elapsed_us(), raw=fragment, canonical=parts)

    def end(self):
        """Append the proper end."""
        ended = MessageEnd(finish_reason="stop", output_hash=self.recorder.digest.output_hash())
        return self.recorder.numbered(
            Kind.MESSAGE_END, self.recorder.elapsed_us(), raw="[DONE]", message_end=ended
        )

    def fail(self, code="log_unavailable"):
        """Append an error terminal."""
        return self.recorder.numbered(
            Kind.ERROR,
            self.recorder.elapsed_us(),
            raw='{"error":{}}',
            error=ErrorEnd(code=code, message=code),
        )

    def follower(self, next_seq=0, *, local=True, offset=None):
        """Give a reader of this generation: of its memory, or of the log as another edge's."""
        start = self.generation.start_offset or 0 if offset is None else offset
        return Follower(
            self.log,
            CODEC,
            self.identity.generation_id,
            self.partition,
            next_seq,
            start,
            self.generation if local else None,
            replays=self.replays,
        )

    def window_seqs(self):
        """Give the seqs that readers may be given from memory."""
        return [delivered.event.seq for delivered in self.generation.window]

    def logged(self):
        """Give this generation's records as the log holds them (whole ones), in log order."""
        key = self.identity.generation_id.encode()
        return logged(self.log, self.partition, key)


def logged(log, partition, key):
    """Give a key's records of a partition, decoded, in log order."""
    from schemas.events import LogEvent

    return [CODEC.decode(value, LogEvent) for _, _, k, value in log.records(partition) if k == key]


async def turns(count=5):
    """Let the loop run what is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


class Client:
    """Reads a follower to its end in a task of its own; ``got`` is what it was given, in order."""

    def __init__(self, follower):
        self.follower = follower
        self.first_seq = follower.reading.next_seq
        self.got = []
        self.broke_off = None
        self.task = asyncio.ensure_future(self._follow())

    @property
    def seqs(self):
        """Give the seqs that it was given."""
        return [delivered.event.seq for delivered in self.got]

    @property
    def shown(self):
        """Give what it was given, as a comparison of live and replay sees it."""
        return [shown(delivered) for delivered in self.got]

    async def _follow(self):
        try:
            while not self.follower.ended:
                self.got += await self.follower.read()
        except (Hole, LogSilent, OffsetGone) as error:
            self.broke_off = error
        finally:
            self.follower.close()

    async def done(self, within_s=10):
        """Wait for the end of the reading."""
        await asyncio.wait_for(self.task, within_s)
        return self

    async def read(self, runs):
        """Wait for the end, or, of what still runs, for what is there."""
        if not runs:
            return await self.done()
        await turns()
        await self.leave()
        return self

    async def leave(self):
        """Go away in the middle."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def shown(delivered):
    """Give what the wire is made of: the event and where it lies, which is what its id says."""
    event = delivered.event
    return (event.seq, event.kind, event.raw, event.edge_id, delivered.partition, delivered.offset)
