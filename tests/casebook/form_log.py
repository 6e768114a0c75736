"""Form ``log``: a log in whatever state, read in passes with a restart between them; the rows that come out of it.

The records pass through the product's codec and fold. A record that the current schema cannot write is written with one
derived from it. Between passes the processor starts anew where the next pass begins; a record that was delivered before
keeps its offset (a rebalance delivers again), a copy within one pass has its own (the log holds it twice).
"""

import base64
import copy
import io
import json
import os
import time
from contextlib import contextmanager

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from msgspec import to_builtins

from pipeline.fold import FoldPartition, Limits
from schemas.avro import schema_of
from schemas.codec import MAGIC, Codec, check_key
from schemas.digest import ContentDigest
from schemas.errors import Poison
from schemas.events import (
    AttemptEnd,
    AttemptStart,
    Canonical,
    ErrorEnd,
    Kind,
    LogEvent,
    MessageEnd,
    MessageStart,
    Outcome,
    PartType,
    Usage,
    UsageSource,
)
from schemas.outcomes import finish_reason_of
from schemas.records import AttemptRecord, GenerationRecord

from .values import expand_text, instant_us

EVERY_GAP = -1  # a threshold below every gap makes a row of each
TERMINALS = ("message_end", "error")


def unsupported(vector):
    """Everything of this form is played."""


def run(vector, tmp_path):
    """Play all passes, then compare rows, dead letters, flags and counts with what the vector says."""
    with host_timezone(vector.get("host_tz", "UTC")):
        log = Log(vector["records"])
        seen = play(log, vector["passes"], vector["stall_threshold_ms"] * 1000)
        every_gap = play(log, vector["passes"], EVERY_GAP)
        expect = vector["expect"]
        assert set(seen.generations) == {identity(name) for name in expect["generations"]}
        for name, wanted in expect["generations"].items():
            assert_generation(wanted, identity(name), seen, every_gap, log)
        assert_dead_letters(expect, seen, log)
        flags = {flag for record in seen.generations.values() for flag in record.flags}
        assert set(expect.get("flags", [])) <= flags
        assert seen.gaps == expect.get("alerts", seen.gaps)
        assert seen.unknown_kinds == expect.get("metrics", {}).get("unknown_kinds", seen.unknown_kinds)
        if expect.get("same_as_single_pass"):
            once = play(log, [list(range(len(vector["records"])))], vector["stall_threshold_ms"] * 1000)
            assert once.rows() == seen.rows()


class Log:
    """The vector's records as bytes, each with the neighbours that it is delivered with."""

    def __init__(self, records):
        self.codec = Codec()
        self.records = records
        self.events = {}
        self.deliveries = []  # per record: [(key, value)], neighbours first
        attempts = set()
        for index, record in enumerate(records):
            neighbours = []
            if "value" in record and record["key"] == record["value"]["generation_id"]:
                neighbours = self._neighbours(index, record["value"], attempts)
            key = identity(record["key"]).encode()
            self.deliveries.append([*neighbours, (key, self._value(record))])

    def _neighbours(self, index, value, attempts):
        event = self.events[index] = event_of(value)
        around = []
        attempt = (event.generation_id, event.attempt)
        if attempt not in attempts:
            attempts.add(attempt)
            around.append(
                trace(event, Kind.ATTEMPT_START, attempt_start=AttemptStart(provider="p", model="m"))
            )
        if event.is_terminal:
            said = event.message_end or event.error
            end = AttemptEnd(
                provider="p",
                model="m",
                request_id="r",
                started_us=event.wall_us - event.elapsed_us,
                outcome=Outcome.OK if event.message_end else Outcome.FAILED,
                committed=True,
                usage=said.usage,
                dispatched_us=0,
                elapsed_us=event.elapsed_us,
            )
            around.append(trace(event, Kind.ATTEMPT_END, attempt_end=end))
        return [(e.generation_id.encode(), self.codec.encode(e)) for e in around]

    def _value(self, record):
        if "bytes" in record:
            return None if record["bytes"] is None else base64.b64decode(record["bytes"])
        value = record["value"]
        event = to_builtins(event_of(value), builtin_types=(bytes,))
        major, minor = value["schema_version"].split(".")
        schema = schema_of(LogEvent, int(major))
        fields = {field["name"]: field for field in schema["fields"]}
        if value["kind"] not in {kind.value for kind in Kind}:
            fields["kind"]["type"]["symbols"].append(value["kind"])
            event["kind"] = value["kind"]
        if "attempt" not in value:
            schema["fields"].remove(fields["attempt"])
        if minor != "0" or "future" in value or "future" in value["data"]:
            schema["fields"].append({"name": "future", "type": ["null", "long"], "default": None})
            canonical = fields["canonical"]["type"]["items"]
            canonical["fields"].append({"name": "future", "type": ["null", "string"], "default": None})
            event["future"] = 1
            event["canonical"] = [part | {"future": "1"} for part in event["canonical"]]
        return self._written(schema, event)

    def _written(self, schema, event):
        self.codec.learn(json.dumps(schema))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), event)
        mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
        return MAGIC + mark + out.getvalue()

    def content(self, generation_id, missing):
        """The canonical parts of what arrived, in seq order."""
        arrived = {e.seq: e for e in self.events.values() if e.generation_id == generation_id}
        return [part for seq in sorted(arrived) if seq not in missing for part in arrived[seq].canonical]


