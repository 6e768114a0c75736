"""The retry matrix, row by row: what an answer means, and what an iterator does about it."""

from datetime import UTC, datetime

import pytest
from playing import FAST, Told
from scripted import GENERATION, Reply, Server, answer, delta, native, refusal
from tokentrail_client import Client, SessionLost
from tokentrail_client.advice import Action, Verdict, backoff_s, retry_after_s, verdict_on

AGAIN, STOP = Action.AGAIN, Action.STOP
ROWS = [
    (200, {}, Verdict(Action.READ)),
    (204, {}, Verdict(Action.DONE)),
    (429, {"x-should-retry": "true", "retry-after": "3"}, Verdict(AGAIN, 3)),
    (429, {"x-should-retry": "true"}, Verdict(AGAIN, 0)),
    (429, {"x-should-retry": "false", "retry-after": "3"}, Verdict(STOP)),
    (429, {"retry-after": "3"}, Verdict(AGAIN, 3)),
    (429, {}, Verdict(STOP)),
    (503, {"x-should-retry": "true", "retry-after-ms": "250"}, Verdict(AGAIN, 0.25)),
    (503, {"x-should-retry": "false"}, Verdict(STOP)),
    (502, {}, Verdict(AGAIN, 0)),
    (503, {}, Verdict(AGAIN, 0)),
    (504, {}, Verdict(AGAIN, 0)),
    (500, {"x-should-retry": "true"}, Verdict(AGAIN, 0)),
    (500, {}, Verdict(STOP)),
    (501, {}, Verdict(STOP)),
    (302, {}, Verdict(AGAIN, 0)),
    *[(status, {}, Verdict(STOP)) for status in (400, 401, 403, 404, 408, 409, 410, 413, 422)],
    *[(status, {"x-should-retry": "true", "retry-after": "1"}, Verdict(STOP)) for status in (401, 409, 410)],
]


@pytest.mark.parametrize(("status", "headers", "verdict"), ROWS)
def test_a_row(status, headers, verdict):
    """A status with its headers leads to what the table says."""
    assert verdict_on(status, headers) == verdict


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("1.5", 1.5), ("Sun, 29 Nov 2026 20:00:30 GMT", 30), ("Sun, 29 Nov 2026 19:00:00 GMT", 0),
        ("", None), ("soon", None), ("-1", None), ("1.2.3", None), ("²", None), ("nan", None),
    ],
)  # fmt: skip
def test_a_retry_after_is_seconds_or_a_date(text, seconds):
    """Retry-After as seconds or as a date; what is neither says nothing."""
    now = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)
    assert retry_after_s({"retry-after": text}, now) == seconds


def test_the_wait_doubles_up_to_its_bound():
    """Each failure in a row doubles the wait, up to the most; the jitter takes a part of it."""
    assert [backoff_s(n, 0.25, 8, 0.5) for n in range(7)] == [0.125, 0.25, 0.5, 1, 2, 4, 4]
    assert backoff_s(10**6, 0.25, 8, 0.999) < 8


BEGUN = answer({"generation_id": GENERATION}, 202, x_generation_id=GENERATION)
EVENTS = Reply((native(0, "message_start"), delta(1, "hi"), native(2, "message_end", finish_reason="stop")))


@pytest.mark.parametrize(
    ("code", "status", "headers", "again"),
    [
        ("too_many_requests", 429, {"x_should_retry": "true", "retry_after": "0"}, True),
        ("quota_exceeded", 429, {"x_should_retry": "false"}, False),
        ("log_unavailable", 503, {"x_should_retry": "true"}, True),
        ("kv_oom", 503, {"x_should_retry": "false"}, False),
        ("unauthorized", 401, {"x_should_retry": "false"}, False),
        ("idempotency_conflict", 422, {"x_should_retry": "false"}, False),
        ("bad_request", 400, {}, False),
    ],
)
@pytest.mark.parametrize("of", ["call", "resume"])
def test_an_iterator_obeys_the_matrix(of, code, status, headers, again):
    """A refusal of the call, or of a resume, is asked again where it may be, else it ends the session with its code."""
    told, refused = Told(), refusal(code, status, **headers)
    before = [refused] if of == "call" else [BEGUN, refused]
    server = Server(*before, *([BEGUN, EVENTS] if of == "call" else [EVENTS]))
    with Client("http://edge.test", "k", times=FAST, transport=server, on_state=told) as client:
        session = client.stream("/chat/completions", {"model": "m"})
        if again:
            assert [item.cursor is not None for item in session] == [True, True]
            assert (session.text, session.state) == ("hi", "completed")
        else:
            with pytest.raises(SessionLost) as caught:
                list(session)
            assert (caught.value.reason, session.state) == (code, "cancelled")
            assert len(server.asked) == len(before)


def test_refusals_without_end_are_an_end():
    """An edge that always says "again" is believed so many times as a call is tried."""
    server = Server(*[refusal("overloaded", 503, x_should_retry="true")] * FAST.call_tries)
    with (
        Client("http://edge.test", "k", times=FAST, transport=server) as client,
        pytest.raises(SessionLost) as caught,
    ):
        list(client.stream("/chat/completions", {"model": "m"}))
    assert caught.value.reason == "overloaded"
