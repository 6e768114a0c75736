"""The generations of one edge: readers and the grace time, what other edges say, one memory budget."""

import asyncio

import pytest

from edge.admission.holdings import Holdings
from edge.generation import SINCE_BYTES_MAX, SINCE_EVENTS_MAX
from edge.metrics import Metrics
from edge.registry import Registry
from schemas.events import CancelRequested, ClientReader, Kind, ToolStatus
from schemas.reading import Reading
from schemas.records import ControlKind, ControlRecord
from tests.support.edge import CODEC, Client, Writer, settings_of, turns
from tests.support.virtual import in_virtual_time
from tests.support.waiting import until

GRACE_S = 0.08
READER = ClientReader(reader_id="r1")


class StubDriver:
    """Takes what a registry tells a driver."""

    tokens_seen = 7

    def __init__(self):
        self.holdings = Holdings(0)
        self.cancels = []
        self.notes = []

    def request_cancel(self, cancel):
        """Keep the call."""
        self.cancels.append(cancel)

    def note_reader(self, kind, reader):
        """Keep the note."""
        self.notes.append((kind, reader.reader_id))


def now_us():
    """Give the loop's microseconds."""
    return round(asyncio.get_running_loop().time() * 1e6)


def registry_of(grace_s=GRACE_S, **limits):
    """Give an empty registry."""
    settings = settings_of(disconnect={"grace_s": grace_s}, limit=limits)
    return Registry(settings, Metrics(), now_us)


def running(registry, number=0, on_disconnect="grace"):
    """Give a generation that runs here: its entry, driver and writer."""
    writer, driver = Writer(number=number), StubDriver()
    writer.generation.on_disconnect = on_disconnect
    return registry.add(writer.generation, driver), driver, writer


def attached(generation_id):
    """Give what another edge says of its reader."""
    record = ControlRecord(
        generation_id=generation_id, kind=ControlKind.ATTACHED, edge_id="edge-2", wall_us=1
    )
    return CODEC.encode(record)


@in_virtual_time
async def test_without_any_reader_for_the_grace_time_it_is_cancelled():
    """The last reader left and none came: a hard cancel, because the client is gone."""
    registry = registry_of()
    entry, driver, _ = running(registry)
    registry.attach(entry.generation, READER)
    began = asyncio.get_running_loop().time()
    registry.detach(entry.generation, READER)
    assert driver.cancels == []
    await until(lambda: driver.cancels)
    assert asyncio.get_running_loop().time() - began >= GRACE_S
    (cancel,) = driver.cancels
    assert (cancel.mode, cancel.reason, cancel.source, cancel.stage.value) == (
        "hard",
        "client_disconnect",
        "edge",
        "queued",
    )


@in_virtual_time
async def test_a_reader_that_comes_back_keeps_it_alive():
    """Within the grace time a new reader stops the clock; another reader that stays never lets it start."""
    registry = registry_of()
    entry, driver, _ = running(registry)
    for _ in range(2):
        registry.attach(entry.generation, READER)
    registry.detach(entry.generation, READER)
    await asyncio.sleep(2 * GRACE_S)
    registry.detach(entry.generation, READER)
    registry.attach(entry.generation, READER)
    await asyncio.sleep(2 * GRACE_S)
    assert driver.cancels == []
    assert entry.generation.readers == 1


@in_virtual_time
async def test_a_reader_on_another_edge_keeps_it_alive_while_it_says_so():
    """``attached`` on control postpones the end by the grace time; when nobody says it any more, it comes."""
    registry, (entry, driver, writer) = registry_of(), (None, None, None)
    entry, driver, writer = running(registry)
    following = asyncio.ensure_future(registry.follow_control(writer.log, CODEC))
    registry.attach(entry.generation, READER)
    registry.detach(entry.generation, READER)
    began = asyncio.get_running_loop().time()
    for _ in range(6):
        await writer.log.tell(b"k", attached(entry.generation.id))
        await asyncio.sleep(GRACE_S / 2)
    assert driver.cancels == []
    await until(lambda: driver.cancels)
    assert asyncio.get_running_loop().time() - began >= 3 * GRACE_S
    following.cancel()


@pytest.mark.parametrize("policy", ["continue", "cancel"])
@in_virtual_time
async def test_the_other_readings_of_a_disconnect(policy):
    """``continue``: it runs on without anybody; ``cancel``: it ends at once."""
    registry = registry_of()
    entry, driver, _ = running(registry, on_disconnect=policy)
    registry.attach(entry.generation, READER)
    registry.detach(entry.generation, READER)
    assert len(driver.cancels) == (policy == "cancel")
    await asyncio.sleep(2 * GRACE_S)
    assert len(driver.cancels) == (policy == "cancel")


