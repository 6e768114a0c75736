"""The command line: what it offers, what it says when something is missing, what it never shows."""

import asyncio
import json
import signal

import pytest
from typer.testing import CliRunner

from compose.cli import app
from compose.client import Frame, StreamBroken, _frames
from compose.commands import diagnose
from compose.commands.common import Interrupts
from compose.commands.sql import Format, print_rows
from compose.commands.tail import as_line, as_row
from compose.config import load_settings, write_development_config
from compose.demo import Proof, _failures
from compose.questions import QUESTIONS
from compose.state import Folder, ServerInfo, StackState
from compose.tail import Seen, text_of
from compose.target import NoStack, find_target
from compose.warehouse import WarehouseError
from schemas.errors import TokentrailError
from schemas.events import Canonical, Kind, LogEvent, MessageStart, PartType

GENERATION = "0197a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    """Each test runs in an empty folder and without settings in the environment."""
    for name in ("KAFKA__BOOTSTRAP_SERVERS", "CLICKHOUSE__URL", "API_KEY", "EDGE__PORT"):
        monkeypatch.delenv(f"TOKENTRAIL_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def invoke(*arguments):
    return CliRunner().invoke(app, arguments)


def event(kind, **fields):
    return LogEvent(
        generation_id=GENERATION,
        tenant="acme",
        key_id="k",
        dialect="openai.chat",
        kind=kind,
        wall_us=1,
        edge_id="edge-1",
        **fields,
    )


def test_every_command_is_offered_with_a_sentence():
    """The help names each command, and each has a description."""
    text = invoke("--help").output
    for name in (
        "up",
        "demo",
        "topics",
        "tail",
        "show",
        "diagnose",
        "cancel",
        "sql",
        "export",
        "doctor",
        "config",
    ):
        assert f" {name} " in text
    for command in app.registered_commands:
        assert command.callback.__doc__


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "apply"),
        ("tail",),
        ("tail", GENERATION),
        ("sql", "SELECT 1"),
        ("cancel", GENERATION, "--key", "k"),
        ("diagnose", GENERATION),
        ("export", "bill", "--tenant", "acme", "--period", "2026-11", "--out", "bill.csv"),
    ],
)
def test_without_a_stack_the_error_says_what_to_do(arguments):
    """A command that needs a stack, in a folder without one, names `tokentrail up` and --dir."""
    error = invoke(*arguments).exception
    assert isinstance(error, NoStack)
    assert "tokentrail up" in str(error)
    assert "--dir" in str(error)


def test_the_environment_names_a_stack(tmp_path, monkeypatch):
    """Kafka, ClickHouse and an edge of the environment are used without any folder."""
    monkeypatch.setenv("TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS", "broker:9092")
    monkeypatch.setenv("TOKENTRAIL_CLICKHOUSE__URL", "http://warehouse:8123")
    monkeypatch.setenv("TOKENTRAIL_EDGE__PORT", "1234")
    target = find_target(tmp_path / "none", tmp_path, {"TOKENTRAIL_API_KEY": "secret"})
    assert target.kafka == "broker:9092"
    assert target.warehouse.url == "http://warehouse:8123"
    assert target.edge == "http://127.0.0.1:1234"
    assert target.keys == ("secret",)


def test_a_dead_stack_is_no_stack(tmp_path):
    """A stack.json whose processes are all gone does not count as a running stack."""
    Folder(tmp_path).write_state(
        StackState(
            supervisor_pid=1,
            supervisor_mark="another life",
            started_us=0,
            config=str(tmp_path / "tokentrail.toml"),
            kafka=ServerInfo(address="127.0.0.1:1", kind="embedded"),
            clickhouse=ServerInfo(address="http://127.0.0.1:2", kind="embedded"),
            edges=["http://127.0.0.1:3"],
        )
    )
    with pytest.raises(NoStack):
        _ = find_target(tmp_path, tmp_path, {}).kafka


def test_the_development_configuration_is_valid_and_hides_its_keys(tmp_path):
    """The written configuration loads, has two tenants, holds no key in the clear, and is its owner's alone."""
    folder = Folder(tmp_path / "s")
    keys = write_development_config(folder, "http://127.0.0.1:1")
    settings = load_settings(folder.config)
    assert {key.tenant for key in settings.keys} == set(keys) == {"acme", "globex"}
    assert settings.models["sim-stall"][0].provider == "simulator"
    text = folder.config.read_text()
    assert not any(key in text for key in keys.values())
    assert folder.config.stat().st_mode & 0o077 == 0
    assert (folder.path / "keys.json").stat().st_mode & 0o077 == 0


