"""Everything that one played ``upstream`` vector left behind, at both ends, in the log and in the derived rows.

``play`` runs it: a provider (``player``), an edge (``edges``), the client's own stream, and a native reader that joins as
soon as the generation has an id. ``Observed`` gives the views that ``upstream_checks`` compares with ``expect``.
"""

import asyncio
import json
import time

from pipeline.fold import FoldPartition, Limits
from schemas.events import Kind, LogEvent, PartType
from schemas.parts import Joiner
from schemas.records import AttemptRecord, GenerationRecord

from . import wire
from .clients import CLIENTS
from .edges import BoundedLog, authorized, codec, running_edge, settings_of
from .player import writes_of
from .player_http2 import player_of

RECORD_BYTES_MAX = 1_048_576
NATIVE_NAMES = {"generation_error": "error"}
TERMINALS = ("message_end", "error")


async def play(vector, framing):
    """One generation from the request to everything that can be read of it afterwards."""
    log = BoundedLog(vector["settings"].get("log_max_record_bytes", RECORD_BYTES_MAX))
    async with player_of(vector, framing) as player:
        settings = settings_of(vector, player.base_url)
        async with running_edge(settings, log) as edge:
            client, live = await _converse(edge, vector)
            events = f"/v1/generations/{client.headers['x-generation-id']}"
            replay = await wire.fetch(edge.port, "GET", f"{events}/events", authorized())
            result = await wire.fetch(edge.port, "GET", f"{events}/result", authorized())
            assert await player.settled(), "an upstream connection is still open after the terminal"
        await asyncio.wait_for(player.left(), wire.READ_WITHIN_S)
    return Observed(vector, framing, player, log, edge.service, (client, live, replay, result))


async def _converse(edge, vector):
    """The client's stream and, beside it, a native reader of the same generation (None after a refusal)."""
    speaks = CLIENTS[vector["dialect"]]
    body = json.dumps(speaks.asked | vector.get("request", {})).encode()
    client = await wire.send(edge.port, "POST", speaks.path, authorized(), body)
    beside = None
    try:
        await client.head()
        if client.status == 200:
            target = f"/v1/generations/{client.headers['x-generation-id']}/events"
            beside = asyncio.create_task(wire.fetch(edge.port, "GET", target, authorized()))
        await client.rest()
        return client, None if beside is None else await beside
    finally:
        await client.close()
        if beside is not None:
            beside.cancel()


