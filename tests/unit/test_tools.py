"""Tool reports: from any edge, while the answer runs and long after; silence is on record, and nothing is ended by it."""

import asyncio
import hashlib

import orjson
import pytest

from edge.app import build_app
from schemas.events import Kind
from schemas.settings import ApiKey
from tests.support.asgi import get, post
from tests.support.edge import turns
from tests.support.once import two_on_one
from tests.support.running import edge_with
from tests.support.upstream import DONE, HANG, Script
from tests.support.virtual import run_virtually
from tests.support.waiting import until

KEYS = tuple(
    ApiKey(id=f"key-{tenant}", tenant=tenant, sha256=hashlib.sha256(tenant.encode()).hexdigest())
    for tenant in ("acme", "umbrella")
)
ACME, UMBRELLA = ({"authorization": f"Bearer {key.tenant}"} for key in KEYS)
DEED = {"status": "succeeded", "side_effect_committed": True, "compensation_id": "c-1", "approved_by": "ada"}


def frame(**choice):
    """A chunk of a provider as its bytes."""
    return b"data: " + orjson.dumps({"id": "x", "choices": [{"index": 0, **choice}]}) + b"\n\n"


def calling(*ids):
    """A chunk with tool calls."""
    calls = [
        {"index": i, "id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for i, name in enumerate(ids)
    ]
    return frame(delta={"tool_calls": calls})


CALLED = Script(calling("call_1", "call_2"), frame(delta={}, finish_reason="tool_calls"), DONE)
RUNNING = Script(calling("call_1"), HANG)


async def answered(edge):
    """Make a call and wait for the end of its answer; its entry."""
    entry = await edge.begin(caller=KEYS[0])
    await edge.over(entry)
    return entry


def path_of(entry, call="call_1"):
    """Where a report goes."""
    return f"/v1/generations/{entry.generation.id}/tools/{call}"


def reports(edge, entry):
    """Give the tool_status records of a generation."""
    return [event for event in edge.records(entry) if event.kind is Kind.TOOL_STATUS]


@pytest.mark.parametrize("at", [0, 1])
async def test_a_report_behind_the_end(at):
    """On the edge that answered and on another one: on record once, behind the terminal, shown, and no more awaited."""
    edges = two_on_one(CALLED, keys=KEYS)
    async with edges[0], edges[1]:
        entry = await answered(edges[0])
        assert edges[0].service.tools.awaited == 2
        answer = await post(build_app(edges[at].service), path_of(entry), DEED, ACME).done()
        assert answer.status == 200
        assert not orjson.loads(answer.body)["may_retry"]
        await until(lambda: edges[0].service.tools.awaited == 1)
        await turns(20)
        (record,) = reports(edges[0], entry)
        assert record.edge_id == f"edge-{at + 1}"
        assert record.seq is None
        assert record.after_seq == entry.generation.terminal.event.seq
        said = record.tool_status
        assert (said.tool_call_id, said.status, said.approved_by) == ("call_1", "succeeded", "ada")
        shown = await get(build_app(edges[at].service), f"/v1/generations/{entry.generation.id}", ACME).done()
        (traced,) = [one for one in orjson.loads(shown.body)["trace"] if one["kind"] == "tool_status"]
        assert traced["compensation_id"] == "c-1"


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("deed", [{"side_effect_committed": True}, {"approved_by": "ada"}, {}])
async def test_a_report_while_it_runs(at, deed):
    """The edge that runs it writes it, whoever was told; a deed forbids every further try, a mere report does not."""
    edges = two_on_one(RUNNING, keys=KEYS)
    async with edges[0], edges[1]:
        entry = await edges[0].begin(caller=KEYS[0])
        await until(lambda: Kind.TOOL_CALL_DELTA in edges[0].kinds(entry))
        answer = await post(
            build_app(edges[at].service), path_of(entry), {"status": "succeeded", **deed}, ACME
        ).done()
        assert answer.status == (200, 202)[at]
        await until(lambda: reports(edges[0], entry))
        (record,) = reports(edges[0], entry)
        assert record.edge_id == "edge-1"
        await until(lambda: entry.driver.race.chain.forbidden == bool(deed))
        edges[0].service.registry.erase(entry.generation.id)
        await edges[0].over(entry)


def test_silence_is_on_record_and_ends_nothing():
    """After timeout.tool_s each call without a report has a time-out behind the terminal, and there is still one end."""

    def told(edge):
        return [record.tool_status for record in reports(edge, edge.entry)]

    async def later():
        edge = edge_with(CALLED, timeout={"tool_s": 0.05}, keys=KEYS)
        async with edge:
            edge.entry = await answered(edge)
            before = edge.entry.generation.terminal.event.elapsed_us
            await until(lambda: len(told(edge)) == 2)
            assert {(said.tool_call_id, said.status) for said in told(edge)} == {
                ("call_1", "timeout"),
                ("call_2", "timeout"),
            }
            for record in reports(edge, edge.entry):
                assert record.elapsed_us - before >= 50_000
            assert sum(event.is_terminal for event in edge.records(edge.entry)) == 1
            assert edge.service.tools.awaited == 0

    asyncio.run(later())


def test_only_an_answer_that_ended_in_tool_calls_awaits_them():
    """A call that was cut off in the middle has no tool to wait for."""
    records, edge = run_virtually(Script(calling("call_1")), retry={"max_attempts": 1})
    assert records[-1].kind is Kind.ERROR
    assert edge.service.tools.awaited == 0


BAD = [
    {},
    {"status": "perhaps"},
    {"status": "failed", "idempotent": "yes"},
    {"status": "failed", "approved_by": ""},
    {"status": "failed", "compensation_id": "x" * 257},
]


async def test_what_is_refused():
    """Nonsense is a 400; an unknown call, another tenant's generation and no key are what they are elsewhere."""
    async with edge_with(CALLED, keys=KEYS) as edge:
        entry = await answered(edge)
        app = build_app(edge.service)
        for body in BAD:
            assert (await post(app, path_of(entry), body, ACME).done()).status == 400
        for path, headers, status in (
            (path_of(entry, "call_9"), ACME, 404),
            (path_of(entry), UMBRELLA, 404),
            (path_of(entry), {}, 401),
        ):
            assert (await post(app, path, DEED, headers).done()).status == status
        assert reports(edge, entry) == []
        assert edge.service.tools.awaited == 2


@pytest.mark.parametrize(
    ("said", "may"),
    [
        ({"status": "failed", "idempotent": True}, True),
        ({"status": "failed"}, False),
        ({"status": "succeeded", "idempotent": True}, False),
        ({"status": "failed", "idempotent": True, "side_effect_committed": True}, False),
    ],
)
async def test_who_may_be_run_again(said, may):
    """Only a tool that failed, is idempotent and did nothing that stays."""
    async with edge_with(CALLED, keys=KEYS) as edge:
        answer = await post(
            build_app(edge.service), path_of(await answered(edge)), said, {"x-api-key": "acme"}
        ).done()
    assert orjson.loads(answer.body)["may_retry"] is may
