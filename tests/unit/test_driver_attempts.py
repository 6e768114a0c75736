"""The driver's time-outs and attempts: what is tried again, what is not, and what each attempt leaves on record."""

import pytest

from schemas.events import EndedBy, Kind, Outcome
from schemas.settings import Route
from tests.support.edge import turns
from tests.support.running import ONE_ROUTE, SHORT, edge_with, ends_of, run, starts_of
from tests.support.upstream import CUT, DONE, HANG, OK, Script, chunk, finish
from tests.support.waiting import until

BUSY = Script(b'{"error":{"message":"later"}}', status=503, content_type="application/json")


@pytest.mark.parametrize(
    ("script", "sections", "code"),
    [
        (Script(head=HANG), {"timeout": {"queue_s": 0.05}}, "queue_timeout"),
        (Script(HANG), {"stream": SHORT | {"ttft_timeout_s": 0.05}}, "ttft_timeout"),
        (Script(b": alive\n\n", 0.03, b": alive\n\n", HANG), {"stream": SHORT | {"ttft_timeout_s": 0.05}}, "ttft_timeout"),
    ],
    ids=["queue", "ttft", "ttft with keep-alives"],
)  # fmt: skip
async def test_a_hung_provider_is_left_for_another_route(script, sections, code):
    """No head, or no content, in time: the socket is closed and the next route is tried; what it cost is on record."""
    records, edge = await run(script, OK, **sections)
    assert [event.message_end is not None for event in records][-1]
    first, second = ends_of(records)
    assert (first.outcome, first.error_code, first.committed) == (Outcome.FAILED, code, False)
    assert (second.outcome, second.committed) == (Outcome.OK, True)
    assert edge.upstream.calls[0].closed


async def test_a_spent_chain_ends_with_the_last_failure():
    """Every route hangs: as many attempts as allowed, then one error with its code; the head keeps that status."""
    async with edge_with(Script(HANG), stream=SHORT | {"ttft_timeout_s": 0.03}) as edge:
        entry = await edge.begin()
        records = await edge.over(entry)
        head = await entry.generation.head
    assert len(edge.upstream.calls) == 3
    assert records[-1].error.code == "ttft_timeout"
    assert records[-1].error.attempts == 3
    assert (head.ok, head.status) == (False, 504)


@pytest.mark.parametrize(
    ("script", "sections", "code"),
    [
        (Script(chunk("a"), HANG), {"stream": SHORT | {"stall_timeout_s": 0.05}}, "stall_timeout"),
        (
            Script(chunk("a"), *[0.02, chunk("b")] * 50, HANG),
            {"timeout": {"decode_s": 0.1}},
            "decode_timeout",
        ),
        (
            Script(chunk("a"), HANG),
            {
                "stream": SHORT | {"ttft_timeout_s": 0.05, "stall_timeout_s": 3},
                "timeout": {"request_s": 0.1, "decode_s": 0.05},
            },
            "decode_timeout",
        ),
        (Script(chunk("a"), HANG), {"timeout": {"generation_s": 0.1}}, "timeout"),
    ],
    ids=["stall", "decode while content flows", "decode of a silent one", "whole"],
)
async def test_after_content_a_time_out_is_the_end(script, sections, code):
    """Once content was delivered nothing is tried again: the partial output stands and the error says which layer."""
    records, edge = await run(script, **sections)
    assert len(edge.upstream.calls) == 1
    assert edge.upstream.calls[0].closed
    assert records[-1].error.code == code
    assert records[-1].error.finish_reason == "timeout"
    (attempt,) = ends_of(records)
    assert attempt.committed


async def test_a_silent_end_is_on_record_as_an_open_gap():
    """The gap that no content closed stands on the attempt, ended by the watchdog."""
    records, _ = await run(Script(chunk("a"), HANG), stream=SHORT | {"stall_timeout_s": 0.1})
    (gap,) = ends_of(records)[0].gaps
    assert gap.ended_by is EndedBy.WATCHDOG
    assert gap.length_us >= 100_000


async def test_the_usage_grace_is_a_proper_end():
    """A provider that said it finished and then sends nothing more: our own end mark stands for its."""
    records, edge = await run(Script(chunk("a"), finish(), HANG), stream=SHORT | {"usage_grace_s": 0.05})
    assert records[-1].kind is Kind.MESSAGE_END
    assert records[-1].raw == "[DONE]"
    assert ends_of(records)[0].outcome is Outcome.OK
    assert edge.upstream.calls[0].closed


async def test_a_retry_is_announced_before_its_call():
    """attempt_end, then attempt_start with its reason, its backoff, acknowledged, then the call."""
    async with edge_with(BUSY, OK, retry={"backoff_ms": 60}, default_route=ONE_ROUTE) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.ATTEMPT_END in edge.kinds())
        edge.log.hold()
        await until(lambda: edge.kinds().count(Kind.ATTEMPT_START) == 2)
        await turns(20)
        assert len(edge.upstream.calls) == 1
        edge.log.release()
        records = await edge.over(entry)
    again = starts_of(records)[1]
    assert (again.reason, again.retry_reason, again.retry_count) == ("retry", "overloaded", 1)
    assert (again.provider, again.changed_inputs, again.same_prompt_hash) == ("one", [], True)
    assert 30 <= again.backoff_ms <= 60
    assert records[-1].kind is Kind.MESSAGE_END


async def test_another_route_is_tried_at_once():
    """A fallback waits for nobody: its record says why, from which model to which, and what differs."""
    routes = (Route(provider="one"), Route(provider="two", model="gpt-y"))
    records, edge = await run(BUSY, OK, default_route=routes)
    again = starts_of(records)[1]
    assert (again.reason, again.fallback_reason, again.backoff_ms) == ("fallback", "overloaded", 0)
    assert (again.from_model, again.to_model, again.changed_inputs) == (
        "gpt-x",
        "gpt-y",
        ["model", "provider"],
    )
    assert again.previous_request_id == f"{records[0].generation_id}/0"
    assert [call.body["model"] for call in edge.upstream.calls] == ["gpt-x", "gpt-y"]


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_a_refusal_of_the_request_is_not_repeated(status):
    """Another try could not change it; the client gets the provider's own status and body."""
    said = b'{"error":{"message":"no","type":"invalid_request_error"}}'
    async with edge_with(Script(said, status=status, content_type="application/json"), OK) as edge:
        entry = await edge.begin()
        await edge.over(entry)
        head = await entry.generation.head
    assert len(edge.upstream.calls) == 1
    assert (head.status, head.body) == (status, said)


async def test_preludes_of_an_uncommitted_attempt_are_its_own():
    """What came before content of an attempt that failed is in no stream: only the committed attempt speaks."""
    role = chunk("").replace(b'"content": ""', b'"role": "assistant"')
    records, _ = await run(Script(role, CUT), Script(role, chunk("b"), finish(), DONE))
    assert {event.attempt for event in records if event.raw is not None} == {1}
    assert [part.text for event in records for part in event.canonical if part.text] == ["b"]
