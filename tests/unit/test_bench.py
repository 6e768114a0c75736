"""The benchmarks' own arithmetic, and that the published figures are the ones that were measured."""

import asyncio
import json
import re

import pytest
from typer.testing import CliRunner

from compose.checkout import NoCheckout, run_in_checkout
from compose.cli import app
from tests.bench import report
from tests.bench.__main__ import BY_NAME, DOCUMENT, JSON_FILE, ROWS, main, write_docs
from tests.bench.backlog import generations_of, multiply
from tests.bench.client import STAMP, Exchange, percentile, request_of
from tests.bench.peers_running import peers
from tests.bench.progress import Sample, rate_of
from tests.bench.results import machine, row_of
from tests.bench.row_peers import _plain
from tests.bench.stack import BenchFailed
from tests.support.records import CODEC, delta, generation_id, start

ROUND = {"edge": {"cpu_us_per_chunk": 100.0, "added_p50_ms": 2.0}, "bare_proxy": {"cpu_us_per_chunk": 50.0}}


def test_the_document_is_made_from_the_results():
    """docs/benchmarks.md is exactly what docs/benchmarks.json says: no figure is edited by hand, none is left behind."""
    assert DOCUMENT.read_text() == report.document(json.loads(JSON_FILE.read_text()))


def test_writing_the_results_makes_both_files(tmp_path):
    """What is written as results is read again as the same document, with the machine and each figure in it."""
    rows = [
        row_of(
            "freshness", [{"freshness": {"p50_ms": 5, "p99_ms": 1234.5}, "poll": {"p50_ms": 1, "p99_ms": 3}}]
        )
    ]
    write_docs({"machine": machine(), "rows": rows}, tmp_path / "b.json", tmp_path / "b.md")
    text = (tmp_path / "b.md").read_text()
    assert text == report.document(json.loads((tmp_path / "b.json").read_text()))
    assert "1,234 ms (1,234–1,234)" in text
    assert machine()["kernel"] in text


def test_every_figure_belongs_to_a_row():
    """Each line of the document's table is of a row that can be measured, and every row has a line."""
    assert {figure.bench for figure in report.FIGURES} == set(ROWS)


def test_a_row_is_medians_with_their_spread():
    """Three rounds give the middle one, with the lowest and the highest beside it, under the same names."""
    rounds = [{"edge": {"p50_ms": value}} for value in (3.0, 1.0, 2.0)]
    row = row_of("edge", rounds, streams=20)
    assert row == {
        "bench": "edge",
        "streams": 20,
        "rounds": 3,
        "edge": {"p50_ms": 2.0},
        "spread": {"edge": {"p50_ms": [1.0, 3.0]}},
    }


def test_lines_are_chosen_by_the_number_of_streams():
    """The same figure for 20 and for 100 streams stands in two lines, each with its own value."""
    rounds = [dict(ROUND, bare_proxy={"cpu_us_per_chunk": 50.0, "p50_ms": 1.0, "p99_ms": 1.0})]
    rounds[0] |= {"edge": ROUND["edge"] | {"added_p99_ms": 3.0}, "broker": {"cpu_us_per_chunk": 9.0}}
    rows = [row_of("edge", rounds, streams=streams) for streams in (20, 100)]
    lines = [line[0] for line in report.cells_of(rows) if "CPU per chunk, log" in line[0]]
    assert [re.search(r"(\d+) streams", line)[1] for line in lines] == ["20", "100"]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles_are_values_that_occurred(share, expected):
    """The percentile of 1 … 100 is the nearest rank, never a value in between."""
    assert percentile(list(range(1, 101)), share) == expected


def test_a_rate_leaves_out_the_start_and_the_end():
    """Waiting for the first commit and for the last one changes nothing; the slope between them counts."""
    steady = [Sample(10 + nth, 1000 * nth, 5 + nth / 2) for nth in range(1, 6)]
    samples = [Sample(0, 0, 0), *steady, Sample(99, 5500, 50)]
    assert rate_of(samples) == {"records_per_s": 1000, "cpu_us_per_record": 500}
    with pytest.raises(BenchFailed, match="more records"):
        rate_of(samples[:4])


async def test_arrivals_are_those_of_the_last_byte():
    """A stamp that two reads brought counts with the second one; its number is whole."""
    answer = Exchange(b"")
    answer.pieces = [
        (10, b'HTTP/1.1 200 OK\r\n\r\ndata: {"sent_ns":1'),
        (20, b"23}}\n\n"),
        (30, b'"sent_ns":7}'),
    ]
    assert [(int(match[1]), at_ns) for match, at_ns in answer.arrivals(STAMP)] == [(123, 20), (7, 30)]
    answer.check()
    answer.pieces = [(1, b"HTTP/1.1 503 no\r\n")]
    with pytest.raises(BenchFailed, match="503"):
        answer.check()


async def test_events_are_counted_across_reads():
    """Waiting for two events ends with the second, wherever the reads cut the stream."""
    answer = Exchange(b"", awaited=2)
    for byte in b"\nid: 1\ndata: a\n\nid: 2\nda":
        answer.data_received(bytes([byte]))
    assert not answer.reached.done()
    answer.data_received(b"ta: b\n\n")
    assert answer.reached.done()
    assert len(answer.event_arrivals_ns()) == 2


