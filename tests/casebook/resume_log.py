"""The scripted side of a ``resume`` vector: a log, its author, and a provider that says what it is told.

Steps can be made to happen at named moments inside a read. Before it: a vector. After it: ``form_resume`` connects clients.
"""

import asyncio
import contextlib
import json
import time
from collections import deque

from edge.log import Progress
from edge.log.memory import MemoryLog
from schemas.codec import Codec
from schemas.cursor import render, sign
from schemas.events import (
    AttemptEnd,
    AttemptStart,
    Canonical,
    Kind,
    LogEvent,
    MessageEnd,
    MessageStart,
    Outcome,
    PartType,
)
from schemas.ids import uuid7
from schemas.partition import partition_of

from .edges import codec, wall_ms

SNAPSHOT, REPLAY = "after_snapshot_before_subscribe", "during_replay"
WITHIN_S = 10.0


async def until(condition, what):
    """Wait until something is so; a failed test where it never is."""
    deadline_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline_s, f"never: {what}"
        await asyncio.sleep(0.002)


class StagedLog(MemoryLog):
    """A log whose next reader lets steps happen at named moments of its reading, one record at a time."""

    def __init__(self):
        super().__init__(wall_ms)
        self.hooks = {}  # moment → what happens then, for the next reader of a generation

    def reader(self, partition, key, offset, *, every=False):
        """See EventLog."""
        reader = super().reader(partition, key, offset, every=every)
        return reader if every or not self.hooks else StagedReader(reader, self.hooks)

    def compact(self, partition, wanted):
        """Take records out as compaction does: the partition still begins where it began."""
        first = self._first[partition]
        self.drop(partition, wanted)
        self._first[partition] = first

    def events(self, generation_id):
        """(offset, event) of a generation, in log order."""
        records = self.records(partition_of(generation_id.encode(), self.partitions))
        mine = [(r[0], r[3]) for r in records if r[2] == generation_id.encode()]
        return [(offset, codec().decode(value, LogEvent)) for offset, value in mine]

    def has(self, generation_id, seq):
        """Whether the log holds this event."""
        return any(event.seq == seq for _, event in self.events(generation_id))


class StagedReader:
    """Hands a read's records out one by one, and does what was asked for between them."""

    def __init__(self, reader, hooks):
        self.every = reader.every
        self._reader = reader
        self._hooks = hooks
        self._handed = 0
        self._queue = deque()

    async def read(self):
        """See edge.log.Reader."""
        if not self._queue:
            self._queue.extend(_singles(await self._reader.read()))
        if self._handed:
            self._happen(REPLAY)
        progress = self._queue.popleft()
        self._handed += len(progress.records)
        if progress.caught_up:  # the snapshot is read; nothing of what comes now is in it
            self._happen(SNAPSHOT)
        return progress

    def _happen(self, moment):
        action = self._hooks.pop(moment, None)
        if action is not None:
            action()

    def close(self):
        """See edge.log.Reader."""
        self._reader.close()


def _singles(progress):
    """The same progress, one record at a time."""
    *before, last = progress.records or [None]
    for raw in before:
        yield Progress([raw], raw.offset + 1, caught_up=False, timestamp_ms=raw.timestamp_ms)
    yield progress._replace(records=[] if last is None else [last])


class Author:
    """Writes the events of one generation, as an edge would: numbered ones and the attempt's own between them."""

    def __init__(self, log, label, tenant, terminal_seq):
        self.id = uuid7(wall_ms(), time.monotonic_ns() & ((1 << 74) - 1))
        self.label, self.tenant = label, tenant
        self.key_id = f"key-{tenant}"
        self._log, self._terminal_seq = log, terminal_seq
        self.partition = partition_of(self.id.encode(), log.partitions)
        self._offsets = {}

    def append(self, seq):
        """The next event."""
        if seq == self._terminal_seq:
            end = AttemptEnd(
                provider="p",
                model="alpha",
                request_id="r",
                started_us=wall_ms() * 1000,
                outcome=Outcome.OK,
                committed=True,
            )
            self._put(Kind.ATTEMPT_END, after_seq=seq - 1, attempt_end=end)
        self._offsets[seq] = self._put(**self._numbered(seq))
        if seq == 0:
            self._put(
                Kind.ATTEMPT_START, after_seq=0, attempt_start=AttemptStart(provider="p", model="alpha")
            )

    def redeliver(self, seq):
        """The same record once more, at the log's end."""
        record = next(r for r in self._log.records(self.partition) if r[0] == self._offsets[seq])
        self._log.put(self.partition, record[2], record[3])

    def drop(self, seqs, how):
        """These events leave the log, and what was said between them."""

        def wanted(record):
            event = Codec().decode(record[3], LogEvent) if record[2] == self.id.encode() else None
            return event is not None and (event.seq in seqs or event.after_seq in seqs)

        (self._log.compact if how == "compact" else self._log.drop)(self.partition, wanted)

    def cursor(self, seq, secret):
        """The id of an event; of one that does not exist, what its id would be."""
        offset = self._offsets.get(seq, 10**6 + seq)
        return render(seq, self.partition, offset, sign(secret.encode(), self.id, seq, self.key_id))

    def _numbered(self, seq):
        if seq == 0:
            start = MessageStart(request_id="r", model="alpha", model_route="p/alpha", prompt_hash="h")
            return {"kind": Kind.MESSAGE_START, "seq": seq, "message_start": start}
        if seq == self._terminal_seq:
            end = MessageEnd(finish_reason="stop")
            return {"kind": Kind.MESSAGE_END, "seq": seq, "raw": "[DONE]", "message_end": end}
        text = text_of(self.label, seq)
        parts = [Canonical(type=PartType.TEXT, text=text)]
        return {"kind": Kind.DELTA, "seq": seq, "raw": chunk_of(text), "canonical": parts}

    def _put(self, kind, **fields):
        event = LogEvent(
            generation_id=self.id,
            tenant=self.tenant,
            key_id=self.key_id,
            dialect="openai.chat",
            kind=kind,
            wall_us=wall_ms() * 1000,
            edge_id="edge-0",
            elapsed_us=0,
            **fields,
        )
        return self._log.put(self.partition, self.id.encode(), codec().encode(event))


def text_of(label, seq):
    """A text that says whose it is."""
    return f"said by {label} at {seq}. "


def chunk_of(text):
    """A provider's chunk with this text."""
    return json.dumps({"id": "c1", "model": "alpha", "choices": [{"index": 0, "delta": {"content": text}}]})


class ScriptedProvider:
    """A provider that streams what it is told, when it is told, and notes when the edge closes the connection."""

    def __init__(self):
        self.calls = 0
        self.aborted_s = None
        self._writer = None
        self._done = False
        self._tasks = set()

    @property
    def base_url(self):
        """What a provider's ``base_url`` is configured with."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def say(self, data):
        """One event; ``[DONE]`` ends the body."""
        await until(lambda: self._writer is not None, "the provider was called")
        frame = f"data: {data}\n\n".encode()
        self._writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
        if data == "[DONE]":
            self._done = True
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(v for k, _, v in map(_field, head.split(b"\r\n")) if k.lower() == b"content-length")
            await reader.readexactly(int(length))
            self.calls += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
            writer.write(b"transfer-encoding: chunked\r\n\r\n")
            self._writer = writer
            await reader.read(1)
            if not self._done:
                self.aborted_s = time.monotonic()
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def _field(line):
    return line.partition(b":")
