"""Steps as the bytes of the OpenAI Chat Completions dialect, streamed and whole.

Pure and cheap: the parts of a chunk that never change within an answer are joined once, the JSON of the vocabulary is
cached, so that one process can feed hundreds of streams. Every chunk carries fields that no gateway needs (``logprobs``,
``service_tier``, ``system_fingerprint``, ``x_sim``): whoever loses one is not lossless.
Before it in the flow: ``plan``. After it: ``server``.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import orjson

from compose.embedded.simulator.options import SimulatorOptions
from compose.embedded.simulator.plan import TOKEN_KINDS, Step, finish_reason_of

SERVICE_TIER: Final = "default"
SYSTEM_FINGERPRINT: Final = "fp_simulator"
TOOL_CALL_ID: Final = "call_sim_0"
ERRORS: Final = {  # status → (type, code, message), worded as providers word them
    400: ("invalid_request_error", "bad_request", "The request is not valid"),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided"),
    404: ("invalid_request_error", "model_not_found", "The model does not exist"),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached"),
    503: ("server_error", "overloaded", "The engine is currently overloaded, please try again later"),
}
SERVER_ERROR: Final = ("server_error", None, "The server had an error while processing your request")


@lru_cache(maxsize=512)  # the vocabulary is smaller; tool fragments of a few scripts fit as well
def _json(text: str) -> bytes:
    return orjson.dumps(text)


def error_body(
    status: int, options: SimulatorOptions | None = None, message: str | None = None
) -> dict[str, Any]:
    """The error object of a status (or of the script), as the body of an answer or as one chunk."""
    if options is not None and options.error is not None:
        return {"error": options.error}
    kind, code, usual_message = ERRORS.get(status, SERVER_ERROR)
    return {"error": {"message": message or usual_message, "type": kind, "param": None, "code": code}}


class ChunkRenderer:
    """The chunks of one answer.

    Args:
        answer_id, created_s, model: as they stand on every chunk.
        options: of the answer (usage numbers, error object).
        prompt_tokens: for the usage report.
        usage_asked: ``stream_options.include_usage``: then every other chunk says ``"usage": null``.

    """

    prefix: Final = "chatcmpl-"

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
        self._common: dict[str, Any] = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": created_s,
            "model": model,
            "service_tier": SERVICE_TIER,
            "system_fingerprint": SYSTEM_FINGERPRINT,
        }
        self._options = options
        self._prompt_tokens = prompt_tokens
        self._index = 0
        self.tokens_sent = 0
        head = orjson.dumps(self._common)[:-1]
        self._before_delta = b"data: " + head + b',"choices":[{"index":0,"delta":'
        self._before_finish = b',"logprobs":null,"finish_reason":'
        self._after_finish = b"}]" + (b',"usage":null' if usage_asked else b"") + b',"x_sim":{"index":'

    def render(self, step: Step, sent_ns: int | None = None) -> bytes:
        """The frame of a step that writes something; ``sent_ns`` goes into x_sim when given."""
        if step.kind == "done":
            return b"data: [DONE]\n\n"
        if step.kind == "error":
            return b"data: " + orjson.dumps(error_body(500, self._options)) + b"\n\n"
        if step.kind in TOKEN_KINDS:
            self.tokens_sent += 1
        index, self._index = self._index, self._index + 1
        tail = b"%d}}\n\n" % index if sent_ns is None else b'%d,"sent_ns":%d}}\n\n' % (index, sent_ns)
        if step.kind == "usage":
            usage = {**self._common, "choices": [], "usage": self.usage()}
            return b"data: " + orjson.dumps(usage)[:-1] + b',"x_sim":{"index":' + tail
        finish = _json(step.value) if step.kind == "finish" else b"null"
        return b"".join(
            (self._before_delta, self._delta(step), self._before_finish, finish, self._after_finish, tail)
        )

    def usage(self) -> dict[str, Any]:
        """The usage of what was rendered until now."""
        options, output = self._options, self.tokens_sent
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": output,
            "total_tokens": self._prompt_tokens + output,
            "prompt_tokens_details": {"cached_tokens": min(options.cached_tokens, self._prompt_tokens)},
            "completion_tokens_details": {"reasoning_tokens": min(options.reasoning_tokens, output)},
        }

    def whole(self, played: Iterable[Step]) -> dict[str, Any]:
        """The same answer as the body of a call that does not stream."""
        parts: dict[str, list[str]] = {kind: [] for kind in TOKEN_KINDS}
        for step in played:
            if step.kind in TOKEN_KINDS:
                parts[step.kind].append(step.value)
                self.tokens_sent += 1
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(parts["text"]) or None,
            "refusal": None,
        }
        if parts["reasoning"]:
            message["reasoning_content"] = "".join(parts["reasoning"])
        if self._options.tool_call:
            function = {"name": self._options.tool_call.name, "arguments": "".join(parts["tool"])}
            message["tool_calls"] = [{"id": TOOL_CALL_ID, "type": "function", "function": function}]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason_of(self._options),
        }
        body = {**self._common, "object": "chat.completion", "choices": [choice], "x_sim": {"index": 0}}
        return {**body, "usage": self.usage()} if self._options.usage else body

    def _delta(self, step: Step) -> bytes:
        if step.kind == "text":
            return b'{"content":' + _json(step.value) + b"}"
        if step.kind == "reasoning":
            return b'{"reasoning_content":' + _json(step.value) + b"}"
        if step.kind == "tool":
            return b'{"tool_calls":[{"index":0,"function":{"arguments":' + _json(step.value) + b"}}]}"
        if step.kind == "tool_head":
            function = {"name": step.value, "arguments": ""}
            call = {"index": 0, "id": TOOL_CALL_ID, "type": "function", "function": function}
            return orjson.dumps({"tool_calls": [call]})
        if step.kind == "role":
            return b'{"role":"assistant","content":"","refusal":null}'
        return b"{}"  # finish
