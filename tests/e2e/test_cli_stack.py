"""Every command against one running stack: the demo's proof, then what an operator, an analyst and finance would ask."""

import asyncio
import csv
import io
import json
import time

import httpx
import pytest
from typer.testing import CliRunner

from compose.cli import app
from compose.client import EdgeClient
from compose.config import load_settings
from compose.demo import prove
from compose.demo_tries import HEDGING, second_tries
from compose.questions import QUESTIONS
from compose.state import Folder
from tests.support.place import frames, ids_of
from tests.support.stack import ready_state, supervised

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]
GONE = "019f0000-0000-7000-8000-000000000001"
"""An id of a time long before any test."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Give the folder and the state of one running stack."""
    folder = Folder(tmp_path_factory.mktemp("cli") / "stack")
    with supervised(folder, environ=HEDGING) as process:
        yield folder, ready_state(folder, process)


@pytest.fixture(scope="module")
def proof(stack):
    """Give what the demo found on that stack."""
    folder, state = stack
    clickhouse = load_settings(state.config).clickhouse.model_copy(update={"url": state.clickhouse.address})
    return asyncio.run(prove(state, folder.read_keys()["acme"], clickhouse, lambda _: None))


def invoke(stack, *arguments, code=0):
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--dir", str(stack[0].path)])
    assert result.exit_code == code, f"{result.output} {result.exception!r}"
    return result.output


def test_the_demo_holds(stack, proof):
    """Cut, resumed on the other edge, read again and stored: the same text, no failure, an exact cost."""
    assert proof.failures == ()
    summary = proof.as_json(stack[1])
    assert summary["text_sha256_live"] == summary["text_sha256_resumed"] == summary["text_sha256_clickhouse"]
    assert summary["resumed_on_other_edge"] is True
    assert summary["cut_after_seq"] == summary["resumed_from_seq"]
    assert summary["stall_count"] >= 1  # a busy machine may add silences of its own
    assert summary["stall_ms"] > 2300
    assert summary["usage"]["output"] == 60
    assert summary["provider_cost_usd"] == "0.0000255"  # 15 × 0.10 + 60 × 0.40 per million tokens
    assert summary["kafka"]["kind"] == summary["clickhouse"]["kind"] == "embedded"
    assert summary["kafka"]["version"].startswith("4.")


def test_the_demos_second_tries_hold(stack):
    """A provider that fails at once is tried again, one that falls silent is hedged; one answer each, of the second try."""
    folder, state = stack
    clickhouse = load_settings(state.config).clickhouse.model_copy(update={"url": state.clickhouse.address})
    key = folder.read_keys()["acme"]
    tried = asyncio.run(second_tries(state, key, clickhouse, lambda _: None))
    assert [fault for name, one in tried.items() for fault in one.failures(name)] == []
    assert {name: one.reasons for name, one in tried.items()} == {
        "retry": ("first", "retry"),
        "hedge": ("first", "hedge_ttft"),
    }
    broken = tried["retry"]._replace(committed=0, tokens=1)
    assert len(broken.failures("retry")) == 2


def test_doctor_is_green(stack):
    """On a healthy stack no check is red and none is skipped."""
    checks = json.loads(invoke(stack, "doctor", "--json"))
    assert checks["ok"] is True
    assert {check["verdict"] for check in checks["checks"]} == {"ok"}
    assert " red " not in invoke(stack, "doctor")


def test_doctor_names_what_is_wrong(stack):
    """An edge that is not there is red, says what to do, and the exit code tells."""
    checks = json.loads(invoke(stack, "doctor", "--json", "--edge", "http://127.0.0.1:1", code=1))["checks"]
    red = {check["name"]: check["remedy"] for check in checks if check["verdict"] == "red"}
    assert "edges ready" in red
    assert all(red.values())


def test_tail_reads_what_the_clients_got(stack, proof):
    """`tail ID --json` gives each numbered record once, in order, from start to terminal, with the same text."""
    rows = [json.loads(line) for line in invoke(stack, "tail", proof.generation_id, "--json").splitlines()]
    numbered = [row for row in rows if "seq" in row]
    assert [row["seq"] for row in numbered] == list(range(len(numbered)))
    assert (numbered[0]["kind"], numbered[-1]["kind"]) == ("message_start", "message_end")
    assert "".join(row["text"] for row in numbered if row["kind"] == "delta") == proof.text
    assert any(row["kind"] == "attempt_end" for row in rows) or len(rows) > len(numbered)
    shown = invoke(stack, "tail", proof.generation_id, "--no-trace")
    assert "message_start" in shown
    assert "heartbeat" not in shown


