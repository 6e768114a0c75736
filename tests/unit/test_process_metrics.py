"""What a worker and the sinks tell of themselves: each figure of the catalogue, and an address that bears anybody."""

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.metrics import WorkerMetrics
from schemas import exposition
from schemas.errors import TokentrailError
from schemas.exposition import HEAD_BYTES_MAX, exposed
from sinks.metrics import Observed, SinkMetrics, lag_of
from tests.support.figures import told as numbers

DOC = Path(__file__).parents[2] / "docs/metrics.md"
SECTION = re.compile(r"^## What (workers and sinks) count\n(.*?)^## ", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(tokentrail_\w+)` \|([^|]*)\|", re.MULTILINE)


def worker(**figures):
    """Give a worker's figures."""
    fold = SimpleNamespace(
        dead_letters=figures.get("letters", 0),
        lag=lambda: figures.get("lag", 0),
        open_count=lambda: 3,
        total={"generations": 4}.__getitem__,
    )
    billing = SimpleNamespace(attempts_settled=5, lines_unpriced=figures.get("unpriced", 0), dead_letters=7)
    return WorkerMetrics(fold, billing)


def sink(ends, *, stored=None, until_ms=None, letters=0):
    """Give the figures of one table at the second 100."""
    loop = SimpleNamespace(stored=stored or {}, stored_until_ms=until_ms, rows_stored=9, dead_letters=letters)
    table = Observed("events", loop, SimpleNamespace(ends=lambda: ends))
    return SinkMetrics([table], wall_ms=lambda: 100_000)


def told(metrics):
    """Give what is told, by name and labels."""
    return numbers(metrics.render().decode())


def test_the_catalogue_is_theirs():
    """The document's table has every figure of a worker and of the sinks with its labels, and no other."""
    rows = ROW.findall(SECTION.search(DOC.read_text())[2])
    named = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    found = {}
    for metrics in (worker(), sink({})):
        for family in text_string_to_metric_families(metrics.render().decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    assert named == found


def test_a_worker_tells_what_it_counts():
    """Lag, letters by stage and lines without a price are those of its parts, as they are when somebody looks."""
    seen = told(worker(lag=11, letters=2, unpriced=6))
    assert seen["tokentrail_fold_lag_records",] == 11
    assert seen["tokentrail_unpriced_lines_total",] == 6
    assert seen["tokentrail_dead_letters_total", "fold"] == 2
    assert seen["tokentrail_dead_letters_total", "billing"] == 7


@pytest.mark.parametrize(
    ("ends", "stored", "behind"),
    [
        ({}, {}, 0),
        ({0: (5, 5)}, {}, 0),
        ({0: (5, 9)}, {}, 4),
        ({0: (5, 9), 1: (0, 3)}, {0: 8}, 4),
        ({0: (5, 9)}, {0: 12}, 0),  # another member stored on
        ({0: (8, 9)}, {0: 3}, 1),  # it was ours before, and went on elsewhere
    ],
)
def test_a_sinks_lag_is_what_is_not_stored(ends, stored, behind):
    """From where it began or what it stored, whichever is further, to the end; never less than nothing."""
    assert lag_of(ends, stored) == behind


def test_a_sinks_freshness():
    """While something waits it is the age of what was stored last; with nothing waiting all is fresh."""
    assert (
        told(sink({0: (0, 5)}, stored={0: 3}, until_ms=98_500))["tokentrail_sink_freshness_s", "events"]
        == 1.5
    )
    assert (
        told(sink({0: (0, 5)}, stored={0: 5}, until_ms=98_500))["tokentrail_sink_freshness_s", "events"] == 0
    )
    assert told(sink({0: (0, 5)}))["tokentrail_sink_freshness_s", "events"] == 0
    assert told(sink({}, letters=2))["tokentrail_dead_letters_total", "sink.events"] == 2


async def test_it_is_told_over_http():
    """GET /metrics is answered, as often as asked and with a query; everything else is 404; no port is nobody."""
    async with exposed("127.0.0.1", 0, worker().render) as port, httpx.AsyncClient() as http:
        url = f"http://127.0.0.1:{port}"
        for path in ("/metrics", "/metrics?x=1"):
            answer = await http.get(url + path)
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert b"tokentrail_fold_lag_records 0.0" in answer.content
        assert (await http.get(f"{url}/")).status_code == httpx.codes.NOT_FOUND
        assert (await http.post(f"{url}/metrics")).status_code == httpx.codes.NOT_FOUND
        with pytest.raises(TokentrailError, match="PIPELINE_PORT"):
            async with exposed("127.0.0.1", port, worker().render):
                raise AssertionError("two told at one address")
    async with exposed("127.0.0.1", None, worker().render) as port:
        assert port is None


@pytest.mark.parametrize(
    "sent", [b"", b"GET", b"\xff" * (2 * HEAD_BYTES_MAX), b"\r\n\r\n", b"GET /metrics\r\n\r\n"]
)
async def test_a_stranger_costs_little(sent, monkeypatch):
    """What is no request, or never becomes one, is closed within the limits, and the next one is answered."""
    monkeypatch.setattr(exposition, "LIMIT_S", 0.1)
    async with exposed("127.0.0.1", 0, worker().render) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(10):
            try:
                await reader.read(-1)
            except ConnectionError:
                sent = None  # cut with bytes unread
        writer.close()
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"http://127.0.0.1:{port}/metrics")).is_success
