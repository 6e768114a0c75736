"""What a process writes: JSON a line, whoever speaks, and what a library repeats only now and then."""

import io
import json
import logging

import pytest
import structlog

import edge.app
import pipeline.logs
import sinks.app
from schemas.seldom import REPEAT_AFTER_S, Seldom


@pytest.fixture
def untouched():
    """The root logger as it was, and structlog's defaults, behind a test that configures them."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level, logging.getLogger("aiokafka").level)
    root.handlers = []
    logging.getLogger("aiokafka").setLevel(logging.NOTSET)  # the command line silences it for its own process
    yield
    root.handlers, level, vendor = before[0], before[1], before[2]
    root.setLevel(level)
    logging.getLogger("aiokafka").setLevel(vendor)
    structlog.reset_defaults()


def test_a_library_says_the_same_thing_seldom():
    """A sentence of a client is not repeated within some seconds, whatever it names; our own lines always stand."""
    seldom = Seldom()

    def passes(name, sentence, created, *names):
        record = logging.LogRecord(name, logging.WARNING, "", 0, sentence, names, None)
        record.created = created
        return seldom.filter(record)

    assert passes("aiokafka", "no node %s", 100.0, 1)
    assert not passes("aiokafka", "no node %s", 100.1, 2)
    assert passes("aiokafka", "no group", 100.1)
    assert passes("aiokafka", "no node %s", 100.1 + REPEAT_AFTER_S, 1)
    assert all(passes("pipeline.app", "dead letter", 100.0) for _ in range(3))


def configure(process, stream):
    """Have a process set up its logs; ``sys.stderr`` is the stream, too."""
    logging.getLogger().handlers = []  # also those that pytest adds for the test itself
    {
        "edge": lambda: edge.app.configure_logs(stream),
        "pipeline": pipeline.logs.configure_logs,
        "sinks": sinks.app._configure_log,
    }[process]()


@pytest.mark.parametrize("process", ["edge", "pipeline", "sinks"])
def test_an_outage_of_the_broker_is_a_few_lines_of_every_process(process, monkeypatch, untouched):
    """A client that says three hundred times that a node is away writes one line: JSON, with level and timestamp."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    configure(process, written)
    for node in range(300):
        logging.getLogger("aiokafka.client").error("Unable connect to node with id %s: %s", node, "refused")
    (line,) = written.getvalue().splitlines()
    said = json.loads(line)
    assert said["event"] == "Unable connect to node with id 0: refused"
    assert said["level"] == "error"
    assert said["timestamp"].endswith("Z")


class Full(io.TextIOBase):
    """A file on a full disk."""

    def write(self, text):
        """Have no room."""
        raise OSError(28, "No space left on device", text)


@pytest.mark.parametrize("process", ["edge", "pipeline", "sinks"])
def test_a_line_that_cannot_be_written_ends_nothing(process, monkeypatch, untouched):
    """With its log on a full disk a process goes on: neither its own lines nor a library's raise."""
    full = Full()
    monkeypatch.setattr("sys.stderr", full)
    configure(process, full)
    structlog.get_logger(process).error("a line")
    logging.getLogger("aiokafka.client").error("a line")
