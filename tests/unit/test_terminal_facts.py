"""What a terminal says beside its reason: where the time went, whether the JSON is whole, what a cancel met."""

import json

import pytest

from schemas.events import CancelRequested, EndedBy, Kind
from schemas.payloads import LATENCY_PARTS
from tests.support.running import SHORT, edge_with, ends_of
from tests.support.upstream import CUT, DONE, HANG, Script, chunk, finish
from tests.support.waiting import until

JSON_MODE = {"response_format": {"type": "json_object"}}


def sse(**value):
    """Give a chunk of these fields."""
    return f"data: {json.dumps({'choices': []} | value)}\n\n".encode()


def arguments(fragment):
    """Give a chunk with a fragment of a tool call's arguments."""
    call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": fragment}}
    return sse(choices=[{"index": 0, "delta": {"tool_calls": [call]}}])


async def terminal_of(*reads, asked=None, **script):
    """Run one generation; what its terminal says of its own."""
    async with edge_with(Script(*reads, **script)) as edge:
        entry = await edge.begin(**(asked or {}))
        records = await edge.over(entry)
    return records[-1].message_end or records[-1].error


async def test_what_a_provider_says_of_its_time_is_on_the_terminal():
    """Its queue and prefill from the body, its whole processing from the head; the parts add up."""
    said = sse(timings={"prompt_ms": 2.5}, x_groq={})
    end = await terminal_of(0.02, chunk("a"), finish(), said, DONE, headers={"openai-processing-ms": "12"})
    latency = end.latency
    assert (latency.prefill_us, latency.queue_us, latency.provider_us) == (2_500, None, 12_000)
    parts = sum(getattr(latency, name) or 0 for name in LATENCY_PARTS)
    assert parts + latency.unattributed_us == latency.total_us


async def test_a_provider_that_says_nothing_leaves_null():
    """No queue, no prefill, no processing time: null, not zero."""
    latency = (await terminal_of(chunk("a"), finish(), DONE)).latency
    assert (latency.prefill_us, latency.queue_us, latency.provider_us) == (None, None, None)
    assert latency.gateway_us is not None


async def test_the_clients_context_time_stands_beside_the_sum():
    """It was over before the request came, so it is told and not counted."""
    async with edge_with(Script(chunk("a"), finish(), DONE)) as edge:
        entry = await edge.begin(headers={"x-context-ms": "120"})
        latency = (await edge.over(entry))[-1].message_end.latency
    assert latency.context_us == 120_000
    assert latency.total_us < 120_000


@pytest.mark.parametrize(
    ("reads", "asked", "expected"),
    [
        ((chunk("Hello"), finish(), DONE), {}, "not_applicable"),
        ((arguments('{"a": '), arguments("1}"), finish("tool_calls"), DONE), {}, "ok"),
        ((arguments('{"a": '), finish("length"), DONE), {}, "truncated"),
        ((arguments('{"a": '), CUT), {}, "truncated"),
        ((chunk('{"a": 1}'), finish(), DONE), JSON_MODE, "ok"),
        ((chunk("Sure! {}"), finish(), DONE), JSON_MODE, "malformed"),
    ],
)
async def test_json_is_checked_after_the_last_content(reads, asked, expected):
    """Tool arguments always, content where JSON was asked for; a cut answer is checked, too."""
    assert (await terminal_of(*reads, asked=asked)).postprocess_result == expected


async def test_a_cancel_says_what_it_met():
    """When it was taken, and how much there was by then: what came after it can be told."""
    async with edge_with(Script(chunk("abcdefgh"), HANG)) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        edge.service.registry.cancel(entry.generation.id, CancelRequested(mode="hard", source="api"))
        records = await edge.over(entry)
    cancel = records[-1].message_end.cancel
    assert (cancel.tokens_generated, cancel.stage.value) == (2, "decode")
    assert 0 < cancel.at_us <= records[-1].elapsed_us


@pytest.mark.parametrize(
    ("reason", "ended_by"), [("client_disconnect", EndedBy.DISCONNECT), ("user_abort", EndedBy.CANCEL)]
)
async def test_who_ended_the_last_gap(reason, ended_by):
    """Nobody was left to read, or somebody asked for the end: the last gap says which."""
    async with edge_with(Script(chunk("a"), HANG), stream=SHORT) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        waited = edge.clock.now_us() + 60_000
        await until(lambda: edge.clock.now_us() > waited)
        cancel = CancelRequested(mode="hard", reason=reason)
        edge.service.registry.cancel(entry.generation.id, cancel)
        records = await edge.over(entry)
    (end,) = ends_of(records)
    assert [gap.ended_by for gap in end.gaps] == [ended_by]
