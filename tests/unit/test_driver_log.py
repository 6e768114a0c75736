"""The driver and the log: a start that is not taken, records that are refused, outages, another writer's terminal."""

import asyncio

import pytest

from edge.clock import Clock, system_clock
from edge.log import LogAway
from edge.log.memory import MemoryLog
from schemas.events import CancelRequested, ErrorEnd, Kind, LogEvent, Outcome
from schemas.outcomes import ERRORS
from tests.support.edge import CODEC, Client, VirtualClock
from tests.support.running import SHORT, RunningEdge, check, edge_with, ends_of
from tests.support.upstream import DONE, HANG, OK, Script, ScriptedUpstream, chunk, finish
from tests.support.virtual import clock_of, in_virtual_time, virtually
from tests.support.waiting import until


class FailsAt(MemoryLog):
    """Refuses the first record of a kind."""

    fail_at = None

    def append(self, partition, key, values, on_ack, on_fail):
        """See EventLog."""
        if self.fail_at is not None and CODEC.decode(values[0], LogEvent).kind == self.fail_at[0]:
            self.fail_next(lands=self.fail_at[1])
            self.fail_at = None
        super().append(partition, key, values, on_ack, on_fail)


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


def test_an_edge_that_stood_still_is_no_outage_of_the_log():
    """Frozen for longer than the delivery time: the acknowledgements were there all the while, and the answer goes on."""

    async def work():
        loop = asyncio.get_running_loop()
        slept, running = VirtualClock(), clock_of(loop)
        clock = running._replace(now_us=lambda: running.now_us() + slept.us)
        upstream = ScriptedUpstream(Script(chunk("a"), 1, chunk("b"), 8, chunk("c"), finish(), DONE))
        async with RunningEdge(upstream, clock) as edge:
            entry = await edge.begin()
            loop.call_later(0.5, edge.log.hold)
            loop.call_later(4, setattr, slept, "us", 25_000_000)
            loop.call_later(7, edge.log.release)
            return await edge.over(entry, 60)

    assert virtually(work)[-1].kind is Kind.MESSAGE_END


@pytest.mark.parametrize("reason", ["a cancel", "the outage itself"])
def test_a_pause_of_our_own_is_nobodys_stall(reason):
    """Ended while the log is away and nothing is read: the wait behind the last content is ours, not the provider's."""

    async def work():
        loop = asyncio.get_running_loop()
        many = [piece for _ in range(50) for piece in (chunk("b" * 100), 0.01)]
        upstream = ScriptedUpstream(Script(chunk("a"), 1, *many, HANG))
        sections = {
            "limit": {"unacked_bytes": 4_000},
            "stream": {"stall_threshold_ms": 2_000, "stall_timeout_s": 60},
        }
        async with RunningEdge(upstream, clock_of(loop), **sections) as edge:
            entry = await edge.begin()
            loop.call_later(0.5, edge.log.hold)
            if reason == "a cancel":
                loop.call_later(
                    12, entry.driver.request_cancel, CancelRequested(mode="hard", reason="user_abort")
                )
            loop.call_later(40, edge.log.release)
            return await edge.over(entry, 60)

    records = virtually(work)
    (end,) = ends_of(records)
    assert end.outcome is not Outcome.OK
    assert end.elapsed_us > 10_000_000
    assert end.gaps == []


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


@pytest.mark.parametrize("limit", [{"unacked_bytes": 5_000}, {"unacked_total_bytes": 5_000}])
@in_virtual_time
async def test_reading_pauses_while_too_much_is_unacknowledged(limit):
    """The provider is not read further than the bound; its timers stand still, and the next record says for how long."""
    text = "x" * 2_000
    script = Script(chunk("first"), *[chunk(text)] * 6, 0.02, chunk("after"), finish(), DONE)
    sections = {"limit": limit, "stream": SHORT | {"stall_timeout_s": 0.2}}
    async with edge_with(script, clock=clock_of(asyncio.get_running_loop()), **sections) as edge:
        edge.log.hold()
        beginning = asyncio.ensure_future(edge.begin())
        await until(edge.log.all_records)
        edge.log.release()
        entry = await beginning
        edge.log.hold()
        await until(lambda: entry.driver.recorder.unacked_bytes > 5_000)
        await asyncio.sleep(0.4)  # virtual: twice the stall
        assert entry.driver.interrupted is None
        read = edge.kinds().count(Kind.DELTA)
        assert read < 7
        edge.log.release()
        records = await edge.over(entry)
    assert records[-1].kind is Kind.MESSAGE_END
    assert max(event.paused_us for event in records) >= 300_000
