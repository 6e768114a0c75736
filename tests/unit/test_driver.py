"""The driver: whatever interrupts a generation, it ends exactly once, its attempts before it, its provider let go."""

import asyncio

import pytest

from edge.clock import Clock, system_clock
from edge.log import LogAway
from edge.log.memory import MemoryLog
from schemas.events import CancelRequested, Dispatch, EndedBy, ErrorEnd, Kind, LogEvent, Outcome
from schemas.outcomes import ERRORS
from tests.support.edge import CODEC, Client, VirtualClock, turns
from tests.support.running import RunningEdge, check
from tests.support.upstream import CUT, DONE, HANG, Script, ScriptedUpstream, chunk, finish, usage
from tests.support.waiting import until

OK = Script(chunk("Hel"), chunk("lo"), finish(), usage(), DONE)
HARD = CancelRequested(mode="hard", reason="user_abort", source="api", requested_by="key-1")
SOFT = CancelRequested(mode="soft", reason="user_abort", source="api")
SHORT = {"ttft_timeout_s": 5, "stall_timeout_s": 5, "stall_threshold_ms": 40, "usage_grace_s": 5}


def edge_with(*scripts, clock=None, **sections):
    """Give an edge in front of a provider of scripts."""
    return RunningEdge(ScriptedUpstream(*scripts), clock or system_clock(), **sections)


class FailsAt(MemoryLog):
    """Refuses the first record of a kind."""

    fail_at = None

    def append(self, partition, key, values, on_ack, on_fail):
        """See EventLog."""
        if self.fail_at is not None and CODEC.decode(values[0], LogEvent).kind == self.fail_at[0]:
            self.fail_next(lands=self.fail_at[1])
            self.fail_at = None
        super().append(partition, key, values, on_ack, on_fail)


def ends_of(records):
    """Give the attempts' ends in order."""
    return [event.attempt_end for event in records if event.kind is Kind.ATTEMPT_END]


async def run(*scripts, **sections):
    """Run one generation to its end: its records and the edge."""
    async with edge_with(*scripts, **sections) as edge:
        entry = await edge.begin()
        return await edge.over(entry), edge


async def test_a_proper_stream_from_start_to_end():
    """Start, attempt, each event as it came, the attempt's end, the terminal with the protocol's own mark."""
    records, edge = await run(OK)
    assert edge.kinds() == [
        Kind.MESSAGE_START,
        Kind.ATTEMPT_START,
        Kind.DELTA,
        Kind.DELTA,
        Kind.FRAME,
        Kind.USAGE,
        Kind.ATTEMPT_END,
        Kind.MESSAGE_END,
    ]
    assert records[-1].raw == "[DONE]"
    assert records[-1].message_end.finish_reason == "stop"
    (end,) = ends_of(records)
    assert (end.outcome, end.committed, end.usage.output) == (Outcome.OK, True, 2)
    assert edge.upstream.calls[0].drained


async def test_nobody_is_called_before_the_start_is_in_the_log():
    """message_start and attempt_start are acknowledged first; then, and only then, the provider is called."""
    async with edge_with(OK) as edge:
        edge.log.hold()
        beginning = asyncio.ensure_future(edge.begin())
        await until(lambda: len(edge.log.all_records()) == 2)
        await turns(20)
        assert edge.upstream.calls == []
        assert edge.kinds() == [Kind.MESSAGE_START, Kind.ATTEMPT_START]
        edge.log.release()
        await edge.over(await beginning)
        assert len(edge.upstream.calls) == 1


@pytest.mark.parametrize("end", [CUT, b""])
async def test_a_provider_that_breaks_off_is_an_error(end):
    """A truncated stream is never ``stop``: the partial output is kept, the terminal says what happened."""
    records, _ = await run(Script(chunk("a"), end))
    assert records[-1].error.code == "incomplete_upstream"
    (attempt,) = ends_of(records)
    assert (attempt.outcome, attempt.error_code) == (Outcome.FAILED, "incomplete_upstream")
    assert attempt.possibly_billed


