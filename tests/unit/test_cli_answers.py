"""What a person copies out of the commands' answers is whole: ids and keys, on a narrow terminal too.

Before this file: ``compose.commands``. After it: nothing.
"""

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from compose.cli import app, main
from compose.commands import config, export, keys, sql, up
from compose.keys import of_settings
from compose.logs import Terminal
from compose.state import Folder, ServerInfo, StackState
from compose.target import NoStack
from schemas.settings import ApiKey
from sinks.exports.bill import Bill
from sinks.exports.statement import Item, Kind
from sinks.exports.tally import Tally

GENERATION_ID = "01a2294f-0f4d-7805-aca4-579fe3876d48"


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 80 columns, whose stdout is the test's."""
    for module in (keys, sql, up):
        monkeypatch.setattr(module, "out", Terminal(highlight=False, width=80))


def test_an_id_in_a_wide_answer_is_not_folded(narrow, capsys):
    """An answer that is wider than the terminal comes row by row, each value on one line, markup as it is."""
    row = (
        {"generation_id": GENERATION_ID} | {f"column_{n}": "a value" for n in range(8)} | {"text": "[b]" * 40}
    )
    sql.print_rows([row, row], sql.Format.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if GENERATION_ID in line] == [f"  generation_id  {GENERATION_ID}"] * 2
    assert sum(line.endswith("[b]" * 40) for line in lines) == 2


def test_an_answer_that_fits_is_a_table(narrow, capsys):
    """What fits has lines; what is wider stands in columns without; what is wider still comes row by row. All of it is whole."""
    lined, bare, records = 80 - 2 * 3 - 1, 80 - 2, 80 - 1
    for cells, head in ((lined, "┏"), (lined + 1, "text"), (bare, "text"), (records, "1")):
        row = {"text": "x" * (cells - 36), "generation_id": GENERATION_ID}
        sql.print_rows([row], sql.Format.TABLE)
        said = capsys.readouterr().out
        assert said.startswith(head)
        assert "x" * (cells - 36) in said
        assert GENERATION_ID in said


def test_a_cell_is_never_markup_and_never_a_python_value(narrow, capsys):
    """Brackets stay as they are, an instant is read at a glance, a list has no quotes."""
    at = datetime(2026, 11, 30, 3, 8, 27, 34000, tzinfo=UTC)
    sql.print_rows([{"text": "[b]x[/b]", "at": at, "why": ["one", "two"]}], sql.Format.TABLE)
    said = capsys.readouterr().out
    assert all(text in said for text in ("[b]x[/b]", " 2026-11-30 03:08:27.034 ", " one, two "))


@pytest.mark.parametrize("command", ["show", "diagnose", "cancel", "forget", "tail"])
def test_what_is_no_id_is_refused_before_anything_is_asked(command):
    """Half an id is told where a whole one is to be had, without a stack, a key or an edge."""
    result = CliRunner().invoke(app, [command, GENERATION_ID[-8:]], terminal_width=200)
    assert result.exit_code == 2
    assert "X-Generation-Id" in result.output


def test_without_a_stack_that_is_what_is_said(tmp_path):
    """`cancel` in a folder where nothing runs says so, and not that a key is missing."""
    with pytest.raises(NoStack, match="no stack runs in this folder"):
        CliRunner().invoke(app, ["cancel", GENERATION_ID, "--dir", str(tmp_path)], catch_exceptions=False)


