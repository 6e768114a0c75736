"""Every layer of time-outs with its own setting, its instant, its code and its consequence, in virtual time."""

import asyncio
import json
import socket
from contextlib import closing, contextmanager

import pytest

from edge.driving.watch import Limits
from schemas.events import Dispatch, EndedBy, Kind, Outcome
from schemas.outcomes import ERRORS
from schemas.settings import ApiKey, Provider, Route
from tests.support.running import ONE_ROUTE, RunningEdge, edge_settings, ends_of, starts_of
from tests.support.upstream import DONE, HANG, Script, ScriptedUpstream, chunk, finish
from tests.support.virtual import clock_of, over, run_virtually, virtually

ONCE = {"retry": {"max_attempts": 1}, "default_route": ONE_ROUTE}
DRIP = [piece for _ in range(100) for piece in (chunk("a"), 10)]
ALIVE = [piece for _ in range(100) for piece in (b": alive\n\n", 10)]
DEFAULTS = {
    "stream": {"ttft_timeout_s": 300, "stall_timeout_s": 120, "usage_grace_s": 5, "stall_threshold_ms": 2000}
}


def ended_at_s(records):
    return records[-1].elapsed_us / 1e6


LAYERS = {
    "no head": (Script(head=HANG), {}, "queue_timeout", 120),
    "no content": (Script(HANG), {}, "ttft_timeout", 300),
    "no content but keep-alives": (Script(*ALIVE, HANG), {}, "ttft_timeout", 300),
    "no content but empty deltas": (
        Script(*[piece for _ in range(100) for piece in (chunk(""), 10)], HANG),
        {},
        "ttft_timeout",
        300,
    ),
    "silence after content": (Script(chunk("a"), HANG), {}, "stall_timeout", 120),
    "silence with keep-alives": (Script(chunk("a"), *ALIVE, HANG), {}, "stall_timeout", 120),
    "decoding in total": (Script(*DRIP), {}, "decode_timeout", 600),
    "the request": (Script(250, *DRIP), {"timeout": {"request_s": 900, "decode_s": 600}}, "decode_timeout", 850),
    "the request, late": (Script(*ALIVE[:58], *DRIP), {"timeout": {"request_s": 850, "decode_s": 550}}, "decode_timeout", 840),
    "the whole": (Script(*DRIP), {"timeout": {"generation_s": 400}}, "timeout", 400),
}  # fmt: skip


@pytest.mark.parametrize(("script", "sections", "code", "at_s"), LAYERS.values(), ids=LAYERS)
def test_each_layer_ends_at_its_time(script, sections, code, at_s):
    """With the default times: the code of the layer, at its instant, the socket closed, what came before it kept."""
    records, edge = run_virtually(script, **DEFAULTS | ONCE | sections)
    error = records[-1].error
    assert error.code == code
    assert error.finish_reason == "timeout"
    assert ERRORS[code].status == 504
    assert at_s <= ended_at_s(records) < at_s + 0.01
    assert edge.upstream.calls[0].closed
    (end,) = ends_of(records)
    assert (end.outcome, end.error_code) == (Outcome.FAILED, code)
    assert end.committed == any(event.has_content for event in records)


@pytest.mark.parametrize(
    ("script", "own", "code", "at_s"),
    [
        (Script(head=HANG), {"queue_s": 7}, "queue_timeout", 7),
        (Script(HANG), {"ttft_timeout_s": 290}, "ttft_timeout", 290),
        (Script(chunk("a"), HANG), {"stall_timeout_s": 300}, "stall_timeout", 300),
        (Script(*DRIP), {"decode_s": 45}, "decode_timeout", 45),
    ],
)
def test_a_route_has_times_of_its_own(script, own, code, at_s):
    """A model that needs longer, or less, than the others: the same layers at its own times."""
    routes = (Route(provider="one", **own), Route(provider="two"))
    records, _ = run_virtually(script, **DEFAULTS | {"retry": {"max_attempts": 1}, "default_route": routes})
    assert (records[-1].error.code, round(ended_at_s(records))) == (code, at_s)


