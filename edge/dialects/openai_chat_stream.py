"""One attempt's stream of OpenAI Chat Completions chunks, understood event by event.

See ``openai_chat`` for the facts behind it. Pure. Before: ``openai_chat``. After: ``capture``.
"""

from typing import TYPE_CHECKING, Any

import orjson

from edge.dialects import Captured, DialectState
from edge.dialects.reading import (
    FACT_CHARS_MAX,
    Halves,
    NotJson,
    fact,
    fields,
    index_of,
    items,
    keep_report,
    load,
    load_at,
    unicode_of,
    word,
)
from schemas.events import Canonical, ChoiceFinish, Kind, PartType, ProviderError
from schemas.outcomes import finish_reason_of

if TYPE_CHECKING:
    from edge.sse import SseEvent

ERROR_RAW_MAX = 16_384
"""What is kept of a provider's error payload: enough for any message, small enough for a terminal record."""
CHOICES_MAX = 128
"""What the protocol allows; finish reasons of more choices are not kept, since the terminal lists them."""
_NO_WORD = (None, "", "null")


class OpenAiChatState(DialectState):
    """One attempt's stream."""

    def __init__(self) -> None:
        self.upstream_id: str | None = None
        self.served_model: str | None = None
        self.service_tier: str | None = None
        self.usage_reports: list[dict[str, Any]] = []
        self.finishes: dict[int, ChoiceFinish] = {}
        self.unknown_count = 0
        self._open: set[int] = set()  # choices with content and without a finish reason
        self._halves = Halves()
        self._calls: dict[int, list[list[Any]]] = {}  # choice → [[id, claimed index], …]

    @property
    def finished(self) -> bool:
        """See DialectState."""
        return bool(self.finishes) and not self._open

    def capture(self, event: "SseEvent") -> list[Captured]:
        """See DialectState."""
        data = event.data
        if data == "[DONE]" or data.strip() == "[DONE]":
            return [Captured(Kind.MESSAGE_END, data, event.event, end=True)]
        if not data.strip() or data.lstrip().startswith(":") or event.event == "ping":
            return [Captured(None, data)]
        if event.event == "error":
            error = provider_error(_said(data), data, None)
            return [Captured(Kind.ERROR, data, "error", failure=(code_of(error), error))]
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            return self._several(event)
        if self._halves:
            self._join(chunk)
            chunk = unicode_of(chunk)
        return [self._chunk(chunk, data, event.event)]

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
                error = ProviderError(
                    raw=data[:ERROR_RAW_MAX], message="a payload that is neither JSON nor a keep-alive"
                )
                out.append(Captured(Kind.ERROR, data, event.event, failure=("upstream_protocol", error)))
                return out
            self._join(value)
            out.append(self._chunk(unicode_of(value), data[at:end], event.event))
            at = end
        return out

    def _join(self, chunk: Any) -> None:
        """Text that was cut inside a surrogate pair is put together before it is understood."""
        for choice in items(fields(chunk).get("choices")):
            delta, index = fields(choice.get("delta")), index_of(choice.get("index"))
            for key in ("content", "reasoning_content", "reasoning", "refusal"):
                if isinstance(delta.get(key), str):
                    delta[key] = self._halves.whole((index, key), delta[key])
            for call in items(delta.get("tool_calls")):
                function = fields(call.get("function"))
                if isinstance(function.get("arguments"), str):
                    place = (index, "arguments", str(call.get("index")))
                    function["arguments"] = self._halves.whole(place, function["arguments"])

    def _chunk(self, chunk: Any, raw: str, name: str | None) -> Captured:
        if not isinstance(chunk, dict):
            error = ProviderError(raw=raw[:ERROR_RAW_MAX], message="a chunk that is no JSON object")
            return Captured(Kind.ERROR, raw, name, failure=("upstream_protocol", error))
        if chunk.get("type") == "ping":
            return Captured(None, raw)
        choices = items(chunk.get("choices"))
        if chunk.get("error") or any(choice.get("finish_reason") == "error" for choice in choices):
            error = provider_error(chunk, raw, None)
            return Captured(Kind.ERROR, raw, name, failure=(code_of(error), error))
        self._facts(chunk)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            keep_report(self.usage_reports, usage)
        else:
            usage = None
        parts: list[Canonical] = []
        for choice in choices:
            self._choice(choice, parts)
        return Captured(
            _kind_of(parts), raw, name, tuple(parts), usage, usage_only=usage is not None and not choices
        )

    def _facts(self, chunk: dict[str, Any]) -> None:
        if self.upstream_id is None:
            self.upstream_id = fact(chunk.get("id"))
        if self.served_model is None:
            self.served_model = fact(chunk.get("model"))
        if self.service_tier is None:
            self.service_tier = fact(chunk.get("service_tier"))

    def _choice(self, choice: dict[str, Any], parts: list[Canonical]) -> None:
        index = index_of(choice.get("index"))
        before = len(parts)
        delta = choice.get("delta")
        if isinstance(delta, dict):
            text = delta.get("content")
            if isinstance(text, str) and text:
                parts.append(
                    Canonical(
                        type=PartType.TEXT, text=text, choice_index=index, tokens_estimate=_tokens(text)
                    )
                )
            if len(delta) > 1 or text is None:
                self._other(delta, index, parts)
        if len(parts) > before and index not in self.finishes:
            self._open.add(index)
        said = choice.get("finish_reason")
        if said not in _NO_WORD and isinstance(said, str):
            self._finish(index, said, parts)

    def _finish(self, index: int, said: str, parts: list[Canonical]) -> None:
        raw, reason = fact(said), finish_reason_of(said)
        self._open.discard(index)
        if index in self.finishes or len(self.finishes) < CHOICES_MAX:
            finish = ChoiceFinish(choice_index=index, finish_reason=reason, raw_finish_reason=raw)
            self.finishes[index] = finish
        parts.append(
            Canonical(type=PartType.FINISH, choice_index=index, finish_reason=reason, raw_finish_reason=raw)
        )

    def _other(self, delta: dict[str, Any], index: int, parts: list[Canonical]) -> None:
        for key, kind in (("reasoning_content", PartType.REASONING), ("reasoning", PartType.REASONING),
                          ("refusal", PartType.REFUSAL)):  # fmt: skip
            text = delta.get(key)
            if isinstance(text, str) and text:
                parts.append(
                    Canonical(type=kind, text=text, choice_index=index, tokens_estimate=_tokens(text))
                )
                if key == "reasoning_content":
                    break
        parts.extend(self._tool(entry, index) for entry in items(delta.get("tool_calls")))
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            parts.append(self._tool({"index": 0, "function": legacy}, index))
        for note in items(delta.get("annotations")):
            url = word(fields(note.get("url_citation")).get("url"))
            text = orjson.dumps(note).decode()
            parts.append(Canonical(type=PartType.CITATION, text=text, choice_index=index, url=url))

    def _tool(self, entry: dict[str, Any], choice: int) -> Canonical:
        function = fields(entry.get("function"))
        call_id, claimed = word(entry.get("id")), entry.get("index")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # some servers send the object itself
            arguments = orjson.dumps(arguments).decode()
        elif not isinstance(arguments, str):
            arguments = ""
        return Canonical(
            type=PartType.TOOL_CALL,
            text=arguments,
            choice_index=choice,
            tool_index=self._tool_index(self._calls.setdefault(choice, []), call_id, claimed),
            tool_call_id=call_id,
            name=word(function.get("name")),
            tokens_estimate=_tokens(arguments) if arguments else None,
        )

    @staticmethod
    def _tool_index(calls: list[list[Any]], call_id: str | None, claimed: Any) -> int:
        """Which call a fragment belongs to: by its id, else by the index that it claims, else the latest."""
        for at in range(len(calls) - 1, -1, -1):
            known_id, known_claim = calls[at]
            if call_id is not None and known_id == call_id:
                return at
            same_claim = claimed is not None and known_claim == claimed
            if call_id is None and (same_claim or claimed is None):
                return at
            if call_id is not None and known_id is None and same_claim:
                calls[at][0] = call_id
                return at
        calls.append([call_id, claimed])
        return len(calls) - 1