def test_a_place_that_is_not_there_is_no_traceback(monkeypatch, capsys):
    """A folder that cannot be made is one sentence with its name, and exit code 1."""
    monkeypatch.setattr("sys.argv", ["tokentrail", "up", "--dir", "/proc/not/there"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: /proc/not/there cannot be written")


def test_keys_list_shows_each_id_whole(narrow, monkeypatch, capsys):
    """The id that `keys rotate` and `keys revoke` want stands in one piece, beside a long label."""
    configured = [
        ApiKey(id="globex-development", tenant="globex", name="a label of many words " * 4, sha256="0" * 64)
    ]

    class Book:
        async def held(self):
            return of_settings(configured)

    monkeypatch.setattr(keys, "_book", lambda _folder: Book())
    keys.show(as_json=False)
    assert "│ globex-development │" in capsys.readouterr().out


def test_config_show_gives_each_name_whole(narrow, monkeypatch, capsys, tmp_path):
    """A setting's name, which a file or a variable wants letter by letter, stands whole beside its value and source."""
    monkeypatch.setattr(config, "out", Terminal(highlight=False, width=80))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "TOKENTRAIL_EDGE__CORS_ORIGINS", '["https://a-long-name.example", "https://x.example"]'
    )
    config.show(tmp_path / "none", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    settings = [one for one in lines if not one.startswith(" ") and " = " in one]
    assert "stream.heartbeat_s = 15  (default)" in settings
    (origins,) = [one for one in settings if one.startswith("edge.cors_origins")]
    assert origins.endswith("['https://a-long-name.example', 'https://x.example']  (environment)")
    assert not any("…" in one for one in settings)


@pytest.mark.parametrize("is_ours", [True, False])
def test_up_says_the_development_keys_where_it_runs_already(narrow, tmp_path, capsys, is_ours):
    """A second `up` says the folder's keys, each whole on its line, and none where another configuration is in force."""
    folder, key = Folder(tmp_path), "tt-dev-acme-" + "x" * 80
    folder.write_keys({"acme": key})
    server = ServerInfo(kind="embedded", address="127.0.0.1:1")
    state = StackState(
        supervisor_pid=1,
        supervisor_mark="",
        started_us=0,
        config=str(folder.config if is_ours else tmp_path / "other.toml"),
        kafka=server,
        clickhouse=server,
        ready=True,
    )
    up._tell(state, folder, as_json=False, title="This stack already runs")
    assert (f"{key} (acme" in capsys.readouterr().out) is is_ours


def test_a_name_that_no_question_has_is_told_the_nearest():
    """`tokentrail sql stall` is no SQL: it is refused before anything is asked, with the name that was meant."""
    with pytest.raises(sql.UnknownQuestion, match=r"'stall'\. Did you mean 'stalls'"):
        sql.sql("stall")


@pytest.mark.parametrize("rows", [0, 3])
def test_an_empty_bill_says_for_whom_there_was_nothing(tmp_path, monkeypatch, capsys, rows):
    """A bill without a line names its tenant beside the answer, for a name that was mistyped; one with lines does not."""
    tally = Tally()
    for _ in range(rows):
        tally.add(
            Item(
                Kind.LINE,
                "2026-10",
                1,
                {"currency": "USD", "amount": None, "status": "", "conflicts": 0, "flags": []},
            )
        )
    made = Bill(Path("a"), Path("b"), Path("c"), "", "UTC", None, newly=False, tally=tally)
    monkeypatch.setattr(export, "target_of", lambda _folder: SimpleNamespace(warehouse=None))
    monkeypatch.setattr(export, "warehouse", lambda *_: nullcontext())
    monkeypatch.setattr(export, "export_bill", lambda *_args, **_more: made)
    export.bill(tenant="nobody", period="2026-10", file=tmp_path / "bill.csv", side="customer_charge")
    said = capsys.readouterr()
    assert ("'nobody'" in said.err) is (rows == 0)
    assert "note" not in said.out


def test_a_bill_says_beside_it_what_must_not_be_missed(tmp_path, monkeypatch, capsys):
    """Adjustments, months left for their own bill and what is quarantined are told by name, on stderr; the state in the answer."""
    tally, said = (
        Tally(),
        {"currency": "USD", "amount": Decimal(2), "quantity": 5, "status": "completed", "conflicts": 0},
    )
    said |= {
        "flags": [],
        "usage_source": "reported",
        "generation_id": GENERATION_ID,
        "attempt": 0,
        "bucket": "output",
    }
    said |= {"stands_quantity": 5, "stands_amount": Decimal(1), "content_hash": "h"}
    for kind, month in (
        ("adjustment", "2026-09"),
        ("left", "2026-08"),
        ("quarantined", "2026-10"),
        ("line", "2026-10"),
    ):
        tally.add(Item(Kind(kind), month, 1, said))
    closed = datetime(2026, 11, 3, 8, 1, tzinfo=UTC)
    made = Bill(
        Path("a"),
        Path("b"),
        Path("c"),
        "",
        "UTC",
        closed,
        newly=True,
        tally=tally,
        unreadable=("topic/0/7 (undecodable)",),
    )
    monkeypatch.setattr(export, "target_of", lambda _folder: SimpleNamespace(warehouse=None))
    monkeypatch.setattr(export, "warehouse", lambda *_: nullcontext())
    monkeypatch.setattr(export, "export_bill", lambda *_args, **_more: made)
    export.bill(tenant="acme", period="2026-10", file=tmp_path / "bill.csv")
    answer = capsys.readouterr()
    assert "2 lines, 4 USD (closed now, 2026-11-03 08:01 UTC)" in answer.out
    assert "with adjustments of 2026-09: 1 lines, 2 USD" in answer.err
    assert "not on it, since 2026-08 was never closed: 1 lines, 2 USD" in answer.err
    assert f"quarantined: {GENERATION_ID}/0 output (conflict)" in answer.err
    assert "not on it: the dead letter topic/0/7 (undecodable)" in answer.err
    export.bill(tenant="acme", period="2026-10", file=tmp_path / "bill.csv", as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed["quarantined"] == [f"{GENERATION_ID}/0"]
    assert (printed["adjustments"], printed["left"], printed["closed_now"]) == (
        {"2026-09": 1},
        {"2026-08": 1},
        True,
    )