def test_the_next_route_has_the_usual_times():
    """What one route was given does not go with the request."""
    routes = (Route(provider="one", ttft_timeout_s=20), Route(provider="two"))
    sections = {"retry": {"max_attempts": 2}, "default_route": routes}
    records, _ = run_virtually(Script(HANG), **DEFAULTS | sections)
    assert (records[-1].error.code, round(ended_at_s(records))) == ("ttft_timeout", 320)


def test_the_client_names_the_whole():
    """X-Deadline-Ms is a time-out of the request as the client sees it."""
    records, _ = run_virtually(Script(*DRIP), headers={"x-deadline-ms": "90000"}, **DEFAULTS | ONCE)
    assert (records[-1].error.code, round(ended_at_s(records))) == ("timeout", 90)


def test_in_the_background_nobody_waits_for_the_request():
    """Only the whole generation's time ends it, or the deadline that its caller named."""
    times = {"request_s": 100, "generation_s": 900, "decode_s": 10}
    settings = edge_settings(timeout=times, stream={"ttft_timeout_s": 50})
    assert Limits.of(settings, background=True).request_us == 900_000_000
    assert Limits.of(settings, background=True, deadline_ms=1_000).request_us == 1_000_000
    assert Limits.of(settings).request_us == 100_000_000


def test_the_usage_grace_is_no_failure():
    """Who said that it finished and sends nothing more came to a proper end, five seconds later."""
    records, edge = run_virtually(Script(chunk("a"), finish(), HANG), **DEFAULTS | ONCE)
    assert records[-1].kind is Kind.MESSAGE_END
    assert round(ended_at_s(records)) == 5
    assert edge.upstream.calls[0].closed


def test_before_content_the_next_route_is_tried():
    """Queue and first-content time-outs of one provider: the other one answers, and the answer is whole."""
    ok = Script(chunk("b"), finish(), DONE)
    for script, code, at_s in (
        (Script(head=HANG), "queue_timeout", 120),
        (Script(HANG), "ttft_timeout", 300),
    ):
        records, _ = run_virtually(script, ok, **DEFAULTS)
        assert starts_of(records)[1].fallback_reason == code
        assert round(ended_at_s(records)) == at_s
        assert records[-1].kind is Kind.MESSAGE_END


def test_one_deadline_covers_the_chain():
    """Three providers that hang have one request's time together, not each its own."""
    sections = {"timeout": {"request_s": 700, "decode_s": 300}, "retry": {"max_attempts": 5}}
    records, _ = run_virtually(Script(HANG), **DEFAULTS | sections)
    assert (records[-1].error.code, round(ended_at_s(records))) == ("timeout", 700)
    assert len(starts_of(records)) == 3


def test_a_silence_of_ours_is_not_the_providers():
    """The gap that the watchdog ended is on record as such, as long as it was."""
    records, _ = run_virtually(Script(chunk("a"), HANG), **DEFAULTS | ONCE)
    (gap,) = ends_of(records)[0].gaps
    assert gap.ended_by is EndedBy.WATCHDOG
    assert round(gap.length_us / 1e6) == 120


@contextmanager
def silent_listener(*, full):
    """A port that takes no more connections (``full``), or takes them and never says a word; its number."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0 if full else 16)
        waiting = []
        while full and len(waiting) < 4:  # one is taken, the next ones hang
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(listener.getsockname())
        try:
            yield listener.getsockname()[1]
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize(("scheme", "full"), [("http", True), ("https", False)], ids=["TCP", "TLS"])
def test_who_cannot_be_connected_to_costs_nothing(scheme, full):
    """Ten seconds for each route, over the edge's own HTTP client: nobody was called, nothing can have been paid for."""
    with silent_listener(full=full) as port:
        provider = Provider(base_url=f"{scheme}://127.0.0.1:{port}/v1")
        records, _ = run_virtually(
            providers={"one": provider, "two": provider}, retry={"max_attempts": 2}, **DEFAULTS
        )
    first, second = starts_of(records)
    assert second.fallback_reason == "upstream_error"
    assert round(ended_at_s(records)) == 20
    assert records[-1].error.code == "upstream_error"
    for end in ends_of(records):
        assert (end.dispatch, end.possibly_billed, end.usage) == (Dispatch.NOT_CONNECTED, False, None)
        assert round(end.elapsed_us / 1e6) == 10
    assert first.provider != second.provider


