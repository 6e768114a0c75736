"""``restart`` and ``continue``: what follows a broken answer is a generation of its own, linked, with no text twice."""

import asyncio

import orjson
import pytest

from edge.dialects.spoken import dialect_of
from edge.reading.result import body_of
from schemas.events import Kind
from tests.support.upstream import CUT, DONE, HANG, Script, chunk, finish
from tests.support.virtual import RunningEdge, ScriptedUpstream, clock_of, over, virtually
from tests.support.waiting import until

STALLS = Script(chunk("one "), chunk("two "), HANG)
BREAKS = Script(chunk("one "), chunk("two "), CUT)
REST = Script(chunk("three"), finish(), DONE)
CALL = chunk("").replace(
    b'"content": ""', b'"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": "{"}}]'
)


def follow(*scripts, headers, forbid=False, **sections):
    """Run a generation and what follows it: the records of both and the edge."""

    async def work():
        edge = RunningEdge(ScriptedUpstream(*scripts), clock_of(asyncio.get_running_loop()), **sections)
        async with edge:
            entry = await edge.begin(headers)
            if forbid:
                entry.driver.forbid_retries()
            first = await over(edge, entry)
            error = first[-1].error
            second = None
            if error is not None and error.successor is not None:
                next_entry = edge.service.registry._entries[error.successor]
                second = await over(edge, next_entry)
            return first, second, edge

    return virtually(work)


def texts(records):
    return "".join(part.text for event in records for part in event.canonical)


@pytest.mark.parametrize(
    ("script", "header", "code"),
    [
        (STALLS, "x-tokentrail-on-stall", "stall_timeout"),
        (BREAKS, "x-tokentrail-on-break", "incomplete_upstream"),
    ],
)
def test_an_answer_goes_on_in_another_generation(script, header, code):
    """The first ends as it did and names the second; the second says what it goes on from, and holds the rest alone."""
    first, second, edge = follow(script, REST, headers={header: "continue", "x-client-id": "me"})
    assert (first[-1].error.code, texts(first), texts(second)) == (code, "one two ", "three")
    assert orjson.loads(first[-1].raw)["error"]["successor"] == second[0].generation_id
    start = second[0].message_start
    assert start.previous_generation_id == first[0].generation_id
    assert (start.lineage_kind, start.client_id) == ("continue", "me")
    assert start.request_id == first[0].message_start.request_id
    attempt = next(event.attempt_start for event in second if event.kind is Kind.ATTEMPT_START)
    assert attempt.previous_output_hash == first[-1].error.partial_output_hash
    assert attempt.continuation_point == first[-1].seq - 1
    assert attempt.previous_request_id == start.request_id
    said = edge.upstream.calls[1].body["messages"]
    assert said[1] == {"role": "assistant", "content": "one two "}
    assert [message["role"] for message in said] == ["user", "assistant", "user"]


def test_an_answer_is_begun_again():
    """``restart``: the same call once more, as a generation of its own."""
    again = Script(chunk("all"), finish(), DONE)
    first, second, edge = follow(STALLS, again, headers={"x-tokentrail-on-stall": "restart"})
    assert second[0].message_start.lineage_kind == "restart"
    assert texts(second) == "all"
    assert edge.upstream.calls[0].body["messages"] == edge.upstream.calls[1].body["messages"]
    assert texts(first) == "one two "


@pytest.mark.parametrize(
    ("script", "headers", "forbid"),
    [
        (BREAKS, {"x-tokentrail-on-stall": "continue"}, False),
        (STALLS, {"x-tokentrail-on-break": "restart"}, False),
        (STALLS, {}, False),
        (STALLS, {"x-tokentrail-on-stall": "continue"}, True),
        (Script(chunk("a"), CALL, HANG), {"x-tokentrail-on-stall": "continue"}, False),
        (REST, {"x-tokentrail-on-stall": "continue"}, False),
    ],
    ids=["a break", "a stall", "not asked", "after a side effect", "within a tool call", "a proper end"],
)
def test_where_nothing_follows(script, headers, forbid):
    """What was not asked for, what a side effect stands behind, what nobody can go on with, what is whole."""
    first, second, edge = follow(script, REST, headers=headers, forbid=forbid)
    assert second is None
    assert len(edge.upstream.calls) == 1
    assert first[-1].kind in (Kind.ERROR, Kind.MESSAGE_END)


def test_before_content_the_chain_is_what_there_is():
    """Nothing was delivered, so there is nothing to go on from: other attempts of the same generation."""
    sections = {"stream": {"ttft_timeout_s": 20, "stall_timeout_s": 20}}
    first, second, _ = follow(Script(HANG), REST, headers={"x-tokentrail-on-stall": "restart"}, **sections)
    assert second is None
    assert texts(first) == "three"


def test_a_successor_has_none_of_its_own():
    """One is enough to tell: a provider that always stalls is not called for ever."""
    short = {"stream": {"ttft_timeout_s": 20, "stall_timeout_s": 20}}
    _, second, edge = follow(STALLS, headers={"x-tokentrail-on-stall": "restart"}, **short)
    assert second[-1].error.successor is None
    assert len(edge.upstream.calls) == 2


def test_what_is_left_of_the_deadline():
    """The second has the rest of the time that the client named for the whole."""
    headers = {"x-tokentrail-on-stall": "restart", "x-deadline-ms": "150000"}
    _, second, _ = follow(STALLS, REST, headers=headers, stream={"stall_timeout_s": 120})
    assert second[0].message_start.request_deadline_ms == pytest.approx(30_000, abs=100)


def test_a_successor_that_nobody_reads_is_not_paid_for():
    """Who asked for it and does not come within the grace time is gone."""

    async def work():
        endless = Script(*[piece for _ in range(600) for piece in (chunk("x"), 1)])
        edge = RunningEdge(ScriptedUpstream(STALLS, endless), clock_of(loop := asyncio.get_running_loop()))
        async with edge:
            entry = await edge.begin({"x-tokentrail-on-stall": "restart"})
            first = await over(edge, entry)
            began_s = loop.time()
            second = edge.service.registry._entries[first[-1].error.successor]
            await until(lambda: second.finished, within_s=100)
            return edge.records(second), loop.time() - began_s

    records, took_s = virtually(work)
    assert records[-1].message_end.cancel.reason == "client_disconnect"
    assert took_s == pytest.approx(30, abs=1)


def test_a_whole_answer_names_it_too():
    """A client that waits for the whole is told in the body of the error."""
    first, second, _ = follow(BREAKS, REST, headers={"x-tokentrail-on-break": "restart"})
    status, body, _ = body_of(dialect_of("openai.chat"), [event for event in first if event.seq is not None])
    assert status == 502
    assert orjson.loads(body)["error"]["successor"] == second[0].generation_id


def test_no_provider_for_a_successor():
    """Where none can be begun the first generation ends as it would have."""

    async def work():
        edge = RunningEdge(ScriptedUpstream(STALLS), clock_of(asyncio.get_running_loop()))
        async with edge:
            entry = await edge.begin({"x-tokentrail-on-stall": "restart"})
            await until(lambda: Kind.DELTA in edge.kinds(entry))
            edge.service.stopping = True
            return await over(edge, entry)

    records = virtually(work)
    assert (records[-1].error.code, records[-1].error.successor) == ("stall_timeout", None)