class Seen:
    """What the sinks hold in the end: the highest revision of each identity."""

    def __init__(self, codec):
        self.codec = codec
        self.attempts = {}
        self.generations = {}
        self.dead = {}
        self.gaps = 0
        self.unknown_kinds = 0
        self._bytes = {}

    def keep(self, output):
        """Take an output as a sink does; equal revisions must be equal bytes."""
        at = (type(output), output.generation_id, getattr(output, "attempt", None))
        data = self.codec.encode(output)
        assert self._bytes.setdefault((at, output.revision), data) == data
        table = self.attempts if isinstance(output, AttemptRecord) else self.generations
        key = output.generation_id if isinstance(output, GenerationRecord) else at[1:]
        if key not in table or table[key].revision < output.revision:
            table[key] = output

    def rows(self):
        """Every row as bytes."""
        return {
            key: self.codec.encode(row)
            for table in (self.attempts, self.generations)
            for key, row in table.items()
        }


def play(log, passes, threshold_us):
    """Deliver the passes to one fold after the other."""
    seen = Seen(log.codec)
    offsets, next_offset = {}, 0
    for order in passes:
        fold, delivered = None, set()
        for index in order:
            for part, (key, value) in enumerate(log.deliveries[index]):
                offset = offsets.get((index, part))
                if offset is None or index in delivered:
                    offset, next_offset = next_offset, next_offset + 1
                    offsets.setdefault((index, part), offset)
                if fold is None:
                    limits = Limits(stall_threshold_us=threshold_us)
                    fold = FoldPartition(log.codec, limits, position=offset, emit_from=offset)
                deliver(fold, seen, offset, (index, key, value), log.codec)
            delivered.add(index)
        for output in fold.at_end():
            seen.keep(output)
        seen.gaps += fold.counters.gaps
        seen.unknown_kinds += fold.counters.unknown_kinds
    return seen


def deliver(fold, seen, offset, record, codec):
    """One record, as the shell hands it to the fold."""
    index, key, value = record
    try:
        event = codec.decode(value, LogEvent)
        check_key(key, event.generation_id)
        outputs = fold.step(offset, event)
    except Poison as poison:
        fold.skip(offset)
        seen.dead[offset] = (index, poison.reason)
        return
    for output in outputs:
        seen.keep(output)


