"""One attempt's stream of OpenAI Responses events, understood event by event.

See ``openai_responses`` for the facts behind it. Pure. Before: ``openai_responses``. After: ``capture``.
"""

from typing import Any

import orjson

from edge.dialects import Captured
from edge.dialects.json_events import JsonEvents, kind_of, tokens_of
from edge.dialects.reading import fact, fields, index_of, items, keep_report, word
from schemas.events import Canonical, ChoiceFinish, Kind, PartType
from schemas.outcomes import finish_reason_of

_CONTENT = {
    "response.output_text.delta": PartType.TEXT,
    "response.refusal.delta": PartType.REFUSAL,
    "response.reasoning_text.delta": PartType.REASONING,
    "response.reasoning_summary_text.delta": PartType.REASONING,
}
_ARGUMENTS = frozenset(
    {
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta",
        "response.code_interpreter_call_code.delta",
        "response.shell_call_command.delta",
    }
)
_ITEM_CALLS = frozenset(
    {"function_call", "custom_tool_call", "mcp_call", "code_interpreter_call", "shell_call", "computer_call"}
)
_ASKS_BACK = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
    }
)
"""Calls whose result the client brings: the answer goes on when it does."""
_STARTS = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS = frozenset({"response.completed", "response.incomplete"})
_QUIET_WORDS = frozenset(
    {"added", "done", "in_progress", "searching", "generating", "interpreting", "compacting", "completed", "failed",
     "partial_image"}
)  # fmt: skip
_QUIET = frozenset(
    {"response.audio.delta", "response.audio.transcript.delta", "response.shell_call_output_content.delta"}
)
CALLS_MAX = 65_536
"""Calls beyond so many are counted as the first one's; no model makes so many."""


class OpenAiResponsesState(JsonEvents):
    """One attempt's stream."""

    def __init__(self) -> None:
        super().__init__()
        self._tools: dict[int, int] = {}  # output index → which call it is, from 0

    def _join(self, value: Any) -> None:
        said = fields(value)
        if isinstance(said.get("delta"), str):
            place = (
                str(said.get("type")),
                index_of(said.get("output_index")),
                index_of(said.get("content_index")),
            )
            said["delta"] = self._halves.whole(place, said["delta"])

    def _understood(self, value: dict[str, Any], raw: str, name: str | None) -> Captured:
        kind = word(value.get("type")) or name or ""
        if kind in _ENDS:
            return self._end(fields(value.get("response")), raw, name or kind)
        if kind in ("response.failed", "error") or value.get("error"):
            return self._failed(value, raw, kind)
        if kind == "keepalive":
            return Captured(None, raw)
        parts = self._parts(kind, value)
        return Captured(kind_of(parts), raw, name, tuple(parts))

    def _parts(self, kind: str, value: dict[str, Any]) -> list[Canonical]:
        index, fragment = index_of(value.get("output_index")), value.get("delta")
        if kind in _CONTENT:
            said = isinstance(fragment, str) and fragment
            return [_text(_CONTENT[kind], str(fragment), index)] if said else []
        if kind in _ARGUMENTS:
            return [self._call(index, fragment if isinstance(fragment, str) else "")]
        if kind == "response.output_item.added":
            return self._item(fields(value.get("item")), index)
        if kind == "response.output_text.annotation.added":
            note = value.get("annotation")
            return [_citation(note, index)] if isinstance(note, dict) else []
        if kind in _STARTS:
            self._facts(fields(value.get("response")))
        elif kind not in _QUIET and kind.rpartition(".")[2] not in _QUIET_WORDS:
            self.unknown_count += 1
        return []

    def _failed(self, value: dict[str, Any], raw: str, kind: str) -> Captured:
        response = fields(value.get("response"))
        self._facts(response)
        self._usage(response)
        if kind == "response.failed":
            return self._error({"error": response.get("error")}, raw, kind)
        return self._error({"type": "error", **value}, raw)

    def _end(self, response: dict[str, Any], raw: str, name: str) -> Captured:
        """The end mark says all at once: why, the totals, and which model and tier it was after all."""
        self._facts(response)
        self.service_tier = fact(response.get("service_tier")) or self.service_tier
        usage = self._usage(response)
        said = fact(fields(response.get("incomplete_details")).get("reason")) or fact(response.get("status"))
        asks_back = any(str(item.get("type")) in _ASKS_BACK for item in items(response.get("output")))
        reason = finish_reason_of("tool_calls" if asks_back and said == "completed" else said)
        self.finishes[0] = ChoiceFinish(finish_reason=reason, raw_finish_reason=said)
        return Captured(Kind.MESSAGE_END, raw, name, usage=usage, end=True)

    def _usage(self, response: dict[str, Any]) -> dict[str, Any] | None:
        usage = response.get("usage")
        if not isinstance(usage, dict):
            return None
        keep_report(self.usage_reports, usage)
        return usage

    def _item(self, item: dict[str, Any], index: int) -> list[Canonical]:
        """An item begins: of a call, its id and its name come here."""
        if str(item.get("type")) not in _ITEM_CALLS:
            return []
        arguments = item.get("arguments")
        text = arguments if isinstance(arguments, str) else ""
        call_id = word(item.get("call_id")) or word(item.get("id"))
        return [self._call(index, text, call_id, word(item.get("name")))]

    def _call(
        self, index: int, arguments: str, call_id: str | None = None, name: str | None = None
    ) -> Canonical:
        if len(self._tools) < CALLS_MAX:
            self._tools.setdefault(index, len(self._tools))
        return Canonical(
            type=PartType.TOOL_CALL,
            text=arguments,
            block_index=index,
            tool_index=self._tools.get(index, 0),
            tool_call_id=call_id,
            name=name,
            tokens_estimate=tokens_of(arguments) if arguments else None,
        )


def _text(kind: PartType, text: str, index: int) -> Canonical:
    return Canonical(type=kind, text=text, block_index=index, tokens_estimate=tokens_of(text))


def _citation(note: dict[str, Any], index: int) -> Canonical:
    """A citation as the provider's JSON, with what of its place has a name of ours."""
    return Canonical(
        type=PartType.CITATION,
        text=orjson.dumps(note).decode(),
        block_index=index,
        url=word(note.get("url")),
        evidence_id=word(note.get("file_id")),
    )