def test_show_tells_the_story(stack, proof):
    """`show ID` has timeline, stall, attempt and ledger, from the edge and from ClickHouse."""
    shown = json.loads(invoke(stack, "show", proof.generation_id, "--json"))
    assert shown["edge"]["state"] == "finalized"
    assert shown["generation"][0]["terminal"] == "message_end"
    assert len(shown["stalls"]) == shown["generation"][0]["stall_count"] >= 1
    assert shown["ledger"]
    text = invoke(stack, "show", proof.generation_id)
    for word in ("first token", "silent for", "message_end", "simulator", "provider_cost"):
        assert word in text
    (bar,) = [line for line in text.splitlines() if line.startswith("attempt 0")]
    assert "╌" in bar
    assert bar.rstrip().endswith("■  ok, committed")


def test_diagnose_says_what_was_wrong(stack, proof):
    """`diagnose ID` finds the stall that the simulator made, with its evidence, in words and as JSON."""
    found = json.loads(invoke(stack, "diagnose", proof.generation_id, "--json"))
    (jitter,) = [one for one in found["diagnoses"] if one["name"] == "jittery_stream"]
    assert jitter["evidence"]["cause"] == "provider"
    assert jitter["evidence"]["longest_stall_us"] > 2_300_000
    said = " ".join(invoke(stack, "diagnose", proof.generation_id).split())  # wrapped where the figures end
    assert "the provider fell silent" in said


def test_diagnose_knows_what_it_does_not_know(stack):
    """An id without a row says where to look; what is no id is refused."""
    unknown = "0197a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
    result = CliRunner().invoke(app, ["diagnose", unknown, "--dir", str(stack[0].path)])
    assert "tokentrail tail" in str(result.exception)
    assert CliRunner().invoke(app, ["diagnose", "x", "--dir", str(stack[0].path)]).exit_code == 2


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_ready_questions_are_answered(stack, proof, name):
    """Each ready question is valid SQL over the shipped views."""
    assert proof.generation_id
    assert isinstance(json.loads(invoke(stack, "sql", name, "--json")), list)


def test_sql_as_csv(stack, proof):
    """An answer as CSV is what SQL says."""
    question = f"SELECT toString(generation_id) AS id, stall_count FROM generations_final WHERE id = '{proof.generation_id}'"  # noqa: S608
    rows = list(csv.reader(io.StringIO(invoke(stack, "sql", question, "--format", "csv"))))
    assert rows == [["id", "stall_count"], [proof.generation_id, str(proof.as_json(stack[1])["stall_count"])]]


def test_refused_sql_is_one_sentence(stack):
    """A wrong statement ends with ClickHouse's own words and no traceback."""
    result = CliRunner().invoke(app, ["sql", "SELEC 1", "--dir", str(stack[0].path)])
    assert "ClickHouse refuses this" in str(result.exception)


def test_the_bill_is_the_ledger(stack, proof, tmp_path):
    """The exported bill has the ledger's lines and exact sum; a second export is the same file."""
    period = time.strftime("%Y-%m", time.gmtime())
    arguments = (
        "export",
        "bill",
        "--tenant",
        "acme",
        "--period",
        period,
        "--side",
        "provider_cost",
        "--json",
    )
    made = [
        json.loads(invoke(stack, *arguments, "--out", str(tmp_path / name))) for name in ("a.csv", "b.csv")
    ]
    assert made[0]["sha256"] == made[1]["sha256"]
    with (tmp_path / "a.csv").open() as file:
        lines = [row for row in csv.DictReader(file) if row["generation_id"] == proof.generation_id]
    assert {line["bucket"] for line in lines} == {line["bucket"] for line in proof.ledger}


