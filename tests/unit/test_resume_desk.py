"""The cursor table, row by row: from this edge's memory and from the log alone, with the same answers."""

from datetime import UTC, datetime, timedelta

import pytest

from edge.reading.resume import Opened, Presented, read_cursor
from schemas.cursor import CursorMalformed, render, resumption_token, sign
from schemas.ids import uuid7
from schemas.parts import RECORD_BYTES_MAX
from tests.support.desk import COLLEAGUE, OWNER, STRANGER, Scene
from tests.support.edge import SECRET, T0_US, Client, Writer, identity_of, turns

OLD_SECRET = b"a retired secret"


@pytest.fixture(params=["memory", "log"])
async def scene(request):
    """Give the same scene from both places."""
    return Scene(request.param)


def instant(hours):
    """Give an instant around the generation's start."""
    return datetime.fromtimestamp(T0_US / 1e6, UTC) + timedelta(hours=hours)


def refused(answer):
    """Give status and code of a refusal."""
    assert not isinstance(answer, Opened), "a stream was opened"
    return answer.status, answer.code


async def test_no_cursor_replays_from_the_beginning(scene):
    """None presented: from seq 0, and nothing is said of a resumption."""
    await scene.written()
    opened = await scene.ask()
    assert opened.resumed_from is None
    assert (opened.tenant, opened.key_id, opened.dialect) == ("acme", "key-1", "openai.chat")
    assert (await Client(opened.follower).done()).seqs == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seq", [0, 1, 3])
async def test_a_good_cursor_goes_on_behind_its_event(scene, seq):
    """In range with a good signature: from the event after it, said with its seq, for any reader of the tenant."""
    await scene.written()
    for caller in (OWNER, COLLEAGUE):
        opened = await scene.ask(caller, last_event_id=scene.cursor(seq))
        assert opened.resumed_from == seq
        assert (await Client(opened.follower).done()).seqs == list(range(seq + 1, 5))


async def test_a_running_generation_is_followed(scene):
    """Behind the cursor, first what is there, then what comes."""
    await scene.written(end=None)
    opened = await scene.ask(last_event_id=scene.cursor(1))
    client = Client(opened.follower)
    scene.writer.text("live")
    scene.writer.end()
    assert (await client.done()).seqs == [2, 3, 4, 5]


@pytest.mark.parametrize("end", ["proper", "error"])
async def test_behind_the_terminal_there_is_nothing(scene, end):
    """The terminal's own cursor, whole or as a plain seq: 204, so that an EventSource stops."""
    await scene.written(end=end)
    assert refused(await scene.ask(last_event_id=scene.cursor(4))) == (204, "ended")
    assert refused(await scene.ask(after="4")) == (204, "ended")
    assert refused(await scene.ask(after=scene.cursor(4))) == (204, "ended")


@pytest.mark.parametrize(
    "garbled",
    ["", " ", "abc", "-1", "01", "1-", "3-0.5-short", "9" * 200, "3 ", "1.5", "٣"],
)
async def test_what_cannot_be_parsed_is_400(scene, garbled):
    """Garbled or empty is no cursor: never a stream from the beginning."""
    await scene.written()
    assert refused(await scene.ask(last_event_id=garbled)) == (400, "cursor_invalid")


async def test_a_forged_cursor_is_401(scene):
    """A signature of another secret, seq, key or generation is refused before anything is streamed."""
    await scene.written()
    other = identity_of(7).generation_id
    for forged in (
        scene.cursor(2, secret=b"guessed"),
        scene.cursor(2, key_id="key-2"),
        scene.cursor(2).replace("2-", "1-", 1),
        render(2, scene.writer.partition, 2, sign(SECRET, other, 2, "key-1")),
    ):
        assert refused(await scene.ask(last_event_id=forged)) == (401, "cursor_invalid")


@pytest.mark.parametrize("where", ["memory", "log"])
async def test_the_secret_in_force_at_the_start_signs(where):
    """A newer secret changes nothing for what runs; it is not good for it either, nor the old one for what starts."""
    old = {"secret": OLD_SECRET.decode()}
    rotated = [{"secret": "the new secret", "since": instant(1)}, old]
    kept = await Scene(where, secrets=rotated).written()
    assert await kept.seqs(last_event_id=kept.cursor(2, secret=OLD_SECRET)) == [3, 4]
    refusal = await kept.ask(last_event_id=kept.cursor(2, secret=b"the new secret"))
    assert refused(refusal) == (401, "cursor_invalid")
    since_long = await Scene(where, secrets=[rotated[0] | {"since": instant(-1)}, old]).written()
    refusal = await since_long.ask(last_event_id=since_long.cursor(2, secret=OLD_SECRET))
    assert refused(refusal) == (401, "cursor_invalid")