def assert_generation(wanted, generation_id, seen, every_gap, log):
    """One generation's row has the values that the vector names."""
    row = seen.generations[generation_id]
    missing = [seq for hole in row.missing for seq in range(hole.first, hole.last + 1)]
    gaps = [stall.length_us / 1000 for stall in every_gap.generations[generation_id].stalls if stall.counted]
    timings = row.timings
    found = {
        "status": row.status,
        "terminal": row.terminal,
        "missing": missing,
        "finalizations": 1,
        "billing_rows": sum(key[0] == generation_id for key in seen.attempts),
        "gaps_ms": gaps,
        "stall_count": timings.stall_count,
        "stall_ms": None if timings.stall_us is None else timings.stall_us / 1000,
        "attempt": row.committed_attempt,
        "raw_finish_reason": row.raw_finish_reason,
    }
    for name in wanted.keys() & found.keys():
        assert found[name] == wanted[name], name
    content = log.content(generation_id, missing)
    assert "".join(part.text for part in content if part.type is PartType.TEXT) == wanted["text"]
    digest = ContentDigest()
    digest.update(content)
    assert row.output_hash == digest.output_hash()
    for bucket, count in (wanted.get("usage") or {}).items():
        assert getattr(row.usage, bucket) == count, bucket
    durations = [value for value in to_builtins(timings).values() if isinstance(value, int)]
    assert all(value >= 0 for value in durations)


def assert_dead_letters(expect, seen, log):
    """Each poison record lies among the dead letters once, for the reason that is named unless it is raw bytes."""
    letters = sorted(seen.dead.values())
    assert [index for index, _ in letters] == sorted(d["record"] for d in expect["dead_letters"])
    reasons = dict(letters)
    for letter in expect["dead_letters"]:
        if "value" in log.records[letter["record"]]:
            assert reasons[letter["record"]] == letter["reason"]
    wanted = expect.get("metrics", {}).get("dead_letters", len(letters))
    assert len(letters) == wanted


def identity(label):
    """A generation id of our form for a vector's label."""
    return f"0199c0de-0000-7000-8000-{label.encode().hex():0>12}"


def event_of(value):
    """The LogEvent that a vector's canonical fields describe."""
    data, kind = value["data"], value["kind"]
    known = kind in {k.value for k in Kind}
    event = LogEvent(
        generation_id=identity(value["generation_id"]),
        tenant="acme",
        key_id="key-1",
        dialect="openai.chat",
        kind=Kind(kind) if known else Kind.UNKNOWN,
        wall_us=instant_us(value["wall"]),
        edge_id="edge-1",
        seq=value["seq"],
        attempt=value.get("attempt", 0),
        elapsed_us=value["elapsed_us"],
        raw=json.dumps(data),
        canonical=canonical_of(kind, data),
    )
    return with_payload(event, kind, data)


def canonical_of(kind, data):
    """The canonical parts of a content record."""
    if kind == "delta":
        return [Canonical(type=PartType.TEXT, text=expand_text(data["text"]))]
    if kind == "tool_call_delta":
        return [
            Canonical(
                type=PartType.TOOL_CALL,
                text=data["arguments"],
                tool_index=data["index"],
                tool_call_id=data.get("tool_call_id"),
                name=data.get("name"),
            )
        ]
    return []


def with_payload(event, kind, data):
    """The event with what its kind has of its own."""
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    usage = data.get("usage")
    usage = Usage(**usage, source=UsageSource.REPORTED) if usage else None
    if kind == "message_start":
        fields["message_start"] = MessageStart(
            request_id="r", model=data["model"], model_route="p", prompt_hash="h"
        )
    elif kind == "message_end":
        word = data.get("finish_reason")
        fields["message_end"] = MessageEnd(
            finish_reason=finish_reason_of(word), raw_finish_reason=word, usage=usage
        )
    elif kind == "error":
        fields["error"] = ErrorEnd(code=data["code"], message=data.get("message", ""), usage=usage)
    return LogEvent(**fields)


def trace(event, kind, **fields):
    """A trace record beside a numbered one."""
    return LogEvent(
        generation_id=event.generation_id,
        tenant=event.tenant,
        key_id=event.key_id,
        dialect=event.dialect,
        kind=kind,
        wall_us=event.wall_us,
        edge_id=event.edge_id,
        after_seq=event.seq - 1,
        attempt=event.attempt,
        elapsed_us=event.elapsed_us,
        **fields,
    )


@contextmanager
def host_timezone(name):
    """The host's zone, as the vector says it is."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()
