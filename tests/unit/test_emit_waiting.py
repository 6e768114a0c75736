"""A response whose reading waits, or breaks in a way that nobody foresaw."""

import asyncio

import pytest

from tests.support.asgi import Connection
from tests.support.virtual import in_virtual_time
from tests.unit.test_emit import ended, stream_of

REPLAY_S = 1.0
HEARTBEAT_S = 0.3


class Slow:
    """A reading that has its events late, or breaks after the first ones."""

    def __init__(self, follower, after_s=0.0, bug=None):
        self._follower = follower
        self._after_s = after_s
        self._bug = bug

    @property
    def ended(self):
        return self._follower.ended and self._bug is None

    async def read(self):
        await asyncio.sleep(self._after_s)
        if self._follower.ended and self._bug is not None:
            raise self._bug
        return await self._follower.read()

    def close(self):
        self._follower.close()


@in_virtual_time
async def test_who_waits_for_a_replay_hears_that_we_live():
    """A resume whose first event takes three heartbeats: they come meanwhile, from the beginning, and without an id."""
    writer = await ended()
    stream = stream_of(writer, Slow(writer.follower(1), REPLAY_S), heartbeat_s=HEARTBEAT_S, resumed_from=0)
    connection = await Connection(stream).done()
    before, _, rest = connection.body.partition(b"id: ")
    assert before.count(b": heartbeat\n") == 3
    assert [event.data for event in connection.events] == ["Hel", "lo", "[DONE]"]
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_what_cannot_be_ended_properly_is_not_ended():
    """A bug of ours in mid-stream leaves the response without its last chunk, which a server then cuts: no clean end."""
    writer = await ended()
    connection = Connection(stream_of(writer, Slow(writer.follower(0), bug=RuntimeError("a bug"))))
    with pytest.raises(RuntimeError, match="a bug"):
        await connection.task
    assert connection.status == 200
    assert all(message["more_body"] for message in connection.sent if message["type"].endswith("body"))
