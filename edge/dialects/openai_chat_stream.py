"""One attempt's stream of OpenAI Chat Completions chunks, understood event by event.

See ``openai_chat`` for the facts behind it. Pure. Before: ``openai_chat``. After: ``capture``.
"""

from typing import Any

import orjson

from edge.dialects import Captured
from edge.dialects.json_events import JsonEvents, kind_of, tokens_of
from edge.dialects.reading import (
    fact,
    fields,
    index_of,
    items,
    keep_report,
    word,
)
from schemas.events import Canonical, ChoiceFinish, Kind, PartType
from schemas.outcomes import finish_reason_of

CHOICES_MAX = 128
"""What the protocol allows; finish reasons of more choices are not kept, since the terminal lists them."""
_NO_WORD = (None, "", "null")


class OpenAiChatState(JsonEvents):
    """One attempt's stream."""

    def __init__(self) -> None:
        super().__init__()
        self._open: set[int] = set()  # choices with content and without a finish reason
        self._calls: dict[int, list[list[Any]]] = {}  # choice → [[id, claimed index], …]

    @property
    def finished(self) -> bool:
        """See DialectState."""
        return bool(self.finishes) and not self._open

    def _done(self, raw: str, name: str | None) -> Captured:
        return Captured(Kind.MESSAGE_END, raw, name, end=True)

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

    def _understood(self, chunk: dict[str, Any], raw: str, name: str | None) -> Captured:
        choices = items(chunk.get("choices"))
        if chunk.get("error") or any(choice.get("finish_reason") == "error" for choice in choices):
            return self._error(chunk, raw, name)
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
            kind_of(parts), raw, name, tuple(parts), usage, usage_only=usage is not None and not choices
        )

    def _choice(self, choice: dict[str, Any], parts: list[Canonical]) -> None:
        index = index_of(choice.get("index"))
        before = len(parts)
        delta = choice.get("delta")
        if isinstance(delta, dict):
            text = delta.get("content")
            if isinstance(text, str) and text:
                parts.append(
                    Canonical(
                        type=PartType.TEXT, text=text, choice_index=index, tokens_estimate=tokens_of(text)
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
                    Canonical(type=kind, text=text, choice_index=index, tokens_estimate=tokens_of(text))
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
            tokens_estimate=tokens_of(arguments) if arguments else None,
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
