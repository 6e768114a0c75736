"""Whole generations over drawn providers, in virtual time: whatever they do, one attempt speaks and one terminal ends it."""

import asyncio
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.events import CancelRequested, Kind
from schemas.settings import ApiKey
from tests.support.running import ends_of, starts_of
from tests.support.upstream import CUT, DONE, HANG, Script, chunk, finish, usage
from tests.support.virtual import RunningEdge, ScriptedUpstream, clock_of, over, virtually

KEY = ApiKey(id="key-1", tenant="acme", sha256="0" * 64, allow={"hedge", "repair", "shrink"})
SECTIONS = {
    "hedge": {"after_s": 2, "stall_after_s": 3, "max_in_flight": 2},
    "stream": {"ttft_timeout_s": 20, "stall_timeout_s": 15, "usage_grace_s": 2},
    "timeout": {"queue_s": 10, "decode_s": 60, "request_s": 100},
    "retry": {"max_attempts": 4, "backoff_ms": 500},
    "disconnect": {"policy": "continue"},
}
READS = st.sampled_from(
    ["text", "text", "json", "alive", "empty", 0.5, 2.5, 8, "finish", "usage", "done", HANG, CUT]
)
STATUSES = st.sampled_from([200, 200, 200, 200, 503, 429, 400, 500])
HEADS = st.sampled_from([None, None, 1, 5, HANG])


def script_of(number, drawn):
    """Give the i-th provider's script; each piece of text says whose it is."""
    reads, status, head = drawn
    words = {
        "text": chunk(f"<{number}>"),
        "json": chunk("{}"),
        "alive": b": alive\n\n",
        "empty": chunk(""),
        "finish": finish(),
        "usage": usage(),
        "done": DONE,
    }
    if status != 200:
        return Script(
            b'{"error":{"message":"no"}}', status=status, content_type="application/json", head=head
        )
    return Script(*[words.get(read, read) for read in reads], head=head)


SCRIPTS = st.lists(st.tuples(st.lists(READS, max_size=8), STATUSES, HEADS), min_size=4, max_size=4)
WHAT = st.sampled_from([None, None, "soft", "hard", "forbid", "stop"])
HEADERS = st.sampled_from([{}, {"x-tokentrail-hold-ms": "4000"}, {"x-deadline-ms": "30000"}])


def play(scripts, what, at_s, body, headers):
    """Run one generation, with something from outside at an instant."""

    async def work():
        loop = asyncio.get_running_loop()
        upstream = ScriptedUpstream(*[script_of(i, drawn) for i, drawn in enumerate(scripts)])
        edge = RunningEdge(upstream, clock_of(loop), **SECTIONS)
        async with edge:
            entry = await edge.begin(headers, KEY, **body)
            driver, forbidden = entry.driver, []

            def act():
                if what in ("soft", "hard"):
                    driver.request_cancel(CancelRequested(mode=what))
                elif what == "stop":
                    driver.interrupt("edge_lost")
                elif what == "forbid":
                    driver.forbid_retries()
                    forbidden.append(driver.attempts_made)

            loop.call_later(at_s, act)
            records = await over(edge, entry)
            return records, upstream, forbidden

    return virtually(work)


@settings(max_examples=60)
@given(
    SCRIPTS,
    WHAT,
    st.sampled_from([0, 0.6, 3, 9]),
    st.sampled_from([{}, {"stream": False}, {"stream": False, "response_format": {"type": "json_object"}}]),
    HEADERS,
)
def test_whatever_providers_do(scripts, what, at_s, body, headers):
    """One committed attempt at most, no text of another, nothing begun behind it, every socket let go, one terminal."""
    records, upstream, forbidden = play(scripts, what, at_s, body, headers)
    starts, ends = starts_of(records), ends_of(records)
    assert len(starts) <= SECTIONS["retry"]["max_attempts"]
    assert [end.committed for end in ends].count(True) <= 1
    numbered = [event for event in records if event.seq is not None and event.raw is not None]
    speaking = {event.attempt for event in numbered if event.kind not in (Kind.MESSAGE_END, Kind.ERROR)}
    assert len(speaking) <= 1
    said = "".join(part.text for event in numbered for part in event.canonical)
    assert set(re.findall(r"<(\d)>", said)) <= {str(number) for number in speaking}
    shown = [at for at, event in enumerate(records) if event.has_content]
    begun = [at for at, event in enumerate(records) if event.kind is Kind.ATTEMPT_START]
    assert not shown or begun[-1] < shown[0]
    assert all(call.closed for call in upstream.calls)
    assert len(upstream.calls) <= len(starts)
    assert not forbidden or len(starts) == forbidden[0]
    committed = {
        event.attempt for event in records if event.kind is Kind.ATTEMPT_END and event.attempt_end.committed
    }
    assert speaking <= committed