class Observed:
    """What was seen. Instants on the wire are ``time.monotonic`` seconds, those of the log ``elapsed_us``."""

    def __init__(self, vector, framing, player, log, service, answers):
        self.vector = vector
        self.framing = framing
        self.speaks = CLIENTS[vector["dialect"]]
        self.player = player
        self.log = log
        self.client, self.live, self.replay, self.result = answers
        self.sizes = []
        self.values = []
        self.records = []
        self.attempts = []
        self.row = None
        counted = service.metrics.registry.get_sample_value
        self.unknown_counted = counted("tokentrail_unknown_events_total", {"dialect": vector["dialect"]})
        self._fold(service.settings.stream.stall_threshold_ms * 1000)
        self.numbered = [event for event in self.records if event.seq is not None]
        self.terminal = self.numbered[-1]
        self.end = self.terminal.message_end or self.terminal.error
        self.parts = [part for event in self.numbered for part in event.canonical]
        self.native = [(NATIVE_NAMES.get(e.name, e.name), json.loads(e.data)) for e in self.replay.events]

    def _fold(self, threshold_us):
        """Decode the log and feed it through the pipeline's fold."""
        fold = FoldPartition(codec(), Limits(stall_threshold_us=threshold_us))
        joiner = Joiner(codec())
        outputs = []
        for _, (offset, _, key, value) in self.log.all_records():
            event = codec().decode(value, LogEvent)
            self.sizes.append(len(key) + len(value))
            self.values.append(value)
            outputs += fold.step(offset, event)
            whole = joiner.offer(event, offset)
            if whole is not None:
                self.records.append(whole)
        outputs += fold.at_end()
        self.attempts = sorted(
            (out for out in outputs if isinstance(out, AttemptRecord)), key=lambda out: out.attempt
        )
        rows = [out for out in outputs if isinstance(out, GenerationRecord)]
        assert len(rows) == 1, f"{len(rows)} rows of one generation"
        self.row = rows[0]

    @property
    def refused(self):
        """Whether the client got an answer that is no stream."""
        return self.client.status != 200

    @property
    def sent(self):
        """The events that the client got, heartbeats left out."""
        return [event for event in self.client.events if not self.speaks.is_heartbeat(event)]

    @property
    def delivered(self):
        """The attempt that the client was given: the committed one, else the last."""
        committed = [a for a in self.attempts if a.end.committed]
        return committed[0] if committed else self.attempts[-1]

    def texts(self, kind=PartType.TEXT, choice=None):
        """The non-empty fragments of a kind in the log."""
        return [
            part.text
            for part in self.parts
            if part.type is kind and part.text and choice in (None, part.choice_index)
        ]

    def native_texts(self):
        """The non-empty text fragments as the native dialect shows them."""
        return [
            part["text"]
            for _, data in self.native
            for part in data.get("parts", ())
            if part.get("type") == "text" and part.get("text")
        ]

    def wire_chunks(self):
        """(arrival, chunk) of the client's stream in the provider's dialect, end mark and errors left out."""
        chunks = [] if self.refused else [(e.at_s, e.data) for e in self.sent if e.data != "[DONE]"]
        return [(at_s, json.loads(data)) for at_s, data in chunks if '"error"' not in data]

    def wire_texts(self):
        """The non-empty text deltas that the client got."""
        return [text for _, chunk in self.wire_chunks() for text in self.speaks.texts(chunk)]

    def wire_terminals(self):
        """The terminals that the client got: message_end or error, in order."""
        if self.refused:
            return ["error"] if "error" in json.loads(self.client.body) else []
        return [kind for kind in map(self.speaks.terminal, self.client.events) if kind]

    def order(self):
        """Kinds of events as the native dialect shows them, heartbeats and frames left out."""
        return [name for name, _ in self.native if name not in ("frame", "heartbeat")]

    def tool_calls(self):
        """The calls of the log: index, id, name, arguments, and whether they are whole."""
        calls = {}
        for part in self.parts:
            if part.type is PartType.TOOL_CALL:
                call = calls.setdefault(part.tool_index, {"id": None, "name": None, "arguments": ""})
                call["id"] = call["id"] or part.tool_call_id
                call["name"] = call["name"] or part.name
                call["arguments"] += part.text
        ended = self.terminal.kind is Kind.MESSAGE_END
        return [
            {"index": index, **call, "complete": ended and _is_json(call["arguments"])}
            for index, call in sorted(calls.items())
        ]

    def contents(self):
        """(elapsed_us, event) of the delivered attempt's content in the log."""
        return [(event.elapsed_us, event) for event in self.numbered if event.has_content]

    def text_arrivals(self):
        """(written by the provider, read by the client) of each text delta, for the attempt that was delivered."""
        attempt = self.delivered.attempt
        written, parser, at = [], wire.StrictParser(), 0
        data = b"".join(d for _, d in _writes(self.vector["attempts"][attempt], self.framing))
        for write in self.player.requests[attempt].writes:
            done = parser.feed(data[at : at + write.size], write.at_s)
            at += write.size
            written += [e.at_s for e in done if e.data != "[DONE]" and self.speaks.texts(json.loads(e.data))]
        read = [at_s for at_s, chunk in self.wire_chunks() if self.speaks.texts(chunk)]
        return list(zip(written, read, strict=True))


def strict_events(attempt):
    """The events that a strict parser gets from an attempt's bytes."""
    parser = wire.StrictParser()
    for _, data in _writes(attempt, "as_given"):
        parser.feed(data, time.monotonic())
    return parser.events


def _writes(attempt, framing):
    return [(wait_s, data) for wait_s, data in writes_of(attempt, framing) if data]


def _is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