def test_config_show_masks_secrets_and_names_sources(tmp_path, monkeypatch):
    """Secrets are stars; each setting says whether it is from the environment, the file, or a default."""
    folder = Folder(tmp_path / "s")
    write_development_config(folder, "http://127.0.0.1:1")
    secret = load_settings(folder.config).secrets.cursor[0].secret.get_secret_value()
    monkeypatch.setenv("TOKENTRAIL_STREAM__HEARTBEAT_S", "14")
    monkeypatch.setenv("TOKENTRAIL_CLICKHOUSE__PASSWORD", "hunter2")
    result = invoke("config", "show", "--dir", str(folder.path), "--json")
    shown = json.loads(result.output)["settings"]
    assert shown["stream.heartbeat_s"] == [14, "environment"]
    assert shown["secrets.cursor"][1] == "file"
    assert shown["edge.port"] == [8080, "default"]
    assert secret not in result.output
    assert "hunter2" not in result.output
    assert secret not in invoke("config", "show", "--dir", str(folder.path)).output


def test_an_invalid_configuration_names_each_fault(tmp_path):
    """Every fault of a configuration file stands in the error, with the place of each."""
    path = tmp_path / "tokentrail.toml"
    path.write_text("[stream]\nheartbeat_s = -1\nhartbeat = 2\n")
    with pytest.raises(TokentrailError, match=r"stream\.heartbeat_s(.|\n)*stream\.hartbeat"):
        load_settings(path)


def test_ready_questions_are_listed():
    """`sql --list` names every ready question, also as JSON."""
    assert set(json.loads(invoke("sql", "--list", "--json").output)) == set(QUESTIONS)
    text = invoke("sql", "--list").output
    assert all(name in text for name in QUESTIONS)


def test_rows_as_csv(capsys):
    """CSV has a header, quotes what needs it, and leaves null empty."""
    print_rows([{"a": 'x,"y"', "b": None}, {"a": "z", "b": 1.5}], Format.CSV)
    assert capsys.readouterr().out == 'a,b\n"x,""y""",\nz,1.5\n'


class Body:
    """A response's body in the given chunks."""

    def __init__(self, *chunks):
        self.content, self._chunks = self, chunks

    async def iter_any(self):
        for chunk in self._chunks:
            yield chunk


def parsed(*chunks):
    async def read():
        return [frame async for frame in _frames(Body(*chunks))]

    return asyncio.run(read())