def tool_call(name):
    """Give the bytes of a chunk with a whole call of a tool."""
    call = {"index": 0, "id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return (
        b"data: "
        + json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).encode()
        + b"\n\n"
    )


def test_a_tool_has_a_minute():
    """Sixty seconds behind the end, and no sooner, its silence is on record; the one terminal stays what it was."""

    async def work():
        upstream = ScriptedUpstream(Script(tool_call("call_1"), finish("tool_calls"), DONE))
        async with RunningEdge(upstream, clock_of(asyncio.get_running_loop())) as edge:
            entry = await edge.begin()
            await over(edge, entry)
            await asyncio.sleep(61)
            return edge.records(entry)

    records = virtually(work)
    (end,) = [event for event in records if event.is_terminal]
    (told,) = [event for event in records if event.kind is Kind.TOOL_STATUS]
    assert (end.message_end.finish_reason, told.tool_status.status) == ("tool_call", "timeout")
    assert told.seq is None
    assert round((told.elapsed_us - end.elapsed_us) / 1e6, 2) == 60


REPAIRS = ApiKey(id="key-1", tenant="acme", sha256="0" * 64, allow={"repair"})
SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"items": {"type": "integer"}}}}
LONG_JSON = Script(chunk(json.dumps([1] * 60_000)), 5, finish(), DONE)
"""An answer whose check takes some sixty slices, five seconds after its content."""


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "held back"])
def test_a_check_that_is_not_done_in_time(stream):
    """It is tried once more here, no provider is; then its time is over, behind an answer that is whole and paid for."""
    asked = {"stream": stream, "response_format": SCHEMA}
    records, edge = run_virtually(LONG_JSON, body=asked, caller=REPAIRS, busy_s=(4, 100), **DEFAULTS)
    error = records[-1].error
    assert (error.code, error.finish_reason, error.postprocess_result) == (
        "postprocess_timeout",
        "timeout",
        None,
    )
    assert ERRORS["postprocess_timeout"].status == 504
    assert 5 + 10 + 10 <= ended_at_s(records) < 28
    assert len(edge.upstream.calls) == 1
    (end,) = ends_of(records)
    assert (end.outcome, end.committed, end.error_code) == (Outcome.OK, True, None)
    assert sum(len(part.text) for event in records for part in event.canonical) == len(
        json.dumps([1] * 60_000)
    )
    head = edge.entry.generation.head.result()
    assert head.ok


def test_a_check_that_is_done_the_second_time():
    """An edge that was busy for a while only says so a little later."""
    asked = {"response_format": SCHEMA}
    records, _ = run_virtually(LONG_JSON, body=asked, busy_s=(4, 18), **DEFAULTS)
    assert records[-1].message_end.postprocess_result == "ok"
    assert 5 + 10 < ended_at_s(records) < 20


def test_the_providers_times_do_not_run_while_its_answer_is_judged():
    """Neither the grace for usage nor a silence of it can end what is ours to do."""
    times = {
        "stream": {"ttft_timeout_s": 3, "stall_timeout_s": 6, "usage_grace_s": 2, "stall_threshold_ms": 2000}
    }
    asked = {"response_format": SCHEMA}
    records, _ = run_virtually(LONG_JSON, body=asked, busy_s=(4, 13), **times)
    assert records[-1].message_end.postprocess_result == "ok"


def test_the_whole_ends_a_check():
    """A deadline that its caller named holds here too; the answer is kept as far as it was given."""
    asked, headers = {"response_format": SCHEMA}, {"x-deadline-ms": "9000"}
    records, _ = run_virtually(LONG_JSON, body=asked, headers=headers, busy_s=(4, 100), **DEFAULTS)
    assert records[-1].error.code == "timeout"
    assert 9 <= ended_at_s(records) < 11
