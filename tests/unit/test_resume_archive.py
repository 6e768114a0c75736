"""The rows of the cursor table below the log's start: log and archive together give what the log alone gave."""

import pytest

from edge.follow import LogSilent
from edge.log import LogAway
from edge.reading.resume import Opened
from schemas.events import Kind
from schemas.parts import RECORD_BYTES_MAX
from tests.support.archive import MemoryArchive, rows_of
from tests.support.desk import COLLEAGUE, OWNER, STRANGER, Scene
from tests.support.edge import Client, Writer, identity_of, shown, turns


def refused(answer):
    """Give status and code of a refusal."""
    assert not isinstance(answer, Opened), "a stream was opened"
    return answer.status, answer.code


async def archived(texts=9, end="proper", *, kept_from=None, archived_below=None):
    """Give a scene whose log begins at the offset of a seq (None: holds nothing of it), and whose archive ends at one."""
    scene = await Scene("log", archive=MemoryArchive()).written(texts=texts, end=end)
    log, partition = scene.writer.log, scene.writer.partition
    scene.whole = [shown(d) for d in (await Client(scene.writer.follower(local=False)).read(end is None)).got]
    below = None if archived_below is None else scene.offset_of(archived_below)
    scene.archive.rows = [r for r in rows_of(log) if below is None or r["offset"] < below]
    scene.cursors = [scene.cursor(seq) for seq in range(len(scene.whole))]
    first = None if kept_from is None else scene.offset_of(kept_from)
    log.drop(partition, lambda record: first is None or record[0] < first)
    return scene


async def everything(scene, caller=OWNER, **presented):
    """Read a stream to its end; what the wire is made of."""
    opened = await scene.ask(caller, **presented)
    assert isinstance(opened, Opened), opened
    return (await Client(opened.follower).done()).shown


@pytest.mark.parametrize("kept_from", [None, 0, 1, 5, 9, 10])
@pytest.mark.parametrize("end", ["proper", "error"])
async def test_archive_and_log_give_what_the_log_gave(kept_from, end):
    """Wherever retention stands, the events behind every cursor are the same, their places in the log included."""
    scene = await archived(end=end, kept_from=kept_from)
    assert await everything(scene) == scene.whole
    for seq, cursor in enumerate(scene.cursors[:-1]):
        assert await everything(scene, COLLEAGUE, last_event_id=cursor) == scene.whole[seq + 1 :]
    assert refused(await scene.ask(last_event_id=scene.cursors[-1])) == (204, "ended")


@pytest.mark.parametrize("archived_below", [1, 4, 7, 10])
async def test_the_log_goes_on_where_the_archive_ends(archived_below):
    """A sink that lags, a generation that outlives the log's start: each gives its part, and nothing twice."""
    scene = await archived(kept_from=1, archived_below=archived_below)
    assert await everything(scene) == scene.whole
    assert await everything(scene, last_event_id=scene.cursors[2]) == scene.whole[3:]


async def test_a_running_generation_whose_start_is_archived_is_followed():
    """Archive, log, then what comes: one stream."""
    scene = await archived(texts=5, end=None, kept_from=4, archived_below=5)
    opened = await scene.ask()
    client = Client(opened.follower)
    scene.writer.text("live")
    scene.writer.end()
    assert (await client.done()).seqs == list(range(8))


async def test_an_event_in_parts_comes_back_under_its_id():
    """Joined in the archive, it lies where its last part lay."""
    scene = Scene("log", archive=MemoryArchive())
    scene.writer.start()
    scene.writer.text("x" * (2 * RECORD_BYTES_MAX))
    scene.writer.end()
    await turns()
    whole = (await Client(scene.writer.follower(local=False)).done()).shown
    scene.archive.rows = rows_of(scene.writer.log)
    scene.writer.log.drop(scene.writer.partition, lambda _: True)
    assert await everything(scene) == whole


async def test_a_hole_of_archive_and_log_together_is_410():
    """What neither holds is said before the head, with the first seq that is held behind it."""
    scene = await archived(kept_from=7, archived_below=4)
    answer = await scene.ask()
    assert refused(answer) == (410, "resume_expired")
    assert answer.first_available_seq == 7
    assert await everything(scene, last_event_id=scene.cursors[6]) == scene.whole[7:]


async def test_a_beginning_without_its_end_is_410():
    """The archive's part stops in the middle, the log holds nothing, and no terminal can come any more."""
    scene = await archived(archived_below=4)
    answer = await scene.ask(last_event_id=scene.cursors[1])
    assert refused(answer) == (410, "resume_expired")
    assert answer.first_available_seq == 0


