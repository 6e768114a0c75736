"""What a protocol means: one file a dialect, each with the same pure parts.

``request_of`` (what a client asked for), ``upstream_body`` and ``upstream_headers`` (what the provider is asked for),
``new_state``/``capture`` (provider event → records with canonical parts), ``assemble`` (the finished answer as one body).
Error shapes are in ``schemas.failures``, usage in ``schemas.usage``, finish words in ``schemas.outcomes``. A provider's
own events are never rendered again: ``raw`` is what the client gets. A new dialect is one more file and one more line in
``spoken``: ``docs/dialects.md`` is the recipe.

Before: ``sse``. After: ``capture``.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from edge.driving.timing import ProviderTiming
from edge.sse import SseEvent
from schemas.events import Canonical, Kind, LogEvent, ProviderError, Struct
from schemas.payloads import ChoiceFinish

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class BadRequest(ValueError):
    """The client's request cannot be served; the message says what to change."""


class ClientRequest(NamedTuple):
    """What a client asked for, as far as the edge must know it.

    ``headers``: those that go on to the provider; ``background``: it runs on whoever listens.
    """

    model: str
    stream: bool
    wants_usage: bool
    prompt_hash: str
    prompt_bytes: int
    sampling: str
    stop_rules: list[str]
    choices: int
    body: dict[str, Any]
    headers: dict[str, str]
    background: bool = False


class Captured(Struct, frozen=True):
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
    """What one attempt's stream has said so far. ``stop_rule_id``: which of the request's stop rules ended it."""

    upstream_id: str | None
    served_model: str | None
    service_tier: str | None
    usage_reports: list[dict[str, Any]]
    finishes: dict[int, ChoiceFinish]
    stop_rule_id: str | None
    unknown_count: int
    provider_timing: ProviderTiming | None

    @property
    def finished(self) -> bool:
        """Whether every choice that said something has its finish reason (and one has)."""

    def capture(self, event: SseEvent) -> list[Captured]:
        """Understand one SSE event; several where its data is several JSON values."""


class Dialect(Protocol):
    """The pure functions of one protocol.

    ``end_raw`` and ``end_event`` are the end mark that stands where a provider's did not come; ``by_upstream_id`` says
    that clients come back for an answer by the provider's id of it; ``request_id_header`` is where its SDK looks for the
    name of a call.
    """

    name: str
    end_raw: str
    end_event: str | None
    by_upstream_id: bool
    request_id_header: str

    def request_of(self, body: dict[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> ClientRequest:
        """Read a client's request; BadRequest says what is wrong with it."""

    def upstream_path(self, model: str) -> str:
        """What is joined to a provider's ``base_url``, which is what the dialect's own SDK takes as such."""

    def upstream_body(self, request: ClientRequest, model: str) -> dict[str, Any]:
        """What the provider is sent: the client's own fields, streamed, with usage asked for."""

    def upstream_headers(self, request: ClientRequest, api_key: str | None) -> dict[str, str]:
        """The dialect's own headers: the client's by allow-list, and the provider's key."""

    def new_state(self) -> DialectState:
        """The state of a new attempt."""

    def at_seq(self, raw: str, seq: int) -> str:
        """An event's data as the record of this seq holds it: the same, but where the protocol numbers its events."""

    def failure_of_body(self, status: int, body: bytes) -> tuple[str, ProviderError]:
        """What an answer that is no stream says: code and the provider's own words."""

    def assemble(self, events: Iterable[LogEvent]) -> dict[str, Any]:
        """The finished answer as the dialect's non-streaming body."""


PASSED_ON_CHARS_MAX = 4_096
"""Of one header: servers take 8 KiB, and one that hangs up on more would count as a provider that is ill."""


def passed_on(headers: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Those of a client's headers that a list allows; BadRequest for one that no server would read."""
    found = {name: headers[name] for name in names if name in headers}
    if too_long := [name for name, text in found.items() if len(text) > PASSED_ON_CHARS_MAX]:
        raise BadRequest(f"{too_long[0]} has more than {PASSED_ON_CHARS_MAX} characters")
    return found


def bearer(api_key: str | None) -> dict[str, str]:
    """A provider's key as most of them want it."""
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}
