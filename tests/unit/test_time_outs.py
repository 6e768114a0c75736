"""Every layer of time-outs with its own setting, its instant, its code and its consequence, in virtual time."""

import pytest

from edge.watch import Limits
from schemas.events import EndedBy, Kind, Outcome
from schemas.outcomes import ERRORS
from tests.support.running import ONE_ROUTE, edge_settings, ends_of, starts_of
from tests.support.upstream import DONE, HANG, Script, chunk, finish
from tests.support.virtual import run_virtually

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