async def test_a_hole_that_an_error_closes_is_no_hole():
    """The archive's error terminal ends a reading over a lost range, as the log's does."""
    scene = await archived(end="error")
    lost = {row["offset"] for row in scene.archive.rows if row["seq"] in (3, 4)}
    scene.archive.rows = [row for row in scene.archive.rows if row["offset"] not in lost]
    assert [event[0] for event in await everything(scene)] == [0, 1, 2, 10]


async def test_what_the_log_lost_in_its_middle_is_in_the_archive():
    """A hole of the log alone costs a look into the archive and nothing else."""
    scene = await archived(kept_from=0)
    scene.writer.log.drop(scene.writer.partition, lambda record: record[0] == scene.whole[5][-1])
    assert await everything(scene, last_event_id=scene.cursors[2]) == scene.whole[3:]


async def test_where_everything_is_gone():
    """Held nowhere: 410 for an id that we gave out, 404 without one."""
    scene = await archived()
    scene.archive.rows = []
    assert refused(await scene.ask(last_event_id=scene.cursors[3])) == (410, "resume_expired")
    assert refused(await scene.ask()) == (404, "not_found")


async def test_refusals_are_those_of_the_log():
    """Foreign, forged, ahead, another key's plain seq: the archive answers each as the log does."""
    scene = await archived()
    assert refused(await scene.ask(STRANGER)) == (404, "not_found")
    assert refused(await scene.ask(STRANGER, last_event_id=scene.cursors[3])) == (404, "not_found")
    forged = scene.cursor(3, secret=b"guessed")
    assert refused(await scene.ask(last_event_id=forged)) == (401, "cursor_invalid")
    assert refused(await scene.ask(COLLEAGUE, after="3")) == (401, "cursor_invalid")
    assert refused(await scene.ask(after="40")) == (409, "cursor_ahead")
    assert refused(await scene.ask(last_event_id=scene.cursor(40))) == (409, "cursor_ahead")
    assert refused(await scene.ask(after="10")) == (204, "ended")


@pytest.mark.parametrize("presented", [{}, {"after": "3"}, {"last_event_id": True}], ids=str)
async def test_an_archive_that_is_away_is_no_empty_one(presented):
    """What only the archive can know is a 503 while it does not answer, never 404 or 410."""
    scene = await archived()
    scene.archive.away = True
    if "last_event_id" in presented:
        presented = {"last_event_id": scene.cursors[3]}
    with pytest.raises(LogAway):
        await scene.ask(**presented)
    with pytest.raises(LogAway):
        await scene.desk.history(OWNER, scene.id)


async def test_an_error_that_ends_a_hole_needs_no_archive():
    """Where the log holds what is before the hole its answer will do; an archive that has more betters it."""
    scene = await archived(end="error", kept_from=0)
    lost = scene.whole[4][-1]
    scene.writer.log.drop(scene.writer.partition, lambda record: record[0] == lost)
    assert await everything(scene) == scene.whole
    held = await scene.desk.history(OWNER, scene.id)
    assert len(held.delivered) == len(scene.whole)
    scene.archive.away = True
    shortened = [*scene.whole[:4], scene.whole[-1]]
    assert [e[0] for e in await everything(scene)] == [e[0] for e in shortened]
    assert await everything(scene, last_event_id=scene.cursors[2]) == shortened[3:]
    assert len((await scene.desk.history(OWNER, scene.id)).delivered) == len(shortened)
    scene.archive.away = False
    scene.archive.rows = scene.archive.rows[:2]
    scene.writer.clock.us += 86_400_000_000
    assert [e[0] for e in await everything(scene)][-1] == 10


async def test_an_archive_that_goes_away_in_the_middle_breaks_off():
    """Behind the head: what was given stays good, the client is told to come back, and has the rest then."""
    scene = await archived(texts=150)
    opened = await scene.ask()
    scene.archive.away = True
    client = await Client(opened.follower).done()
    assert isinstance(client.broke_off, LogSilent)
    held = len(client.got)
    assert 0 < held < 150
    assert client.shown == scene.whole[:held]
    scene.archive.away = False
    assert await everything(scene, last_event_id=scene.cursors[held - 1]) == scene.whole[held:]


async def test_what_the_log_must_hold_is_known_without_the_archive():
    """The log holds the whole time in which it can have begun: it never was, whether the archive answers or not."""
    scene = Scene("log", archive=MemoryArchive())
    scene.archive.away = True
    partition = scene.writer.partition
    scene.writer.clock.us -= 3_600_000_000
    scene.writer.log.put(partition, b"of another", b"an hour before")
    scene.writer.clock.us += 3_600_000_000
    numbers = (n for n in range(99, 999) if identity_of(n).partition == partition)
    unknown = identity_of(next(numbers)).generation_id
    assert refused(await scene.ask(generation_id=unknown)) == (404, "not_found")