def _kind_of(parts: list[Canonical]) -> Kind:
    """The strongest kind among the parts: a tool call, then a citation, then any text."""
    kinds = {part.type for part in parts}
    if PartType.TOOL_CALL in kinds:
        return Kind.TOOL_CALL_DELTA
    if PartType.CITATION in kinds:
        return Kind.CITATION_DELTA
    return Kind.DELTA if kinds - {PartType.FINISH} else Kind.FRAME


def _tokens(text: str) -> int:
    """An estimate: four bytes a token, at least one; a chunk is not a token."""
    return max(1, (len(text) + 3) // 4)


def _said(data: str) -> dict[str, Any]:
    try:
        return fields(load(data))
    except NotJson:
        return {}


def provider_error(payload: dict[str, Any], raw: str, status: int | None) -> ProviderError:
    """What is kept of an error object, from a payload that has one (or is one)."""
    said = payload.get("error")
    detail = fields(said)
    code, message = detail.get("code"), detail.get("message")
    if isinstance(said, str):
        message = said
    return ProviderError(
        status=status,
        code=None if code is None else str(code)[:FACT_CHARS_MAX],
        type=fact(detail.get("type")),
        message=None if message is None else str(message)[:ERROR_RAW_MAX],
        raw=raw[:ERROR_RAW_MAX],
    )


def code_of(error: ProviderError) -> str:
    """Our code for an error that came with a success status."""
    words = f"{error.code or ''} {error.type or ''}".lower()
    if "rate_limit" in words or error.code == "429":
        return "rate_limited"
    if "overloaded" in words or error.code in ("503", "529"):
        return "overloaded"
    if "kv_oom" in words or "kv cache" in (error.message or "").lower():
        return "kv_oom"
    return "upstream_error"
