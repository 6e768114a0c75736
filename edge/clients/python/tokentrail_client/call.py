"""What a session is made of: the call, its time-outs, and how it ends without a terminal.

Before: ``effects``. After: ``reading``.
"""

from dataclasses import dataclass
from urllib.parse import quote

from tokentrail_client.effects import Ask
from tokentrail_client.endings import NATIVE

ABORT = "abort"
"""The reason of a session that its application left."""
TOO_LARGE = "answer_too_large"
"""The reason of an answer that is above its bound: reading it again would not help."""
CANCEL_S = 2.0
"""How long leaving may take: the grace time ends what a cancel did not reach."""


@dataclass(frozen=True, slots=True)
class Times:
    """The time-outs of a session, in seconds, and how a lost connection is asked again.

    ``idle_s``: silence on a connection, four heartbeats of an edge. ``read_s``: no new event on any connection; also
    the whole of a call that asks for no stream. ``session_s``: from the call to the terminal. ``call_tries``: how often
    a call is sent that no edge has answered; the events of a generation that has a name are asked for until a time-out.
    """

    idle_s: float = 60.0
    read_s: float = 600.0
    session_s: float = 3600.0
    backoff_s: float = 0.25
    backoff_max_s: float = 8.0
    poll_s: float = 1.0
    call_tries: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.idle_s <= self.read_s <= self.session_s:
            raise ValueError("idle_s <= read_s <= session_s, all above 0")


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked. ``roots`` are the edges' addresses up to ``/v1``; ``path`` is what stands behind it.

    ``headers`` go with the call only, ``auth`` with everything. ``insists``: refusals that may pass are asked again
    here, since nobody above does. ``acks``: the edge is told what was received.
    """

    session: str
    dialect: str
    roots: tuple[str, ...]
    method: str = "POST"
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    auth: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    streams: bool = True
    insists: bool = False
    acks: bool = False

    def asked(self, root: str, read_s: float) -> Ask:
        """The call itself, at one edge."""
        headers = {**dict(self.headers), **dict(self.auth)}
        return Ask(self.method, root + self.path, headers, self.body, read_s)

    def result(self, root: str, generation_id: str, read_s: float) -> Ask:
        """What asks one edge for the whole answer."""
        return Ask("GET", generation_url(root, generation_id, "result"), dict(self.auth), b"", read_s)

    def events(
        self, root: str, generation_id: str, last_id: str | None, lacking: str | None, read_s: float
    ) -> Ask:
        """What asks one edge for what follows an id; ``lacking``: for those events too, that no open stream could bring."""
        behind = {"last-event-id": last_id, "x-resume-nack": lacking}
        headers = {"accept": "text/event-stream", **dict(self.auth)}
        headers |= {name: value for name, value in behind.items() if value is not None}
        shape = "" if self.dialect == NATIVE else f"?dialect={self.dialect}"
        return Ask("GET", generation_url(root, generation_id, f"events{shape}"), headers, b"", read_s)

    def cancel(self, root: str, generation_id: str) -> Ask:
        """What ends a generation that its application left."""
        headers = {**dict(self.auth), "content-type": "application/json"}
        url = generation_url(root, generation_id, "cancel")
        return Ask("POST", url, headers, b'{"reason": "user_abort"}', CANCEL_S)


def generation_url(root: str, generation_id: str, what: str) -> str:
    """Where something of a generation is asked; an id is a name, never a path."""
    return f"{root}/generations/{quote(generation_id, safe='')}/{what}"


class Stopped(Exception):
    """A session ends without its terminal: refused, or out of time. ``reason`` is a code."""

    def __init__(self, reason: str, message: str, *, timed_out: bool = False) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.timed_out = timed_out