async def test_a_request_is_understood_by_a_server():
    """Head, length and body of a request are what an HTTP server reads; its connection ends with the answer."""
    seen = []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head)[1])
        seen.append((head, await reader.readexactly(length)))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    request = request_of("POST", "/x", "key", {"a": 1}, {"last-event-id": "7"})
    _, answer = await loop.create_connection(lambda: Exchange(request), "127.0.0.1", port)
    await answer.closed
    server.close()
    await server.wait_closed()
    head, body = seen[0]
    assert head.startswith(b"POST /x HTTP/1.1\r\n")
    assert b"\r\nauthorization: Bearer key\r\n" in head
    assert b"\r\nlast-event-id: 7\r\n" in head
    assert body == b'{"a":1}'


def test_a_backlog_is_many_whole_generations():
    """Multiplied records decode, lie under their own new id, in their own order, in their partition, and overlap."""
    from schemas.events import LogEvent
    from schemas.partition import partition_of
    from schemas.topics import EVENTS

    old = generation_id(1)
    template = [CODEC.encode(event) for event in (start(old), delta(old, 1, "a"), delta(old, 2, "b"))]
    made = multiply([(old, template)], 3000, seed=1)
    assert sum(len(records) for records in made.values()) == 3000
    assert generations_of(made) == 1000
    seqs = {}
    for partition, records in made.items():
        for record in records:
            event = CODEC.decode(record.value, LogEvent)
            assert event.generation_id.encode() == record.key != old.encode()
            assert partition_of(record.key, EVENTS.partitions) == partition
            seqs.setdefault(record.key, []).append(event.seq)
    assert set(map(tuple, seqs.values())) == {(0, 1, 2)}
    some = next(iter(made.values()))
    assert some[0].key != some[1].key


def test_figures_of_a_short_run_are_not_published(capsys):
    """--write-docs takes a whole run only: not one row, and not a quick one."""
    for words in (["edge", "--write-docs"], ["--quick", "--write-docs"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert "whole run" in capsys.readouterr().err


def test_the_command_needs_a_checkout(tmp_path):
    """Where tests/ is absent the command says that the benchmarks are part of a checkout."""
    with pytest.raises(NoCheckout, match="checkout"):
        run_in_checkout(tmp_path, "bench", [])
    assert "reference" in CliRunner().invoke(app, ["bench", "--help"]).output


def test_the_command_offers_what_there_is(monkeypatch, capsys):
    """Every row and every option of the measuring has its place in the command, and the options reach it."""
    with pytest.raises(SystemExit):
        main(["--help"])
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help", "--rounds"}
    passed = []
    monkeypatch.setattr("compose.commands.bench.run_in_checkout", lambda *said: passed.extend(said[2]) or 0)
    said = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200"}).output
    assert [name for name in ROWS if name not in said] == []
    assert CliRunner().invoke(app, ["bench", "edge", *options]).exit_code == 0
    assert set(passed) == {"edge", *options}


def test_the_command_passes_on_words_and_exit_code(tmp_path):
    """The child gets the words as they are and runs in the checkout; its exit code is the command's."""
    package = tmp_path / "tests" / "bench"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import sys, os; open('ran', 'w').write(' '.join(sys.argv[1:])); sys.exit(3)"
    )
    assert run_in_checkout(tmp_path, "bench", ["edge", "--json"]) == 3
    assert (tmp_path / "ran").read_text() == "edge --json"


def test_a_peer_that_was_left_out_is_in_no_line():
    """A row without one of its servers has the lines of the others; whole runs install nothing unless they are told to."""
    figures = {"first_p50_ms": 1.0, "first_p99_ms": 1.0, "last_p50_ms": 1.0, "last_p99_ms": 1.0}
    figures |= {"storm_last_p50_ms": 1.0, "storm_last_p99_ms": 1.0, "storm_events_per_s": 5.0}
    lines = [cells[0] for cells in report.cells_of([row_of("peers", [{"edge": figures}], events=1000)])]
    assert len(lines) == len(figures)
    assert all(line.endswith(", the edge") for line in lines)
    assert "peers" in BY_NAME


async def test_a_peer_that_cannot_be_installed_is_left_out(tmp_path, monkeypatch):
    """Without npm and Redis here both are skipped with their names and reasons, and nothing fails."""
    said = []
    monkeypatch.setenv("PATH", str(tmp_path))
    async with peers(tmp_path, said.append) as found:
        assert found == []
    assert [re.search(r"peers: (\w+) is left out: .*not installed", line)[1] for line in said] == [
        "durable_streams",
        "resumable_stream",
    ]


def test_a_chunked_answer_loses_its_framing():
    """Chunks that cut an event anywhere are put together again."""
    answer = b"HTTP/1.1 200 OK\r\n\r\n5\r\ndata:\r\n4\r\n {}\n\r\n0\r\n\r\n"
    assert _plain(answer) == b"\ndata: {}\n"