async def _cancelled(stack):
    folder, state = stack
    body = {"model": "sim-long", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    async with (
        EdgeClient(state.edges[0], folder.read_keys()["globex"]) as edge,
        edge.stream("POST", "/v1/chat/completions", body) as stream,
    ):
        frames = []
        async for frame in stream.frames:
            frames.append(frame)
            if len(frames) == 3:
                generation_id = stream.headers["X-Generation-Id"]
                answer = await asyncio.to_thread(invoke, stack, "cancel", generation_id, "--json")
        return json.loads(answer), frames


def test_cancel_finds_the_tenant_and_ends_the_stream(stack):
    """`cancel ID` ends a running stream of either development tenant; its client sees the end."""
    answer, frames = asyncio.run(_cancelled(stack))
    assert answer["terminal"]["finish_reason"] == "cancelled"
    assert answer["terminal"]["cancel"]["source"] == "cli"
    assert "cancelled" in frames[-1].data


def test_topics_are_right_and_stay_so(stack):
    """`topics check` and `topics apply` find nothing to do on a stack that is up."""
    assert json.loads(invoke(stack, "topics", "check", "--json")) == {"create": [], "alter": [], "refuse": []}
    applied = json.loads(invoke(stack, "topics", "apply", "--json"))
    assert (applied["created"], applied["altered"], applied["schemas_announced"]) == ([], [], [])


def status(stack, key, edge=0):
    """Give how an edge answers a key."""

    async def ask():
        async with EdgeClient(stack[1].edges[edge], key) as client:
            return (await client.call("GET", f"/v1/generations/{GONE}")).status

    return asyncio.run(ask())


def bearer(key):
    """Give the headers of a key."""
    return {"authorization": f"Bearer {key}"}


def soon(condition, within_s=10):
    """Wait until every edge has heard it."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "no edge heard it in time"
        time.sleep(0.05)


def test_keys_are_made_rotated_and_revoked_while_edges_run(stack):
    """A new key is good on both edges within seconds; a rotation keeps its streams, a revocation closes it for good."""
    made = json.loads(invoke(stack, "keys", "create", "app", "--tenant", "acme", "--json"))["key"]
    soon(lambda: {status(stack, made, edge) for edge in (0, 1)} == {404})
    rotated = json.loads(invoke(stack, "keys", "rotate", "app", "--json"))["key"]
    soon(lambda: status(stack, rotated) == 404)
    assert status(stack, made) == 404
    body = {"model": "sim-fast", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    begun = httpx.post(f"{stack[1].edges[0]}/v1/chat/completions", json=body, headers=bearer(made))
    ids = ids_of(frames(begun.content))
    last = json.loads(invoke(stack, "keys", "rotate", "app", "--overlap-h", "0", "--json"))["key"]
    soon(lambda: [status(stack, key) for key in (made, rotated, last)] == [401, 401, 404])
    url = f"{stack[1].edges[1]}/v1/generations/{begun.headers['x-generation-id']}/events?dialect=openai.chat"
    resumed = httpx.get(url, headers=bearer(last) | {"last-event-id": ids[2]})
    assert ids_of(frames(resumed.content)) == ids[3:]
    held = {key["id"]: key for key in json.loads(invoke(stack, "keys", "list", "--json"))}
    assert (held["app"]["tenant"], held["app"]["texts"], held["app"]["where"]) == ("acme", 1, "topic")
    invoke(stack, "keys", "revoke", "app")
    soon(lambda: {status(stack, last, edge) for edge in (0, 1)} == {401})
    for refused in (("create", "app", "--tenant", "acme"), ("rotate", "app"), ("revoke", "nobody")):
        result = CliRunner().invoke(app, ["keys", *refused, "--dir", str(stack[0].path)])
        assert "key" in str(result.exception), result.output


def test_forget_erases_everywhere(stack):
    """Readers on both edges get 410, ClickHouse holds the mark alone, the receipt names a day; again is the same."""
    key = stack[0].read_keys()["acme"]
    body = {"model": "sim-fast", "stream": True, "messages": [{"role": "user", "content": "a secret"}]}
    begun = httpx.post(f"{stack[1].edges[0]}/v1/chat/completions", json=body, headers=bearer(key))
    generation_id = begun.headers["x-generation-id"]
    for _ in range(2):
        receipt = json.loads(invoke(stack, "forget", generation_id, "--json"))
        assert (receipt["tenant"], receipt["ended"], receipt["warehouse"]) == ("acme", True, "erased")
        assert receipt["log_copy_gone_by"][:4].isdigit()
    question = f"SELECT DISTINCT kind FROM events WHERE generation_id = '{generation_id}'"  # noqa: S608
    assert json.loads(invoke(stack, "sql", question, "--json")) == [{"kind": "forgotten"}]
    urls = [f"{edge}/v1/generations/{generation_id}/events" for edge in stack[1].edges]
    soon(lambda: {httpx.get(url, headers=bearer(key)).status_code for url in urls} == {410})
    result = CliRunner().invoke(app, ["forget", GONE, "--dir", str(stack[0].path)])
    assert "nothing to forget" in str(result.exception)
