"""The small parts of the worker's shell that need no broker."""

import hashlib
import json
import os
import sys

import pytest
import structlog

import pipeline.__main__ as worker
from pipeline.app import _Worker, build_app
from pipeline.dead_letters import VALUE_BYTES_MAX, Source, letter
from pipeline.kafka import Committed, WorkerStopped, parse_commit
from pipeline.schema_topic import SchemaTopic
from pipeline.slots import take_slot
from schemas.avro import schema_of
from schemas.codec import Codec
from schemas.errors import Poison, Transient
from schemas.events import LogEvent
from schemas.settings import Settings
from schemas.topics import DEAD_LETTER_HEADERS


def test_a_dead_letter_says_where_it_lay_and_why():
    """Value and key are the original bytes; every header of the contract is there as text."""
    source = Source("t", 3, 41, b"key", b"\xff\xfe")
    sent = letter(source, Poison("undecodable", "torn"), stage="fold", failed_us=7)
    assert (sent.key, sent.value) == (b"key", b"\xff\xfe")
    assert tuple(name for name, _ in sent.headers) == DEAD_LETTER_HEADERS
    told = {name: value.decode() for name, value in sent.headers}
    assert (told["topic"], told["partition"], told["offset"]) == ("t", "3", "41")
    assert (told["stage"], told["reason"], told["detail"], told["failed_us"]) == (
        "fold",
        "undecodable",
        "torn",
        "7",
    )


def test_a_dead_letter_always_fits():
    """A record that would be too large with its headers is cut, and says what it was; nothing at all is empty bytes."""
    large = b"x" * (VALUE_BYTES_MAX + 1)
    sent = letter(Source("t", 0, 0, b"k", large), Poison("undecodable", "d"), stage="fold", failed_us=0)
    detail = dict(sent.headers)["detail"].decode()
    assert len(sent.value) == VALUE_BYTES_MAX
    assert str(len(large)) in detail
    assert hashlib.sha256(large).hexdigest() in detail
    empty = letter(Source("t", 0, 0, None, None), Poison("tombstone", "d"), stage="fold", failed_us=0)
    assert (empty.key, empty.value) == (None, b"")


def test_p_is_read_from_the_commits_metadata():
    """Without metadata P is the offset; metadata of another kind stops the worker instead of being guessed."""
    assert parse_commit(7, "v1:19") == Committed(7, 19)
    assert parse_commit(7, "") == Committed(7, 7)
    for strange in ("v2:19", "19", "v1:", "v1:-3"):
        with pytest.raises(WorkerStopped):
            parse_commit(7, strange)


def test_a_slot_is_free_again_when_its_holder_is_gone(tmp_path):
    """Two workers of one folder have two names; the next one gets the name that was let go of."""
    one, two = take_slot(tmp_path / "new" / "folder"), take_slot(tmp_path / "new" / "folder")
    assert one.name != two.name
    os.close(one.descriptor)
    again = take_slot(tmp_path / "new" / "folder")
    assert again.name == one.name
    os.close(again.descriptor)
    os.close(two.descriptor)


class Topic:
    """A schemas topic in memory."""

    def __init__(self, *values):
        self.records = [(b"fp", value) for value in values]
        self.reads = 0

    async def read(self):
        self.reads += 1
        return list(self.records)

    async def send(self, messages):
        self.records += [(message.key, message.value) for message in messages]


async def test_what_is_written_is_announced_once():
    """The first worker puts its schemas there, the second finds them; what is no schema disturbs neither."""
    topic = Topic(b"no schema", None)
    for _ in range(2):
        await SchemaTopic(Codec(), topic.read, topic.send).announce()
    assert len(topic.records) == 2 + len(Codec().own_schemas)


async def test_an_unknown_schema_is_waited_for_and_then_poison():
    """It is read as soon as it is there; one that never comes is given up by name."""
    schema = schema_of(LogEvent)
    schema["fields"].append({"name": "later", "type": ["null", "long"], "default": None})
    codec, topic = Codec(), Topic(json.dumps(schema).encode())
    fingerprint = Codec().learn(json.dumps(schema))
    schemas = SchemaTopic(codec, topic.read, topic.send)
    await schemas.wait_for(fingerprint, 1.0)
    assert codec.knows(fingerprint)
    with pytest.raises(Poison) as poison:
        await schemas.wait_for("00" * 8, 0.12)
    assert poison.value.reason == "schema_version"
    assert topic.reads >= 2  # once for each, however slow the machine is


async def test_looking_a_schema_up_never_fails():
    """Whatever the bytes, and also while the topic cannot be read: the reader of the record decides."""

    async def away():
        raise Transient("no broker")

    schemas = SchemaTopic(Codec(), away, away)
    for value in (None, b"", b"\xc3\x01short", b"{}", b"\xc3\x01" + bytes(8) + b"body"):
        await schemas.look_up(value, 0.1)


async def test_the_framework_keeps_nothing_that_could_be_lost(tmp_path):
    """No table, no changelog, no store on a disk: what a restart needs is the log and its commits, and nothing beside."""
    settings = Settings(kafka={"bootstrap_servers": "127.0.0.1:1"}, pipeline={"data_dir": tmp_path / "faust"})
    app = build_app(settings, "worker-0")
    assert dict(app.tables) == {}
    assert app.conf.store.scheme == "memory"
    assert list(tmp_path.iterdir()) == []


def test_the_worker_writes_no_control_characters(tmp_path, capsys):
    """Faust's start ends without the cursor of its spinner, which made a line of the log no JSON."""
    settings = Settings(pipeline={"data_dir": str(tmp_path)})
    made = _Worker(
        build_app(settings, "worker-0"), quiet=True, override_logging=False, redirect_stdouts=False
    )
    made._on_startup_end_spinner()
    said = capsys.readouterr()
    assert said.out + said.err == ""


def test_a_worker_whose_folder_cannot_be_made_says_so(monkeypatch, tmp_path):
    """A file in the folder's place, or no right to make it: one line with the setting to change, and code 1."""
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENTRAIL_PIPELINE__DATA_DIR", str(tmp_path / "file" / "faust"))
    monkeypatch.setattr(worker, "configure_logs", lambda: None)
    monkeypatch.setattr(worker, "leave", sys.exit)
    with structlog.testing.capture_logs() as lines, pytest.raises(SystemExit, match="1"):
        worker.main()
    (line,) = lines
    assert "Not a directory" in line["error"]
    assert line["what_to_do"] == "set TOKENTRAIL_PIPELINE__DATA_DIR"
