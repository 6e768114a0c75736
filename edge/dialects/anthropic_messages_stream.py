"""One attempt's stream of Anthropic Messages events, understood event by event.

The type in an event's JSON says what it is; where a gateway left it out, the event's name does. See
``anthropic_messages`` for the facts behind it. Pure. Before: ``anthropic_messages``. After: ``capture``.
"""

from typing import Any

import orjson

from edge.dialects import Captured
from edge.dialects.json_events import JsonEvents, kind_of, tokens_of
from edge.dialects.reading import fact, fields, index_of, items, keep_report, word
from schemas.events import Canonical, ChoiceFinish, Kind, PartType
from schemas.outcomes import finish_reason_of

TEXT_OF = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Where the fragment of a delta stands; fragments may be cut inside a surrogate pair."""
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_QUIET_BLOCKS = frozenset(
    {"redacted_thinking", "compaction", "container_upload", "fallback", "image", "document"}
)
_QUIET_DELTAS = frozenset({"signature_delta", "compaction_delta"})
CALLS_MAX = 65_536
"""Calls beyond so many are counted as the first one's; no model makes so many."""


class AnthropicMessagesState(JsonEvents):
    """One attempt's stream."""

    def __init__(self) -> None:
        super().__init__()
        self._tools: dict[int, int] = {}  # block index → which call it is, from 0

    def _join(self, value: Any) -> None:
        delta = fields(fields(value).get("delta"))
        key = TEXT_OF.get(str(delta.get("type")))
        if key is not None and isinstance(delta.get(key), str):
            delta[key] = self._halves.whole((index_of(value.get("index")), key), delta[key])

    def _understood(self, value: dict[str, Any], raw: str, name: str | None) -> Captured:
        kind = word(value.get("type")) or name
        parts: list[Canonical] = []
        usage: dict[str, Any] | None = None
        if kind == "content_block_delta":
            self._delta(fields(value.get("delta")), index_of(value.get("index")), parts)
        elif kind == "content_block_start":
            self._block(fields(value.get("content_block")), index_of(value.get("index")), parts)
        elif kind == "message_stop":
            return Captured(Kind.MESSAGE_END, raw, name, end=True)
        elif kind == "message_start":
            usage = self._start(fields(value.get("message")), parts)
        elif kind == "message_delta":
            self._finish(fields(value.get("delta")), parts)
            usage = self._usage(value.get("usage"))
        elif kind == "error" or value.get("error"):
            return self._error(value, raw)
        elif kind != "content_block_stop":
            self.unknown_count += 1
        return Captured(kind_of(parts), raw, name, tuple(parts), usage)

    def _start(self, message: dict[str, Any], parts: list[Canonical]) -> dict[str, Any] | None:
        usage = fields(message.get("usage"))
        self._facts({"service_tier": usage.get("service_tier"), **message})
        for index, block in enumerate(items(message.get("content"))):
            self._block(block, index, parts)
        return self._usage(message.get("usage"))

    def _usage(self, usage: Any) -> dict[str, Any] | None:
        if not isinstance(usage, dict):
            return None
        keep_report(self.usage_reports, usage)
        return usage

    def _finish(self, delta: dict[str, Any], parts: list[Canonical]) -> None:
        said = delta.get("stop_reason")
        if not isinstance(said, str) or said in ("", "null"):
            return
        self.stop_rule_id = fact(delta.get("stop_sequence"))
        raw, reason = fact(said), finish_reason_of(said)
        self.finishes[0] = ChoiceFinish(finish_reason=reason, raw_finish_reason=raw)
        parts.append(Canonical(type=PartType.FINISH, finish_reason=reason, raw_finish_reason=raw))

    def _block(self, block: dict[str, Any], index: int, parts: list[Canonical]) -> None:
        """A block begins: mostly empty, but some servers put all of it here."""
        kind = str(block.get("type"))
        if kind in _CALLS:
            if len(self._tools) < CALLS_MAX:
                self._tools.setdefault(index, len(self._tools))
            whole = block.get("input")
            arguments = orjson.dumps(whole).decode() if whole else ""
            parts.append(self._call(index, arguments, word(block.get("id")), word(block.get("name"))))
        elif kind == "text":
            _text(parts, PartType.TEXT, block.get("text"), index)
            parts.extend(_citation(cited, index) for cited in items(block.get("citations")))
        elif kind == "thinking":
            _text(parts, PartType.REASONING, block.get("thinking"), index)
        elif kind not in _QUIET_BLOCKS and not kind.endswith("_tool_result"):
            self.unknown_count += 1

    def _delta(self, delta: dict[str, Any], index: int, parts: list[Canonical]) -> None:
        kind = str(delta.get("type"))
        if kind == "text_delta":
            _text(parts, PartType.TEXT, delta.get("text"), index)
        elif kind == "thinking_delta":
            _text(parts, PartType.REASONING, delta.get("thinking"), index)
        elif kind == "input_json_delta":
            fragment = delta.get("partial_json")
            parts.append(self._call(index, fragment if isinstance(fragment, str) else ""))
        elif kind == "citations_delta":
            if isinstance(delta.get("citation"), dict):
                parts.append(_citation(delta["citation"], index))
        elif kind not in _QUIET_DELTAS:
            self.unknown_count += 1

    def _call(
        self, index: int, arguments: str, call_id: str | None = None, name: str | None = None
    ) -> Canonical:
        return Canonical(
            type=PartType.TOOL_CALL,
            text=arguments,
            block_index=index,
            tool_index=self._tools.get(index, 0),
            tool_call_id=call_id,
            name=name,
            tokens_estimate=tokens_of(arguments) if arguments else None,
        )


def _text(parts: list[Canonical], kind: PartType, text: Any, index: int) -> None:
    if isinstance(text, str) and text:
        parts.append(Canonical(type=kind, text=text, block_index=index, tokens_estimate=tokens_of(text)))


def _citation(cited: dict[str, Any], index: int) -> Canonical:
    """A citation as the provider's JSON, with what of its place has a name of ours."""
    document, page = cited.get("document_index"), cited.get("start_page_number")
    return Canonical(
        type=PartType.CITATION,
        text=orjson.dumps(cited).decode(),
        block_index=index,
        url=word(cited.get("url")),
        evidence_id=None if document is None else str(document),
        page=None if page is None else str(page),
    )