@pytest.mark.parametrize("read_elsewhere", [False, True])
@in_virtual_time
async def test_cancel_asks_for_readers_on_other_edges_too(read_elsewhere):
    """``cancel``: the last reader here has gone; one that another edge told of within the grace time still reads."""
    registry = registry_of()
    entry, driver, writer = running(registry, on_disconnect="cancel")
    following = asyncio.ensure_future(registry.follow_control(writer.log, CODEC))
    registry.attach(entry.generation, READER)
    if read_elsewhere:
        await writer.log.tell(b"k", attached(entry.generation.id))
        await until(lambda: entry.attached_us is not None)
    began = asyncio.get_running_loop().time()
    registry.detach(entry.generation, READER)
    assert len(driver.cancels) == (not read_elsewhere)
    await until(lambda: driver.cancels)
    assert driver.cancels[0].reason == "client_disconnect"
    assert (asyncio.get_running_loop().time() - began >= GRACE_S / 2) is read_elsewhere
    following.cancel()


async def test_a_cancel_says_who_had_read_how_far():
    """The last seq that a reader of this edge was sent, why the last one left, and what a tool's caller reported."""
    registry = registry_of()
    entry, driver, _ = running(registry)
    generation = entry.generation
    asked = CancelRequested(mode="soft", reason="user_abort", source="api")
    registry.cancel(generation.id, asked)
    assert (driver.cancels[0].last_seq, driver.cancels[0].disconnect_reason) == (None, None)
    generation.reading = {"r1": Reading(8), "r2": Reading(5)}
    generation.left("r1", "connection_lost")
    entry.tool_said = ToolStatus(tool_call_id="call_1", status="ok", compensation_id="undo-1")
    registry.cancel(generation.id, asked)
    told = driver.cancels[1]
    assert (told.last_seq, told.disconnect_reason) == (7, "connection_lost")
    assert told.tool.compensation_id == "undo-1"
    generation.reading["r2"] = Reading(12)
    registry.cancel(generation.id, asked)
    assert driver.cancels[2].last_seq == 11


async def test_the_log_is_told_of_readers_while_it_runs():
    """Coming and leaving is on record until the end, and not behind it."""
    registry = registry_of()
    entry, driver, _ = running(registry)
    registry.attach(entry.generation, READER)
    registry.detach(entry.generation, READER)
    registry.finish(entry)
    registry.attach(entry.generation, READER)
    registry.detach(entry.generation, READER)
    assert driver.notes == [(Kind.CLIENT_ATTACHED, "r1"), (Kind.CLIENT_DETACHED, "r1")]
    assert driver.cancels == []


@in_virtual_time
async def test_a_finished_generation_stays_for_the_grace_time():
    """Its window serves quick resumes, then it is forgotten; an end stops the grace clock."""
    registry = registry_of()
    entry, driver, _ = running(registry)
    assert (len(registry), registry.running()) == (1, [entry])
    registry.attach(entry.generation, READER)
    registry.detach(entry.generation, READER)
    registry.finish(entry)
    assert (len(registry), registry.running()) == (0, [])
    assert registry.get(entry.generation.id) is entry.generation
    await until(lambda: registry.get(entry.generation.id) is None)
    assert driver.cancels == []


async def test_a_cancel_reaches_what_runs_here_and_nothing_else():
    """With the stage that it met; unknown and finished generations are somebody else's."""
    registry = registry_of()
    entry, driver, _ = running(registry)
    asked = CancelRequested(mode="soft", reason="user_abort", source="api", requested_by="key-1")
    assert registry.cancel(entry.generation.id, asked)
    assert driver.cancels[0].requested_by == "key-1"
    assert driver.cancels[0].stage.value == "queued"
    assert not registry.cancel("unknown", asked)
    registry.finish(entry)
    assert not registry.cancel(entry.generation.id, asked)
    assert len(driver.cancels) == 1


