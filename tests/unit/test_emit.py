"""The stream as an ASGI response: one head, frames, heartbeats, one end, and a client that goes away."""

import asyncio
import json

import pytest

from edge.asgi.emit import EventStream, Hooks
from edge.generation import Head
from edge.reading.frames import NATIVE, Frames
from schemas.cursor import parse
from tests.support.asgi import Connection
from tests.support.edge import SECRET, Writer, turns
from tests.support.virtual import in_virtual_time
from tests.support.waiting import until

LONG_S = 60


class Recorded(Hooks):
    """What the response told its owner."""

    def __init__(self):
        self.said = []
        self.remotes = 0
        self.remote_ended = False

    def opened(self):
        self.said.append("opened")

    def closed(self, because):
        self.said.append(("closed", because))

    def emitted(self, *, first, terminal):
        self.said.append(("emitted", first, terminal is not None))

    async def remote(self):
        self.remotes += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.remote_ended = True


def stream_of(writer, follower=None, *, dialect="openai.chat", heartbeat_s=LONG_S, hooks=None, **named):
    """Give the response that a reader of a generation gets."""
    identity = writer.identity
    return EventStream(
        follower or writer.follower(0),
        Frames(dialect, identity.generation_id, identity.key_id, SECRET),
        [(b"x-generation-id", identity.generation_id.encode())],
        heartbeat_s,
        lambda: (writer.generation.stage, 1_234),
        hooks or Hooks(),
        **named,
    )


async def begun():
    """Give the writer of a generation that has begun."""
    writer = Writer()
    writer.start()
    await turns()
    return writer


async def ended(fragments=("Hel", "lo")):
    """Give the writer of a generation that ended properly."""
    writer = await begun()
    for fragment in fragments:
        writer.text(fragment)
    writer.end()
    await turns()
    return writer


async def test_a_whole_stream():
    """Head, one comment line at once, every event in order with its id, the end: nothing else."""
    writer = await ended()
    connection = await Connection(stream_of(writer)).done()
    assert connection.status == 200
    assert connection.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert connection.headers["cache-control"] == "no-cache, no-transform"
    assert connection.headers["x-accel-buffering"] == "no"
    assert connection.headers["x-generation-id"] == writer.identity.generation_id
    assert [event.data for event in connection.events] == ["Hel", "lo", "[DONE]"]
    assert [parse(event.id).seq for event in connection.events] == [1, 2, 3]
    assert connection.body.startswith(b": tokentrail\nretry: 2000\n")
    assert connection.body.endswith(b"data: [DONE]\n\n")


async def test_the_head_waits_for_the_first_valid_event():
    """Before anything valid came from the provider, no status is given away."""
    writer = await begun()
    connection = Connection(stream_of(writer, generation=writer.generation))
    await turns()
    assert connection.sent == []
    writer.generation.head.set_result(Head(ok=True))
    await connection.until(b": tokentrail\n")
    assert connection.body == b": tokentrail\n"
    writer.text("a")
    await connection.until(b"data: a\n\n")
    await connection.hang_up()


async def test_a_failure_before_the_head_keeps_its_own_status():
    """Status, body, retry advice of the failure itself; and only once the log has the terminal."""
    writer = await begun()
    connection = Connection(stream_of(writer, generation=writer.generation))
    writer.log.hold()
    writer.fail("rate_limited")
    writer.generation.head.set_result(
        Head(ok=False, status=429, body=b'{"error":{}}', code="rate_limited", retry_after_ms=1_500)
    )
    await turns(20)
    assert connection.sent == []
    writer.log.release()
    await connection.done()
    assert connection.status == 429
    assert connection.body == b'{"error":{}}'
    assert connection.headers["retry-after"] == "2"
    assert connection.headers["x-should-retry"] == "true"
    assert connection.headers["content-type"] == "application/json"


async def test_a_failure_in_an_outage_is_answered_without_the_log():
    """Where the log takes nothing, its terminal is not waited for."""
    writer = await begun()
    connection = Connection(stream_of(writer, generation=writer.generation))
    writer.log.hold()
    writer.fail()
    writer.generation.head.set_result(Head(ok=False, status=503, body=b"{}", code="log_unavailable"))
    writer.generation.log_away = True
    writer.generation.wake()
    assert (await connection.done()).status == 503


async def test_a_heartbeat_that_is_due_sends_the_head():
    """A slow provider: the head goes out with the first heartbeat; a later failure is an event of the stream."""
    writer = await begun()
    connection = Connection(stream_of(writer, heartbeat_s=0.02, generation=writer.generation))
    await connection.until(b": heartbeat\n")
    assert connection.status == 200
    assert connection.body.startswith(b": tokentrail\n: heartbeat\n")
    writer.fail("ttft_timeout")
    writer.generation.head.set_result(Head(ok=False, status=504, code="ttft_timeout"))
    await connection.done()
    assert [event.data for event in connection.events] == ['{"error":{}}']


async def test_a_heartbeat_while_the_failure_is_on_its_way_to_the_log_makes_it_an_event():
    """The head goes out once: whatever it was going to be, after a heartbeat the stream has begun."""
    writer = await begun()
    connection = Connection(stream_of(writer, heartbeat_s=0.02, generation=writer.generation))
    writer.log.hold()
    writer.fail("upstream_error")
    writer.generation.head.set_result(Head(ok=False, status=502, body=b"{}", code="upstream_error"))
    await connection.until(b": heartbeat\n")
    writer.log.release()
    await connection.done()
    assert connection.status == 200
    assert [event.data for event in connection.events] == ['{"error":{}}']