def test_frames_are_parsed_by_the_standard():
    """Comments are skipped, data lines joined, the id kept for later events, an unfinished event dropped."""
    frames = parsed(b": hello\nid: 1-0.1-x\ndata: a\ndata: b\n\n", b"event: ping\ndata:\n\ndata: cut")
    assert frames == [Frame("1-0.1-x", "message", "a\nb"), Frame("1-0.1-x", "ping", "")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_frames_do_not_depend_on_chunks(end):
    """Cut at every byte, with each line ending, the same events come out."""
    whole = end.join([b"id: 7", "data: Zürich".encode(), b"", b"data: 2", b"", b""])
    expected = [Frame("7", "message", "Zürich"), Frame("7", "message", "2")]
    assert parsed(whole) == expected
    assert parsed(*(whole[i : i + 1] for i in range(len(whole)))) == expected


def test_a_line_without_end_is_refused():
    """A line beyond the limit is an error, not memory."""
    with pytest.raises(StreamBroken, match="no event stream"):
        parsed(*([b"x" * (1 << 20)] * 17))


def test_tail_shows_what_a_record_says():
    """Content is shown as text, other kinds by what they have of their own."""
    delta = event(Kind.DELTA, seq=3, canonical=[Canonical(type=PartType.TEXT, text="Hello")])
    start = event(
        Kind.MESSAGE_START,
        seq=0,
        message_start=MessageStart(request_id="r", model="m", model_route="m", prompt_hash="h"),
    )
    assert text_of(delta) == "Hello"
    assert text_of(start) == "model m, request r"
    row = as_row(Seen(5, 9, 1, delta))
    assert (row["partition"], row["offset"], row["seq"], row["kind"], row["text"]) == (
        5,
        9,
        3,
        "delta",
        "Hello",
    )
    assert GENERATION[-8:] in as_line(Seen(5, 9, 1, delta), with_id=True).plain
    assert "broken" in as_line(Seen(5, 9, 1, None, "broken"), with_id=True).plain


def frames(*numbers):
    return [
        Frame(f"{n}-0.{n}-sig", "message", json.dumps({"choices": [{"delta": {"content": str(n)}}]}))
        for n in numbers
    ]


ROW = {"terminal": "message_end", "status": "complete", "ttft_ms": 1.0}


@pytest.mark.parametrize(
    ("seen", "replay", "stored", "row", "resumed_from", "said"),
    [
        (frames(1, 2, 3), frames(1, 2, 3), "123", ROW, 2, []),
        (frames(1, 3), frames(1, 2, 3), "123", ROW, 2, ["differ", "hole", "text in ClickHouse"]),
        (frames(1, 2, 2, 3), frames(1, 2, 3), "123", ROW, 2, ["differ", "repeat", "text in ClickHouse"]),
        (frames(1, 2, 3), frames(1, 2, 3), "12", ROW, 2, ["text in ClickHouse"]),
        (frames(1, 2, 3), frames(1, 2, 3), "123", ROW, 1, ["resumed from 1"]),
        (frames(1, 2, 3), frames(1, 2, 3), "123", ROW | {"terminal": "error"}, 2, ["terminal is error"]),
    ],
)
def test_the_demo_notices_what_did_not_hold(seen, replay, stored, row, resumed_from, said):
    """A lost or repeated event, another text, another cursor or another end each make the demo fail, in words."""
    failures = _failures(seen, replay, stored, row, 2, resumed_from, same_edge=False, ledger=[{}])
    assert len(failures) == len(said)
    assert all(word in failure for word, failure in zip(said, failures, strict=True))


def test_a_cost_with_a_hole_is_not_a_sum():
    """The demo's cost is exact; where a line has no amount there is none, and the customer's side does not count."""
    from decimal import Decimal

    def proof(*amounts):
        lines = [{"side": "provider_cost", "amount": amount} for amount in amounts]
        lines.append({"side": "customer_charge", "amount": Decimal(9)})
        return Proof(GENERATION, 1, 1, 1, True, "", "", "", "", "message_end", 0.0, ROW, lines, ())

    assert proof(Decimal("0.0000010"), Decimal("0.000020")).provider_cost_usd == "0.000021"
    assert proof(Decimal(1), None).provider_cost_usd == ""


def test_diagnose_says_what_it_can_where_the_comparison_fails(monkeypatch):
    """What one generation says of itself needs its own row only: a refused comparison is a note beside it."""
    row = {"model": "m", "terminal": "error", "finish_reason": "error", "error_code": "overloaded", "attempts": 3,
           "trace_complete": True, "previous_generation_id": None}  # fmt: skip
    storm = {"name": "retry_storm", "evidence": '{"tries":3,"by_error":{"overloaded":3}}'}

    def answer(warehouse, sql, params):
        del warehouse, params
        if "diagnoses_across" in sql:
            raise WarehouseError("memory limit exceeded")
        return [row] if "generations_final" in sql else [storm] if "FROM diagnoses" in sql else []

    monkeypatch.setenv("TOKENTRAIL_CLICKHOUSE__URL", "http://warehouse:8123")
    monkeypatch.setattr(diagnose, "query", answer)
    said = json.loads(invoke("diagnose", GENERATION, "--json").output)
    assert [one["name"] for one in said["diagnoses"]] == ["retry_storm"]
    assert said["note"] == "memory limit exceeded"
    assert "3 tries" in invoke("diagnose", GENERATION).output


async def test_the_first_signal_ends_and_a_second_ctrl_c_hurries():
    """SIGTERM or Ctrl-C cancels what a command awaits, once; another SIGTERM is nothing, another Ctrl-C means hurry."""
    met = []

    async def command():
        interrupts = Interrupts()
        try:
            interrupts._heard(signal.SIGTERM)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            met.append(interrupts.asked)
        interrupts._heard(signal.SIGTERM)
        met.append(interrupts.hurry.is_set())
        interrupts._heard(signal.SIGINT)
        met.append(interrupts.hurry.is_set())
        await asyncio.sleep(0)  # nothing cancels it again

    try:
        await asyncio.create_task(command())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert met == [True, False, True]
