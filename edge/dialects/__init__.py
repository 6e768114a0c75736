"""What a protocol means: one file a dialect, each with the same pure parts.

``request_of`` (what a client asked for), ``upstream_body`` (what the provider is asked for), ``new_state``/``capture``
(provider event → records with canonical parts), ``assemble`` (the finished answer as one body). Error shapes are in
``schemas.failures``, usage in ``schemas.usage``, finish words in ``schemas.outcomes``. A provider's own events are never
rendered again: ``raw`` is what the client gets. A new dialect is one more file and one more line here.

Before: ``sse``. After: ``capture``.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from edge.sse import SseEvent
from schemas.events import Canonical, Kind, LogEvent, ProviderError
from schemas.payloads import ChoiceFinish


class BadRequest(ValueError):
    """The client's request cannot be served; the message says what to change."""


class ClientRequest(NamedTuple):
    """What a client asked for, as far as the edge must know it."""

    model: str
    stream: bool
    wants_usage: bool
    prompt_hash: str
    sampling: str
    stop_rules: list[str]
    choices: int
    body: dict[str, Any]


class Captured(NamedTuple):
    """One provider event, understood.

    ``kind`` None: a keep-alive, counted and not kept. ``failure``: (code, what the provider said); ``end``: the
    protocol's own end mark.
    """

    kind: Kind | None
    raw: str
    raw_event: str | None = None
    canonical: tuple[Canonical, ...] = ()
    usage: dict[str, Any] | None = None
    usage_only: bool = False
    failure: tuple[str, ProviderError] | None = None
    end: bool = False


class DialectState(Protocol):
    """What one attempt's stream has said so far."""

    upstream_id: str | None
    served_model: str | None
    service_tier: str | None
    usage_reports: list[dict[str, Any]]
    finishes: dict[int, ChoiceFinish]
    unknown_count: int

    @property
    def finished(self) -> bool:
        """Whether every choice that said something has its finish reason (and one has)."""

    def capture(self, event: SseEvent) -> list[Captured]:
        """Understand one SSE event; several where its data is several JSON values."""


class Dialect(Protocol):
    """The pure functions of one protocol."""

    name: str
    upstream_path: str
    end_raw: str
    end_event: str | None

    def request_of(self, body: dict[str, Any]) -> ClientRequest:
        """Read a client's request; BadRequest says what is wrong with it."""

    def upstream_body(self, request: ClientRequest, model: str) -> dict[str, Any]:
        """What the provider is sent: the client's own fields, streamed, with usage asked for."""

    def new_state(self) -> DialectState:
        """The state of a new attempt."""

    def failure_of_body(self, status: int, body: bytes) -> tuple[str, ProviderError]:
        """What an answer that is no stream says: code and the provider's own words."""

    def assemble(self, events: Iterable[LogEvent]) -> dict[str, Any]:
        """The finished answer as the dialect's non-streaming body."""


def dialect_of(name: str) -> Dialect:
    """The dialect of a name; KeyError for one that is not spoken here."""
    from edge.dialects.openai_chat import OpenAiChat

    return {OpenAiChat.name: OpenAiChat()}[name]
