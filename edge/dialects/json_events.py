"""One attempt's stream of a dialect whose events are JSON objects: what all of them have in common.

Keep-alives come as comments, as empty data, as data that is a comment, or as ``ping``; errors come under the event name
``error``; one event's data may hold several JSON values; a text may be cut inside a surrogate pair. What an object means
is the dialect's own: ``_understood``. Pure. Before: ``reading``. After: the dialects' own streams.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import orjson

from edge.dialects import Captured, DialectState
from edge.dialects.provider_errors import code_of, not_the_dialect, provider_error, said_in
from edge.dialects.reading import TOO_DEEP, Halves, NotJson, fact, load_at, too_deep, unicode_of
from edge.driving.timing import ProviderTiming, of_body
from schemas.events import Canonical, ChoiceFinish, Kind, PartType

if TYPE_CHECKING:
    from edge.sse import SseEvent


class JsonEvents(DialectState):
    """One attempt's stream; see ``DialectState`` for what each attribute says."""

    def __init__(self) -> None:
        self.upstream_id: str | None = None
        self.served_model: str | None = None
        self.service_tier: str | None = None
        self.usage_reports: list[dict[str, Any]] = []
        self.finishes: dict[int, ChoiceFinish] = {}
        self.stop_rule_id: str | None = None
        self.unknown_count = 0
        self.provider_timing: ProviderTiming | None = None
        self._halves = Halves()

    @property
    def finished(self) -> bool:
        """See DialectState."""
        return bool(self.finishes)

    def capture(self, event: "SseEvent") -> list[Captured]:
        """See DialectState."""
        data = event.data
        if data[:1] != "{" and data.strip() == "[DONE]":
            return [self._done(data, event.event)]
        if event.event == "ping" or (data[:1] != "{" and data.lstrip()[:1] in ("", ":")):
            return [Captured(None, data)]
        if event.event == "error":
            return [self._error(said_in(data), data)]
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            return self._several(event)
        if self._halves:
            self._join(value)
            value = unicode_of(value)
        return [self._one(value, data, event.event)]

    def _several(self, event: "SseEvent") -> list[Captured]:
        """Several JSON values in one event's data count as several events; anything else is not the dialect."""
        out, at, data = [], 0, event.data
        while at < len(data):
            if data[at].isspace():
                at += 1
                continue
            try:
                value, end = load_at(data, at)
            except NotJson:
                failure = not_the_dialect(data, "a payload that is neither JSON nor a keep-alive")
                out.append(Captured(Kind.ERROR, data, event.event, failure=failure))
                return out
            self._join(value)
            out.append(self._one(unicode_of(value), data[at:end], event.event))
            at = end
        return out

    def _one(self, value: Any, raw: str, name: str | None) -> Captured:
        if not isinstance(value, dict):
            failure = not_the_dialect(raw, "a chunk that is no JSON object")
            return Captured(Kind.ERROR, raw, name, failure=failure)
        if too_deep(value, len(raw)):
            return Captured(Kind.ERROR, raw, name, failure=not_the_dialect(raw, TOO_DEEP))
        if value.get("type") == "ping":
            return Captured(None, raw)
        return self._understood(value, raw, name)

    def _error(self, value: dict[str, Any], raw: str, name: str | None = "error") -> Captured:
        """An error in band. Its event has a name where a client would not see it without."""
        error = provider_error(value, raw, None)
        return Captured(Kind.ERROR, raw, name, failure=(code_of(error), error))

    def _facts(self, said: dict[str, Any]) -> None:
        """Id, model and tier: the first that are not empty; what the provider says of its time: the latest."""
        if self.upstream_id is None:
            self.upstream_id = fact(said.get("id"))
        if self.served_model is None:
            self.served_model = fact(said.get("model"))
        if self.service_tier is None and "service_tier" in said:
            self.service_tier = fact(said["service_tier"])
        if said.get("usage") or "timings" in said or "metrics" in said or "x_groq" in said:
            self.provider_timing = of_body(said) or self.provider_timing

    def _done(self, raw: str, name: str | None) -> Captured:
        """The word ``[DONE]``: an end mark in one dialect, noise of a gateway in the others."""
        del name
        return Captured(None, raw)

    @abstractmethod
    def _join(self, value: Any) -> None:
        """Put text that was cut inside a surrogate pair together, in the value itself."""

    @abstractmethod
    def _understood(self, value: dict[str, Any], raw: str, name: str | None) -> Captured:
        """What the dialect makes of one object."""


def kind_of(parts: list[Canonical]) -> Kind:
    """The strongest kind among the parts: a tool call, then a citation, then any text."""
    if len(parts) == 1 and parts[0].type is PartType.TEXT:
        return Kind.DELTA
    kinds = {part.type for part in parts}
    if PartType.TOOL_CALL in kinds:
        return Kind.TOOL_CALL_DELTA
    if PartType.CITATION in kinds:
        return Kind.CITATION_DELTA
    return Kind.DELTA if kinds - {PartType.FINISH} else Kind.FRAME


def tokens_of(text: str) -> int:
    """An estimate: four bytes a token, at least one; a chunk is not a token."""
    return max(1, (len(text) + 3) // 4)
