"""A whole answer that cannot be read: what is gone is said to be gone, in both ways of asking for it."""

import json

import pytest

from edge.asgi.emit import Hooks
from edge.dialects.spoken import dialect_of
from edge.follow import Erased, Hole, LogSilent, OffsetGone
from edge.reading.result import WholeAnswer, first_answer
from tests.support.asgi import Connection

CHAT = dialect_of("openai.chat")


class Broken:
    """A follower whose reading ends so."""

    ended = False

    def __init__(self, error):
        self.error = error
        self.closed = False

    async def read(self):
        """Raise it."""
        raise self.error

    def close(self):
        """Note it."""
        self.closed = True


@pytest.mark.parametrize(
    ("error", "status", "code", "again"),
    [
        (Hole(7), 410, "resume_expired", "false"),
        (OffsetGone(7), 410, "resume_expired", "false"),
        (Erased(None), 410, "erased", "false"),
        (LogSilent("the log takes no records"), 503, "log_unavailable", "true"),
    ],
)
async def test_an_answer_that_cannot_be_read(error, status, code, again):
    """Only a log that is silent is worth asking again; an SDK that is told so of what is gone would ask for ever."""
    whole, background = Broken(error), Broken(error)
    answered = await Connection(WholeAnswer(whole, CHAT, [], Hooks(), None)).done()
    said = answered.status, json.loads(answered.body)["error"]["code"], answered.headers["x-should-retry"]
    assert said == (status, code, again)
    found, body, headers = await first_answer(background, CHAT, None)
    assert (found, json.loads(body)["error"]["code"]) == (status, code)
    assert dict(headers)[b"x-should-retry"] == again.encode()
    assert whole.closed
    assert background.closed