async def test_the_head_is_out_before_anything_else_on_a_slow_socket():
    """A heartbeat and the first event race for the head: it is sent once, and first."""
    writer = await begun()
    stream = stream_of(writer, heartbeat_s=0.01, generation=writer.generation)
    connection = Connection(stream)
    connection.writable.clear()
    await until(lambda: stream._head_out)  # the heartbeat waits for the socket
    writer.generation.head.set_result(Head(ok=True))
    writer.text("a")
    writer.end()
    await turns(20)
    connection.writable.set()
    await connection.done()
    assert connection.body.startswith(b": tokentrail\n")
    assert [event.data for event in connection.events] == ["a", "[DONE]"]


async def test_heartbeats_come_at_their_interval_without_id():
    """Also while content flows; in the native dialect they say stage and time, and never have an id."""
    writer = await begun()
    connection = Connection(stream_of(writer, heartbeat_s=0.02, dialect=NATIVE))
    await until(lambda: connection.body.count(b"event: heartbeat") >= 3)
    writer.text("a")
    await until(lambda: b"event: delta" in connection.body)
    writer.end()
    await connection.done()
    beats = [event for event in connection.events if event.event == "heartbeat"]
    assert {event.id for event in beats} == {None}
    assert json.loads(beats[0].data) == {"stage": "queued", "elapsed_ms": 1_234}


@pytest.mark.parametrize("proper", [True, False])
@in_virtual_time
async def test_nothing_is_written_after_the_terminal(proper):
    """The terminal's frame is the last: no heartbeat, no comment."""
    writer = await begun()
    connection = Connection(stream_of(writer, heartbeat_s=0.005))
    await connection.until(b": heartbeat\n")
    if proper:
        writer.end()
    else:
        writer.fail()
    await connection.done()
    length = len(connection.body)
    await asyncio.sleep(1)  # virtual: time for many heartbeats
    assert len(connection.body) == length
    assert connection.body.endswith(b"data: [DONE]\n\n" if proper else b'data: {"error":{}}\n\n')


async def test_a_resumed_stream_says_where_it_went_on():
    """The comment inside the first event, and no head to wait for."""
    writer = await ended()
    connection = await Connection(stream_of(writer, writer.follower(2), resumed_from=1)).done()
    assert [parse(event.id).seq for event in connection.events] == [2, 3]
    assert b": resumed from 1\n" in connection.body


async def test_a_disconnect_ends_the_response_and_nothing_else():
    """The client is gone: the reader is closed, the owner told, the side tasks ended; the generation runs on."""
    writer, hooks = await begun(), Recorded()
    connection = Connection(stream_of(writer, hooks=hooks))
    writer.text("a")
    await connection.until(b"data: a\n\n")
    await connection.hang_up()
    assert hooks.said == ["opened", ("emitted", True, False), ("closed", "client_abort")]
    assert hooks.remotes == 1
    assert hooks.remote_ended
    writer.text("b")
    writer.end()
    await turns()
    assert writer.generation.terminal is not None


async def test_a_disconnect_while_the_socket_is_full_ends_it_too():
    """A client that neither reads nor stays holds nothing."""
    writer, hooks = await ended(), Recorded()
    connection = Connection(stream_of(writer, hooks=hooks))
    connection.writable.clear()
    await turns()
    await connection.hang_up()
    assert hooks.said[-1] == ("closed", "client_abort")


async def test_a_slow_client_does_not_slow_the_log():
    """While one socket takes nothing, the generation goes on; the client gets everything when it reads again."""
    writer = await begun()
    connection = Connection(stream_of(writer))
    await connection.until(b": tokentrail\n")
    connection.writable.clear()
    for number in range(500):
        writer.text(f"{number}")
    writer.end()
    await turns()
    assert writer.generation.ended.is_set()
    while writer.generation.shrink():
        pass
    connection.writable.set()
    await connection.done()
    assert [event.data for event in connection.events] == [*(f"{n}" for n in range(500)), "[DONE]"]


async def test_a_hole_that_is_met_later_is_an_unnumbered_error():
    """What cannot be delivered is said without an id, so that it is no terminal to anybody."""
    writer = await ended(("a", "b", "c"))
    writer.log.drop(writer.partition, lambda record: record[0] == 2)
    connection = await Connection(stream_of(writer, writer.follower(0, local=False))).done()
    assert [event.data for event in connection.events[:-1]] == ["a"]
    assert connection.events[-1].id is None
    assert "resume_expired" in connection.events[-1].data


async def test_an_outage_of_the_log_is_an_unnumbered_error():
    """The client is told and let go; the log's terminal comes with a later resume."""
    writer = await begun()
    connection = Connection(stream_of(writer))
    writer.text("a")
    await connection.until(b"data: a\n\n")
    writer.generation.log_away = True
    writer.generation.wake()
    await connection.done()
    assert connection.events[-1].id is None
    assert "log_unavailable" in connection.events[-1].data


async def test_content_and_terminal_are_told_to_the_owner():
    """First content and the end are what its metrics are made of; a start that is not shown is neither."""
    writer, hooks = await begun(), Recorded()
    connection = Connection(stream_of(writer, hooks=hooks))
    await connection.until(b": tokentrail\n")
    assert hooks.said == ["opened"]
    writer.text("a")
    await connection.until(b"data: a\n\n")
    writer.end()
    await connection.done()
    assert hooks.said == ["opened", ("emitted", True, False), ("emitted", False, True), ("closed", None)]