async def test_a_hard_cancel_closes_the_socket_at_once():
    """It does not wait for the provider; the record says who asked, and the end is a message_end ``cancelled``."""
    async with edge_with(Script(chunk("a"), HANG)) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        entry.driver.request_cancel(HARD)
        entry.driver.request_cancel(SOFT)
        records = await edge.over(entry)
    assert edge.upstream.calls[0].closed
    assert edge.kinds()[-3:] == [Kind.CANCEL_REQUESTED, Kind.ATTEMPT_END, Kind.MESSAGE_END]
    assert records[-1].message_end.finish_reason == "cancelled"
    assert records[-1].message_end.cancel == HARD
    assert ends_of(records)[0].outcome is Outcome.CANCELLED


async def test_a_soft_cancel_lets_the_read_in_progress_finish():
    """What the provider is just sending is kept; then its socket is closed."""
    more = asyncio.Event()
    async with edge_with(Script(chunk("a"), more, chunk("b"), chunk("c"), HANG)) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        entry.driver.request_cancel(SOFT)
        more.set()
        records = await edge.over(entry)
    assert [part.text for event in records for part in event.canonical] == ["a", "b"]
    assert records[-1].message_end.finish_reason == "cancelled"


async def test_a_soft_cancel_of_a_silent_provider_waits_a_moment_at_the_most():
    """A provider that sends nothing is let go after ``cancel.soft_ms``."""
    async with edge_with(Script(chunk("a"), HANG)) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        entry.driver.request_cancel(SOFT)
        records = await edge.over(entry, within_s=5)
    assert records[-1].message_end.finish_reason == "cancelled"
    assert edge.upstream.calls[0].closed


async def test_a_cancel_before_anything_was_sent():
    """Cancelled while queued: nobody is called, the announced attempt has its end."""
    async with edge_with(OK) as edge:
        edge.log.hold()
        beginning = asyncio.ensure_future(edge.begin())
        await until(edge.service.registry.running)
        (entry,) = edge.service.registry.running()
        entry.driver.request_cancel(HARD)
        edge.log.release()
        await beginning
        records = await edge.over(entry)
    assert edge.upstream.calls == []
    assert ends_of(records)[0].dispatch is Dispatch.NOT_CONNECTED
    assert not ends_of(records)[0].possibly_billed
    assert records[-1].message_end.finish_reason == "cancelled"


async def test_a_cancel_during_the_backoff_ends_the_chain():
    """Between two attempts there is nothing to close: the terminal follows, and no attempt is announced."""
    busy = Script(b"{}", status=503, content_type="application/json")
    async with edge_with(busy, OK, retry={"backoff_ms": 5_000}) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.ATTEMPT_END in edge.kinds())
        entry.driver.request_cancel(HARD)
        records = await edge.over(entry, within_s=3)
    assert len(edge.upstream.calls) == 1
    assert records[-1].message_end.finish_reason == "cancelled"


async def test_after_a_cancel_nothing_is_tried_again():
    """An attempt that fails while a soft cancel waits for it is the last one; its failure stands on it."""
    fails = asyncio.Event()
    busy = Script(b"{}", status=503, content_type="application/json", head=fails)
    async with edge_with(busy, OK) as edge:
        entry = await edge.begin()
        await until(lambda: edge.upstream.calls)
        entry.driver.request_cancel(SOFT)
        fails.set()
        records = await edge.over(entry)
    assert len(edge.upstream.calls) == 1
    assert ends_of(records)[0].error_code == "overloaded"
    assert records[-1].message_end.finish_reason == "cancelled"


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
    """attempt_end, then attempt_start with its reason and backoff, acknowledged, then the call."""
    busy = Script(b'{"error":{"message":"later"}}', status=503, content_type="application/json")
    async with edge_with(busy, OK) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.ATTEMPT_END in edge.kinds())
        edge.log.hold()
        await until(lambda: edge.kinds().count(Kind.ATTEMPT_START) == 2)
        await turns(20)
        assert len(edge.upstream.calls) == 1
        edge.log.release()
        records = await edge.over(entry)
    again = [event.attempt_start for event in records if event.kind is Kind.ATTEMPT_START][1]
    assert (again.reason, again.retry_reason, again.retry_count, again.provider) == (
        "retry",
        "overloaded",
        1,
        "two",
    )
    assert again.backoff_ms is not None
    assert records[-1].kind is Kind.MESSAGE_END


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


