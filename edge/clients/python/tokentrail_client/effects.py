"""What a course asks of the outside, and what it is told: the seam between deciding and doing.

Before: ``advice``. After: ``call``; ``course`` asks, ``shell`` does.

``Ask``, ``Tell``, ``Read``, ``ReadAll``, ``Wait``, ``Keep`` and ``Repair`` are done by the shell; ``Opened``, ``Give``, ``Answer`` and
``Foreign`` go up to whoever reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tokentrail_client.frames import Frame
from tokentrail_client.states import State

_PACKED = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})


class Head(NamedTuple):
    """An answer's head; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_stream(self) -> bool:
        """Whether events follow."""
        return self.headers.get("content-type", "").lower().startswith("text/event-stream")

    @property
    def is_readable(self) -> bool:
        """Whether its body grows at most a thousandfold when it is unpacked, piece by piece. We ask for no packing at all."""
        return self.headers.get("content-encoding", "identity").strip().lower() in _PACKED

    @property
    def is_redirect(self) -> bool:
        """Whether it sends us elsewhere. Nobody follows: a key goes to the addresses that were given, and nowhere else."""
        return self.status // 100 == 3  # noqa: PLR2004 - HTTP's own number

    @property
    def may_be_an_answer(self) -> bool:
        """Whether it may answer a call, also where who said it is no edge: JSON, or something without a type."""
        kind = self.headers.get("content-type", "json").partition(";")[0].strip().lower()
        return kind.endswith("json") and not self.is_redirect

    @property
    def kind(self) -> str:
        """What it is, for people."""
        if self.is_redirect:
            there = self.headers.get("location", "another address").partition("?")[0]
            return f"a redirect to {there}, which is not followed"
        return f"{self.status} {self.headers.get('content-type', 'without a type')}"

    def is_of(self, generation_id: str | None) -> bool:
        """Whether it is this generation's: every edge says so; a proxy's page and a cache's stream do not."""
        return self.headers.get("x-generation-id") == generation_id


class Lost(NamedTuple):
    """The connection failed: it was refused, reset, ended too early, or fell silent."""

    error: Exception

    @property
    def said(self) -> str:
        """What the error says, its type where it says nothing."""
        return str(self.error) or type(self.error).__name__


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request: told a Head, or Lost. ``read_s``: so long may the connection be silent, from now on."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    read_s: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a request beside the one that is being read: told status and body, or Lost."""

    ask: Ask


@dataclass(frozen=True, slots=True)
class Read:
    """Read on: told bytes, None at a proper end of the body, or Lost."""


@dataclass(frozen=True, slots=True)
class ReadAll:
    """Read the rest of the body, so many bytes at most and for so long: told bytes, or Lost."""

    bytes_max: int
    within_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Let so much time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Keep:
    """Store where the session stands, before anything of it is handed over. ``frames``: those that are new."""

    state: State
    generation_id: str | None
    frames: tuple[Frame, ...] = ()
    last_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """Put an event in the place of one that was stored otherwise than the edge has it."""

    seq: int
    event: str | None
    data: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream begins that is ours to keep whole."""

    head: Head


@dataclass(frozen=True, slots=True)
class Give:
    """Whole frames, each once, in order."""

    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: not a stream, or a refusal. ``own``: its body is ours, in JSON."""

    head: Head
    body: bytes
    own: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """A stream of somebody who is no edge: it is handed on as it comes."""

    head: Head


Effect = Ask | Tell | Read | ReadAll | Wait | Keep | Repair | Opened | Give | Answer | Foreign