@pytest.mark.parametrize("where", ["memory", "log"])
async def test_a_retired_secret_expires_its_cursors(where):
    """Taken out, or past its time: 401, and the ids that are given out now are signed by one that is good."""
    retired = {"secret": OLD_SECRET.decode(), "until": instant(-1)}
    newest = {"secret": "the new secret", "since": instant(2)}
    for secrets in ([newest, retired], [newest | {"since": None}]):
        scene = await Scene(where, secrets=secrets).written()
        refusal = await scene.ask(last_event_id=scene.cursor(2, secret=OLD_SECRET))
        assert refused(refusal) == (401, "cursor_invalid")
        assert await scene.seqs(last_event_id=scene.cursor(2, secret=b"the new secret")) == [3, 4]


async def test_unknown_and_foreign_generations_look_the_same(scene):
    """404 with one body for both, whatever cursor is shown; an id that cannot exist is not even looked for."""
    await scene.written()
    unknown = identity_of(99).generation_id
    later = uuid7((T0_US // 1000) + 3_600_000, 5)
    answers = [
        await scene.ask(STRANGER),
        await scene.ask(STRANGER, last_event_id=scene.cursor(2)),
        await scene.ask(generation_id=unknown),
        await scene.ask(generation_id="not-an-id"),
        await scene.ask(generation_id=later),
        await scene.ask(generation_id=unknown, last_event_id=scene.cursor(2)),
    ]
    assert {refused(answer) for answer in answers} == {(404, "not_found")}


async def test_what_was_once_here_is_gone_and_not_unknown():
    """A good signature for a generation that nothing is held of: 410 for every key of its tenant, 404 for any other."""
    scene = await Scene("log").written()
    cursor = scene.cursor(2)
    scene.writer.log.drop(scene.writer.partition, lambda _: True)
    for caller in (OWNER, COLLEAGUE):
        assert refused(await scene.ask(caller, last_event_id=cursor)) == (410, "resume_expired")
    assert refused(await scene.ask(STRANGER, last_event_id=cursor)) == (404, "not_found")
    assert refused(await scene.ask()) == (404, "not_found")


@pytest.mark.parametrize("skewed_ms", [0, 900, 59_000, -59_000])
async def test_a_start_is_found_on_either_side_of_its_time(skewed_ms):
    """Near where its id says, as a rule; else anywhere within the skew that is allowed, from its first record on."""
    scene = Scene("log")
    scene.writer.clock.us += skewed_ms * 1000
    scene.writer.start()
    scene.writer.clock.us = max(scene.writer.clock.us, 0)
    scene.writer.text("where its id says, and not its first")
    scene.writer.end()
    await turns()
    assert await scene.seqs() == [0, 1, 2]


async def test_a_plain_seq_is_for_the_generations_own_key(scene):
    """``after`` without a signature works for the owner's key; in Last-Event-ID only with the token beside it."""
    await scene.written()
    assert await scene.seqs(after="2") == [3, 4]
    assert refused(await scene.ask(COLLEAGUE, after="2")) == (401, "cursor_invalid")
    assert refused(await scene.ask(last_event_id="2")) == (401, "cursor_invalid")


async def test_the_token_signs_a_plain_seq(scene):
    """X-Resumption-Token beside a plain Last-Event-ID is the same as a whole cursor; of another seq it is nothing."""
    await scene.written()
    token = resumption_token(scene.id, 2, sign(SECRET, scene.id, 2, "key-1"))
    assert await scene.seqs(COLLEAGUE, last_event_id="2", token=token) == [3, 4]
    assert refused(await scene.ask(last_event_id="1", token=token)) == (401, "cursor_invalid")
    forged = token.replace("sig=", "sig=x")
    assert refused(await scene.ask(last_event_id="2", token=forged)) == (401, "cursor_invalid")


async def test_the_token_alone_is_a_cursor(scene):
    """Without an id the token says seq and signature: never a stream from the beginning, whatever is in it."""
    await scene.written()
    token = resumption_token(scene.id, 2, sign(SECRET, scene.id, 2, "key-1"))
    assert await scene.seqs(COLLEAGUE, token=token) == [3, 4]
    unsigned = token.partition("&sig=")[0]
    for forged in (unsigned, token.replace("seq=2", "seq=1"), token.replace("sig=", "sig=x")):
        assert refused(await scene.ask(token=forged)) == (401, "cursor_invalid")
    for garbled in ("", "what", token.replace("seq=2", "seq=-2"), token.replace("seq=2&", "")):
        assert refused(await scene.ask(token=garbled)) == (400, "cursor_invalid")


async def test_from_start_plays_it_all_again(scene):
    """X-Resume-Mode from-start: all of it behind any good cursor, also the terminal's; after-last-id is what is usual."""
    await scene.written()
    for seq in (2, 4):
        opened = await scene.ask(last_event_id=scene.cursor(seq), mode="from-start")
        assert opened.resumed_from is None
        assert (await Client(opened.follower).done()).seqs == [0, 1, 2, 3, 4]
    assert await scene.seqs(last_event_id=scene.cursor(2), mode="after-last-id") == [3, 4]
    forged = scene.cursor(2, secret=b"guessed")
    assert refused(await scene.ask(last_event_id=forged, mode="from-start")) == (401, "cursor_invalid")
    assert refused(await scene.ask(last_event_id=scene.cursor(2), mode="backwards")) == (400, "bad_request")


async def test_a_plain_seq_beyond_the_log_is_ahead(scene):
    """409, while it runs and afterwards: the events after this cursor do not exist yet."""
    await scene.written(end=None)
    assert refused(await scene.ask(after="40")) == (409, "cursor_ahead")
    scene.writer.end()
    await turns()
    assert refused(await scene.ask(after="40")) == (409, "cursor_ahead")


async def test_a_signed_cursor_beyond_the_log_waits_while_it_runs(scene):
    """We gave it out, so it will exist: what follows it is delivered, and nothing before."""
    await scene.written(end=None)
    opened = await scene.ask(last_event_id=scene.cursor(5))
    client = Client(opened.follower)
    for number in range(4):
        scene.writer.text(f"later {number}")
        await turns()
    scene.writer.end()
    assert (await client.done()).seqs == [6, 7, 8]


async def test_a_signed_cursor_beyond_the_terminal_is_ahead(scene):
    """What lies behind the end will never exist."""
    await scene.written()
    assert refused(await scene.ask(last_event_id=scene.cursor(40))) == (409, "cursor_ahead")


async def test_a_hint_that_leads_nowhere_is_dropped(scene):
    """Partition and offset are unsigned: wrong ones, also those of other records, are looked up as without."""
    await scene.written()
    other = Writer(scene.writer.clock, scene.writer.log, number=3)
    other.start()
    await turns()
    hints = [(None, 10_000), (None, scene.offset_of(1)), (scene.writer.partition ^ 1, 0), (99, 0)]
    for partition, offset in hints:
        cursor = scene.cursor(2, partition=partition, offset=offset)
        assert await scene.seqs(last_event_id=cursor) == [3, 4]


async def test_a_hint_names_the_last_part_of_a_large_event(scene):
    """Behind an event in parts, reading begins behind its last part."""
    scene.writer.start()
    scene.writer.text("x" * (2 * RECORD_BYTES_MAX))
    scene.writer.text("behind")
    scene.writer.end()
    await turns()
    assert await scene.seqs(last_event_id=scene.cursor(1)) == [2, 3]


async def test_what_lies_before_the_cursor_may_be_gone():
    """Retention took the beginning: only what follows the cursor must be held."""
    scene = await Scene("log").written(texts=5)
    cursor = scene.cursor(3)
    scene.writer.log.drop(scene.writer.partition, lambda record: record[0] < 3)
    assert await scene.seqs(last_event_id=cursor) == [4, 5, 6]


async def test_before_what_the_log_holds_is_gone():
    """Retention took what follows the cursor: 410 with the first seq that is still there."""
    scene = await Scene("log").written(texts=5)
    cursor = scene.cursor(1)
    scene.writer.log.drop(scene.writer.partition, lambda record: record[0] < 4)
    answer = await scene.ask(last_event_id=cursor)
    assert refused(answer) == (410, "resume_expired")
    assert answer.first_available_seq == 4
    assert refused(await scene.ask()) == (410, "resume_expired")


async def test_a_hole_is_found_before_the_head():
    """An event before the proper end is held nowhere: 410, and a reader behind the hole is served."""
    scene = await Scene("log").written(texts=5)
    scene.writer.log.drop(scene.writer.partition, lambda record: record[0] == 3)
    answer = await scene.ask(last_event_id=scene.cursor(1))
    assert refused(answer) == (410, "resume_expired")
    assert answer.first_available_seq == 4
    assert await scene.seqs(last_event_id=scene.cursor(4)) == [5, 6]


@pytest.mark.parametrize("presented", [3, None])
async def test_a_hole_that_may_still_be_closed_is_waited_for(presented):
    """A record was lost on its way and its writer has not ended it yet: no 410, the error's end comes."""
    scene = await Scene("log").written(texts=5, end=None)
    cursor = {} if presented is None else {"last_event_id": scene.cursor(presented)}
    scene.writer.log.drop(scene.writer.partition, lambda record: record[0] == 4)
    opened = await scene.ask(**cursor)
    client = Client(opened.follower)
    scene.writer.fail()
    await client.done()
    assert client.seqs == ([6] if presented is not None else [0, 1, 2, 3, 6])


async def test_a_running_generation_whose_beginning_is_gone_is_410():
    """Retention took what is wanted of something that still runs: said at once, with the first seq that is there."""
    scene = await Scene("log").written(texts=5, end=None)
    cursor = scene.cursor(1)
    scene.writer.log.drop(scene.writer.partition, lambda record: record[0] < 4)
    answer = await scene.ask(last_event_id=cursor)
    assert refused(answer) == (410, "resume_expired")
    assert answer.first_available_seq == 4


async def test_a_hole_that_an_error_closes_is_no_hole():
    """An error terminal after a lost range is delivered: the reader knows how it ended."""
    scene = await Scene("log").written(texts=3, end="error")
    scene.writer.log.drop(scene.writer.partition, lambda record: record[0] == 3)
    assert await scene.seqs(last_event_id=scene.cursor(1)) == [2, 4]


async def test_an_edge_that_lost_its_lease_answers_from_the_log():
    """Its memory is no witness any more: the log's terminal, another writer's, is what counts."""
    scene = await Scene("memory").written(end=None)
    scene.writer.generation.leave_memory()
    finder = Writer(scene.writer.clock, scene.writer.log, edge_id="finder")
    finder.recorder.next_seq = 4
    finder.fail("edge_lost")
    scene.writer.text("too late")
    await turns()
    assert await scene.seqs(last_event_id=scene.cursor(2)) == [3, 4]
    assert refused(await scene.ask(after="4")) == (204, "ended")


async def test_another_writers_terminal_is_not_given_twice():
    """Its own edge slept and does not know it yet: who has the finder's terminal already gets it no second time."""
    scene = await Scene("memory").written(end=None)
    finder = Writer(scene.writer.clock, scene.writer.log, edge_id="finder")
    finder.recorder.next_seq = 4
    finder.fail("edge_lost")
    await turns()
    opened = await scene.ask(last_event_id=scene.cursor(4))
    client = Client(opened.follower)
    scene.writer.generation.leave_memory()
    assert (await client.done()).seqs == []
    assert refused(await scene.ask(last_event_id=scene.cursor(4))) == (204, "ended")


async def test_what_a_sleeper_writes_behind_the_terminal_makes_nobody_ahead():
    """The finder ended it, its own edge woke and wrote on: the terminal's cursor is 204 all the same, and never 409."""
    scene = await Scene("log").written(end=None)
    finder = Writer(scene.writer.clock, scene.writer.log, edge_id="finder")
    finder.recorder.next_seq = 4
    finder.fail("edge_lost")
    await turns()
    cursor = scene.cursor(4)
    for text in ("too late", "and later"):
        scene.writer.text(text)
    scene.writer.end()
    await turns()
    assert refused(await scene.ask(last_event_id=cursor)) == (204, "ended")
    assert refused(await scene.ask(after="4")) == (204, "ended")
    assert await scene.seqs(last_event_id=scene.cursor(2)) == [3, 4]


async def test_a_generation_is_looked_for_around_its_time_alone(scene):
    """An id of this minute whose records came an hour later is not scanned for."""
    scene.writer.clock.us += 3_600_000_000
    late = Writer(scene.writer.clock, scene.writer.log, number=8)
    for number in range(20, 24):
        Writer(scene.writer.clock, scene.writer.log, number=number).start()
    await turns()
    assert refused(await scene.ask(generation_id=late.identity.generation_id)) == (404, "not_found")


@pytest.mark.parametrize("text", ["x", ""])
def test_an_empty_header_is_no_missing_header(text):
    """Last-Event-ID decides wherever it is present, also beside ``after``."""
    with pytest.raises(CursorMalformed):
        read_cursor(Presented(last_event_id=text, after="3"))
    assert read_cursor(Presented(after="3")).seq == 3
    assert read_cursor(Presented()) is None