async def test_a_refused_record_ends_the_generation_in_the_log():
    """The log refuses a record in the middle: its readers get what the log has, and ``log_unavailable`` behind it."""
    go_on = asyncio.Event()
    async with edge_with(Script(chunk("a"), go_on, chunk("lost"), HANG)) as edge:
        entry = await edge.begin()
        client = Client(edge.service.desk.follower(await edge.service.desk.locate(entry.generation.id), 0))
        await until(lambda: Kind.DELTA in edge.kinds())
        edge.log.fail_next()
        go_on.set()
        records = await edge.over(entry)
        await client.done()
    assert edge.upstream.calls[0].closed
    assert records[-1].error.code == "log_unavailable"
    assert [(e.seq, e.kind) for e in records if e.seq is not None] == [
        (0, Kind.MESSAGE_START),
        (1, Kind.DELTA),
        (3, Kind.ERROR),
    ]
    assert client.seqs == [0, 1, 3]
    assert entry.generation.terminal.event.seq == 3


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("behind", [0, 1, 2], ids=["last delta", "attempt_end", "terminal"])
async def test_an_end_that_the_log_refused_has_an_end_all_the_same(behind, lands):
    """The last records fail, perhaps landing after all: the log still ends, once for every reader."""
    end = asyncio.Event()
    upstream = ScriptedUpstream(Script(chunk("a"), end, chunk("b"), finish(), DONE))
    clock = system_clock()
    log = FailsAt(lambda: clock.wall_us() // 1000, 4)
    async with RunningEdge(upstream, clock, log) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        log.fail_at = (("delta", "attempt_end", "message_end")[behind], lands)
        end.set()
        await until(lambda: entry.finished and not edge.service._tasks)
        located = await edge.service.desk.locate(entry.generation.id)
        client = await Client(edge.service.desk.follower(located, 0)).done()
        records = edge.records()
    assert client.broke_off is None
    assert client.got[-1].event.is_terminal
    assert sum(delivered.event.is_terminal for delivered in client.got) == 1
    ended = [event.attempt for event in records if event.kind is Kind.ATTEMPT_END]
    assert set(ended) == {0}
    proper = behind == 2 and lands
    assert (client.got[-1].event.kind is Kind.MESSAGE_END) == proper


async def test_an_outage_past_the_delivery_time_stops_the_reading():
    """Nothing is acknowledged any more: clients are told, the provider is let go, the end waits behind the rest."""
    sections = {
        "log": {"delivery_s": 0.08},
        "pipeline": {"orphan_after_s": 60},
    }
    async with edge_with(Script(chunk("a"), *[0.01, chunk("b")] * 100, HANG), **sections) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        edge.log.hold()
        await until(lambda: edge.upstream.calls[0].closed)
        assert entry.generation.log_away
        edge.log.release()
        records = await edge.over(entry)
    assert not entry.generation.log_away
    assert records[-1].error.code == "log_unavailable"


async def test_another_writers_terminal_lets_the_provider_go():
    """Frozen, found lost, thawed: the log's terminal stands, the provider is cancelled, only the attempt's end is added."""
    frozen = VirtualClock()
    clock = Clock(frozen.now_us, frozen.wall_us, system_clock().random_bits, lambda: 0.0)
    go_on = asyncio.Event()
    async with edge_with(Script(chunk("a"), go_on, chunk("too late"), HANG), clock=clock) as edge:
        entry = await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
        frozen.us += 100_000_000
        identity = entry.generation.identity
        lost = LogEvent(
            generation_id=identity.generation_id,
            tenant=identity.tenant,
            key_id=identity.key_id,
            dialect=identity.dialect,
            kind=Kind.ERROR,
            wall_us=frozen.wall_us(),
            edge_id="finder",
            seq=2,
            raw="{}",
            error=ErrorEnd(code="edge_lost", message=ERRORS["edge_lost"].meaning),
        )
        edge.log.put(identity.partition, identity.generation_id.encode(), CODEC.encode(lost))
        go_on.set()
        await until(lambda: entry.finished and not edge.service._tasks)
        records = edge.records()
    check(records)
    assert edge.upstream.calls[0].closed
    assert records[-1].kind is Kind.ATTEMPT_END
    assert entry.generation.terminal.event.edge_id == "finder"


async def test_a_start_that_the_log_does_not_take_is_a_503_with_an_end():
    """Not acknowledged in time: nobody is called; where the start lands later, an end lands behind it."""
    async with edge_with(OK, log={"start_ack_s": 0.05}) as edge:
        edge.log.hold()
        with pytest.raises(LogAway):
            await edge.begin()
        edge.log.release()
        await until(lambda: not edge.service._tasks and not edge.service.registry.running())
        records = edge.records()
    check(records)
    assert edge.upstream.calls == []
    assert records[-1].error.code == "log_unavailable"


async def test_a_start_that_the_log_refuses_calls_nobody():
    """A refused start is an error for the client, and leaves nothing running."""
    async with edge_with(OK) as edge:
        edge.log.fail_next()
        with pytest.raises(LogAway):
            await edge.begin()
        await until(lambda: not edge.service._tasks and not edge.service.registry.running())
    assert edge.upstream.calls == []


async def test_a_stop_on_purpose_ends_what_still_runs():
    """After the drain time the rest ends as ``edge_lost``, by this edge itself, before it disconnects."""
    async with edge_with(Script(chunk("a"), HANG)) as edge:
        await edge.begin()
        await until(lambda: Kind.DELTA in edge.kinds())
    records = edge.records()
    check(records)
    assert records[-1].error.code == "edge_lost"
    assert ends_of(records)[0].outcome is Outcome.LOST


async def test_a_stop_does_not_try_again():
    """Ending on purpose is no failure of a provider: no other route is called any more."""
    async with edge_with(Script(HANG), OK) as edge:
        await edge.begin()
        await until(lambda: edge.upstream.calls)
    check(edge.records())
    assert len(edge.upstream.calls) == 1
    assert edge.records()[-1].error.code == "edge_lost"


@pytest.mark.parametrize("failing", [0, 1], ids=["first attempt", "second attempt"])
async def test_a_bug_of_ours_ends_the_generation_once(failing, caplog):
    """Whatever is raised inside, the attempt that was open has its end and the generation exactly one terminal."""
    bug = Script(chunk("a"), RuntimeError("a bug"))
    busy = Script(b"{}", status=503, content_type="application/json")
    async with edge_with(*[busy] * failing, bug) as edge:
        entry = await edge.begin()
        records = await edge.over(entry)
    assert records[-1].error.code == "edge_lost"
    assert [end.outcome for end in ends_of(records)] == [*[Outcome.FAILED] * failing, Outcome.LOST]


async def test_reading_pauses_while_too_much_is_unacknowledged():
    """The provider is not read further than the bound; its timers stand still, and the next record says for how long."""
    text = "x" * 2_000
    script = Script(chunk("first"), *[chunk(text)] * 6, 0.02, chunk("after"), finish(), DONE)
    sections = {"limit": {"unacked_bytes": 5_000}, "stream": SHORT | {"stall_timeout_s": 0.2}}
    async with edge_with(script, **sections) as edge:
        edge.log.hold()
        beginning = asyncio.ensure_future(edge.begin())
        await until(edge.log.all_records)
        edge.log.release()
        entry = await beginning
        edge.log.hold()
        await until(lambda: entry.driver.recorder.unacked_bytes > 5_000)
        await asyncio.sleep(0.4)
        assert entry.driver.interrupted is None
        read = edge.kinds().count(Kind.DELTA)
        assert read < 7
        edge.log.release()
        records = await edge.over(entry)
    assert records[-1].kind is Kind.MESSAGE_END
    assert max(event.paused_us for event in records) >= 300_000


async def test_heartbeats_stand_in_the_log_while_it_runs():
    """The liveness that the orphan finder watches: from the start, at their interval, none behind the end."""
    sections = {"stream": SHORT | {"heartbeat_s": 0.02}}
    records, _ = await run(Script(0.15, chunk("a"), finish(), DONE), **sections)
    beats = [event for event in records if event.kind is Kind.HEARTBEAT]
    assert len(beats) >= 3
    assert {beat.heartbeat.stage.value for beat in beats} <= {"queued", "prefill", "decode"}
    assert records[-1].kind is Kind.MESSAGE_END
