"""Steps as the bytes of the Anthropic Messages dialect, streamed and whole.

The same steps as in every dialect: reasoning becomes a thinking block with its signature, text a text block, a tool call
a tool_use block; a ping stands behind the start, as the real one sends it. Every event carries a field that no gateway
needs (``x_sim``). Pure. Before it in the flow: ``plan``. After it: ``server``.
"""

from collections.abc import Iterable
from typing import Any, Final

import orjson

from compose.embedded.simulator.options import SimulatorOptions
from compose.embedded.simulator.plan import TOKEN_KINDS, Step, finish_reason_of

TOOL_USE_ID: Final = "toolu_sim_0"
SIGNATURE: Final = "c2lnbmF0dXJl"
STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
ERRORS: Final = {  # status → (type, message), worded as the provider words them
    400: ("invalid_request_error", "The request is not valid"),
    401: ("authentication_error", "invalid x-api-key"),
    404: ("not_found_error", "The model does not exist"),
    429: ("rate_limit_error", "This request would exceed your rate limit"),
    503: ("overloaded_error", "Overloaded"),
    529: ("overloaded_error", "Overloaded"),
}
SERVER_ERROR: Final = ("api_error", "Internal server error")
_BLOCK_OF: Final = {"reasoning": "thinking", "text": "text", "tool_head": "tool_use", "tool": "tool_use"}


def error_body(
    status: int, options: SimulatorOptions | None = None, message: str | None = None
) -> dict[str, Any]:
    """The error object of a status (or of the script), as the body of an answer or as one event."""
    kind, usual = ERRORS.get(status, SERVER_ERROR)
    error: dict[str, Any] = {"type": kind, "message": message or usual}
    if options is not None and options.error is not None:
        error = options.error
    return {"type": "error", "error": error}


class MessagesRenderer:
    """The events of one answer; the arguments are those of ``ChunkRenderer``."""

    prefix: Final = "msg_"

    def __init__(
        self,
        *,
        answer_id: str,
        created_s: int,
        model: str,
        options: SimulatorOptions,
        prompt_tokens: int,
        usage_asked: bool,
    ) -> None:
        del created_s, usage_asked
        self._message: dict[str, Any] = {
            "id": answer_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        self._options = options
        self._prompt_tokens = prompt_tokens
        self._index = 0
        self._block: str | None = None  # the kind of the block that is open
        self._blocks = 0
        self.tokens_sent = 0

    def render(self, step: Step, sent_ns: int | None = None) -> bytes:
        """The events of a step; ``sent_ns`` goes into x_sim when given."""
        return b"".join(self._event(event, sent_ns) for event in self._events(step))

    def usage(self) -> dict[str, Any]:
        """The usage of what was rendered until now."""
        cached = min(self._options.cached_tokens, self._prompt_tokens)
        return {
            "input_tokens": self._prompt_tokens - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": self.tokens_sent,
        }

    def whole(self, played: Iterable[Step]) -> dict[str, Any]:
        """The same answer as the body of a call that does not stream."""
        parts: dict[str, list[str]] = {kind: [] for kind in TOKEN_KINDS}
        for step in played:
            if step.kind in TOKEN_KINDS:
                parts[step.kind].append(step.value)
                self.tokens_sent += 1
        content: list[dict[str, Any]] = []
        if parts["reasoning"]:
            content.append(
                {"type": "thinking", "thinking": "".join(parts["reasoning"]), "signature": SIGNATURE}
            )
        if parts["text"]:
            content.append({"type": "text", "text": "".join(parts["text"])})
        if self._options.tool_call:
            arguments = orjson.loads("".join(parts["tool"]) or "{}")
            content.append(self._tool_use() | {"input": arguments})
        body = {
            **self._message,
            "content": content,
            "stop_reason": self._stop_reason(),
            "x_sim": {"index": 0},
        }
        return {**body, "usage": self.usage()} if self._options.usage else body

    def _events(self, step: Step) -> Iterable[dict[str, Any]]:
        if step.kind in TOKEN_KINDS:
            self.tokens_sent += 1
        if step.kind == "role":
            seed = {"usage": {**self.usage(), "output_tokens": 1}} if self._options.usage else {}
            yield {"type": "message_start", "message": {**self._message, **seed}}
            yield {"type": "ping"}
        elif step.kind in _BLOCK_OF:
            yield from self._in_block(_BLOCK_OF[step.kind])
            if step.kind != "tool_head":
                yield {"type": "content_block_delta", "index": self._blocks, "delta": _delta(step)}
        elif step.kind == "error":
            yield error_body(529, self._options)
        elif step.kind == "finish":
            yield from self._end_block()
            delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
            usage = {"usage": self.usage()} if self._options.usage else {}
            yield {"type": "message_delta", "delta": delta, **usage}
        elif step.kind == "done":
            yield {"type": "message_stop"}

    def _in_block(self, kind: str) -> Iterable[dict[str, Any]]:
        """End the block before, begin this one, unless it is open."""
        if self._block == kind:
            return
        yield from self._end_block()
        self._block = kind
        begun = {
            "thinking": {"type": "thinking", "thinking": "", "signature": ""},
            "text": {"type": "text", "text": ""},
        }
        block = begun.get(kind) or self._tool_use()
        yield {"type": "content_block_start", "index": self._blocks, "content_block": block}

    def _end_block(self) -> Iterable[dict[str, Any]]:
        if self._block is None:
            return
        if self._block == "thinking":
            delta = {"type": "signature_delta", "signature": SIGNATURE}
            yield {"type": "content_block_delta", "index": self._blocks, "delta": delta}
        yield {"type": "content_block_stop", "index": self._blocks}
        self._block = None
        self._blocks += 1

    def _tool_use(self) -> dict[str, Any]:
        name = self._options.tool_call.name if self._options.tool_call else ""
        return {"type": "tool_use", "id": TOOL_USE_ID, "name": name, "input": {}}

    def _stop_reason(self) -> str:
        reason = finish_reason_of(self._options)
        return STOP_REASONS.get(reason, reason)

    def _event(self, event: dict[str, Any], sent_ns: int | None) -> bytes:
        mark = {"index": self._index} | ({} if sent_ns is None else {"sent_ns": sent_ns})
        self._index += 1
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps({**event, "x_sim": mark}))


def _delta(step: Step) -> dict[str, Any]:
    if step.kind == "reasoning":
        return {"type": "thinking_delta", "thinking": step.value}
    if step.kind == "tool":
        return {"type": "input_json_delta", "partial_json": step.value}
    return {"type": "text_delta", "text": step.value}