async def test_control_of_other_edges_is_done_here():
    """Cancels of what runs here are carried out; the rest, and what cannot be read, is passed over."""
    registry = registry_of()
    entry, driver, writer = running(registry)
    cancel = CancelRequested(mode="soft", reason="policy_violation", source="api")
    for generation_id in ("unknown", entry.generation.id):
        record = ControlRecord(
            generation_id=generation_id,
            kind=ControlKind.CANCEL,
            edge_id="edge-2",
            wall_us=1,
            cancel=cancel,
        )
        await writer.log.tell(b"k", b"not a record")
        await writer.log.tell(b"k", CODEC.encode(record))
    await writer.log.tell(b"k", attached("unknown"))
    following = asyncio.ensure_future(registry.follow_control(writer.log, CODEC))
    await until(lambda: driver.cancels)
    assert [cancelled.reason for cancelled in driver.cancels] == ["policy_violation"]
    assert not following.done()
    following.cancel()


async def filled(registry, number, count, *, finished=False):
    """Give the entry of a generation whose window holds so many kilobytes."""
    entry, _, writer = running(registry, number)
    writer.start()
    for _ in range(count):
        writer.text("x" * 200)
    await turns()
    if finished:
        registry.finish(entry)
    return entry


async def test_the_budget_takes_the_finished_first_and_the_oldest_of_them():
    """Finished generations go before any running window shrinks."""
    registry = registry_of(window_bytes=25_000)
    old = await filled(registry, 0, 10, finished=True)
    new = await filled(registry, 1, 10, finished=True)
    alive = await filled(registry, 2, 10)
    size = alive.generation.window_bytes
    registry.keep_budget()
    assert registry.get(old.generation.id) is None
    assert registry.get(new.generation.id) is new.generation
    assert alive.generation.window_bytes == size


@pytest.mark.parametrize("gone", ["by the budget", "after the grace time"])
@in_virtual_time
async def test_what_the_budget_does_not_see_is_not_held(gone):
    """A reader that takes nothing keeps no window alive when its generation is forgotten here: it goes on from the log."""
    registry = registry_of(grace_s=0.01, window_bytes=1 if gone == "by the budget" else 1 << 20)
    entry, _, writer = running(registry)
    writer.start()
    for _ in range(600):
        writer.text()
    writer.end()
    await turns()
    slow = writer.follower()
    taken = await slow.read()
    registry.finish(entry)
    if gone == "by the budget":
        registry.keep_budget()
    await until(lambda: registry.get(entry.generation.id) is None)
    assert (len(entry.generation.window), entry.generation.window_bytes) == (0, 0)
    assert len(taken) == SINCE_EVENTS_MAX
    seqs = [delivered.event.seq for delivered in taken] + (await Client(slow).done()).seqs
    assert seqs == list(range(602))
    assert slow.remote


async def test_a_reader_takes_little_of_the_window_at_a_time():
    """So many events, or bytes, whatever the window holds: what a slow reader has in hand is bounded."""
    writer = Writer()
    writer.start()
    for _ in range(3):
        writer.text("x" * SINCE_BYTES_MAX)
    for _ in range(600):
        writer.text()
    await turns()
    generation = writer.generation
    assert [len(generation.since(seq)) for seq in (0, 1, 4, 500)] == [2, 1, SINCE_EVENTS_MAX, 104]


async def test_the_budget_halves_the_largest_running_windows():
    """Running generations stay, their older events go; what is left is below the budget, and small windows are spared."""
    registry = registry_of(window_bytes=20_000)
    small, large = await filled(registry, 0, 5), await filled(registry, 1, 60)
    before = small.generation.window_bytes
    registry.keep_budget()
    assert small.generation.window_bytes == before
    assert small.generation.window_bytes + large.generation.window_bytes <= 20_000
    assert large.generation.window
    assert large.generation.since(0) is None


@in_virtual_time
async def test_the_budget_is_kept_while_generations_run():
    """Nobody has to finish for the windows to stay bounded."""
    registry = registry_of(window_bytes=10_000)
    keeping = asyncio.ensure_future(registry.keep_budget_always())
    entry = await filled(registry, 0, 60)
    await until(lambda: entry.generation.window_bytes <= 10_000)
    keeping.cancel()
    assert entry.generation.window_bytes <= 10_000


async def test_what_waits_for_the_log_is_bounded_for_all_together():
    """Each generation's share shrinks as others begin and grows as they end: the whole stays what it is."""
    registry = registry_of(unacked_bytes=400, unacked_total_bytes=1_000)
    assert (registry.unacked_share(), len(registry)) == (400, 0)
    entries = [running(registry, number)[0] for number in range(5)]
    assert (registry.unacked_share(), len(registry)) == (200, 5)
    for entry in entries[:3]:
        registry.finish(entry)
    assert (registry.unacked_share(), len(registry)) == (400, 2)