async def test_a_held_generation_is_read_without_the_archive():
    """What the log holds costs no question, also while the archive is away."""
    scene = await archived(kept_from=0)
    scene.archive.away, scene.archive.asked = True, 0
    assert await everything(scene) == scene.whole
    assert (await scene.desk.history(OWNER, scene.id)).complete
    assert scene.archive.asked == 0


async def test_on_another_topic_of_the_same_name():
    """Re-created, the topic holds others where the hint points, or ends before it: the archive has the whole."""
    scene = await archived()
    log, partition = scene.writer.log, scene.writer.partition
    log._records[partition].clear()
    log._next[partition] = log._first[partition] = 0
    scene.writer.clock.us += 3_600_000_000
    for _ in range(2):
        for seq, cursor in enumerate(scene.cursors[:-1]):
            assert await everything(scene, last_event_id=cursor) == scene.whole[seq + 1 :]
        assert await everything(scene) == scene.whole
        for number in range(30):  # what lies there now is another's
            other = Writer(scene.writer.clock, log, number=200 + number)
            if other.partition == partition:
                other.start()
                other.end()
        log.put(partition, b"a stranger's", b"no record of ours")
        await turns()


async def test_history_is_the_same_from_archive_and_log():
    """State and result see the same records, trace records included, wherever they lie."""
    scene = await Scene("log", archive=MemoryArchive()).written(texts=4)
    before = await scene.desk.history(OWNER, scene.id)
    scene.archive.rows = rows_of(scene.writer.log)
    for first in (4, 99):
        scene.writer.log.drop(scene.writer.partition, lambda record, first=first: record[0] < first)
        after = await scene.desk.history(OWNER, scene.id)
        assert after.records == before.records
        assert after.delivered == before.delivered
        assert after.complete
    assert refused(await scene.desk.history(STRANGER, scene.id)) == (404, "not_found")


async def test_text_that_was_not_stored_is_not_served():
    """With raw switched off the archive knows the generation and gives none of it: 410."""
    scene = await archived()
    scene.archive.rows = [row | {"raw": None} for row in scene.archive.rows]
    assert refused(await scene.ask()) == (410, "resume_expired")


async def test_what_is_forgotten_there_is_erased():
    """A tombstone in the archive is the answer for its tenant alone."""
    scene = await archived()
    kept = next(row for row in scene.archive.rows if row["kind"] == Kind.MESSAGE_START)
    scene.archive.rows = [kept | {"kind": "forgotten", "seq": None, "after_seq": 10, "payload": ""}]
    assert refused(await scene.ask()) == (410, "erased")
    assert refused(await scene.ask(last_event_id=scene.cursors[2])) == (410, "erased")
    assert refused(await scene.desk.history(OWNER, scene.id)) == (410, "erased")
    assert refused(await scene.ask(STRANGER)) == (404, "not_found")


@pytest.mark.parametrize("kept", ["log", "archive", "its end"])
async def test_nobody_scans_a_partition_from_its_beginning(kept):
    """A day of other records lies before and behind it: no answer to anything begins to read outside of its own time."""
    scene = Scene("log", archive=MemoryArchive())
    clock, log, partition = scene.writer.clock, scene.writer.log, scene.writer.partition
    others(log, partition, clock, hours=-24)
    first = log._next[partition]
    await scene.written(texts=9)
    cursors = [scene.cursor(seq) for seq in range(11)]
    others(log, partition, clock, hours=24)
    if kept != "log":
        scene.archive.rows = [r for r in rows_of(log) if kept == "archive" or r["seq"] != 10]
        mine = {row["offset"] for row in scene.archive.rows}
        log.drop(partition, lambda record: record[0] in mine)
        log._first[partition] = 0
    began = []
    read_from = log.reader
    log.reader = lambda partition, key, offset, **how: (
        began.append(offset) or read_from(partition, key, offset, **how)
    )
    for presented in ({}, {"last_event_id": cursors[2]}, {"last_event_id": cursors[10]}, {"after": "7"}):
        opened = await scene.ask(**presented)
        if isinstance(opened, Opened):
            await Client(opened.follower).done()
    await scene.desk.history(OWNER, scene.id)
    await scene.ask(generation_id=identity_of(77).generation_id)
    assert began
    assert min(began) >= first - 1


def others(log, partition, clock, *, hours):
    """Put a record of others every minute of so many hours around now."""
    here_us = clock.us
    for minute in range(abs(hours) * 60):
        clock.us = here_us + (minute - 60 * abs(hours) if hours < 0 else minute + 2) * 60_000_000
        log.put(partition, b"another's", b"its value")
    clock.us = here_us
