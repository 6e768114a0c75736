"""OpenAI Chat Completions: what its chunks mean.

Facts of the protocol and of its many speakers: usage may come on its own chunk, on every chunk (cumulative), or never;
``finish_reason`` may be empty or the word "null" until the last; tool calls may lack an index or claim the same one;
errors come in band, beside or instead of choices. Keep-alives come as comments, as empty data, or as data that is a
comment. Pure. Before: ``edge.dialects``. After: ``openai_chat_stream``; ``openai_chat_body`` assembles the answer.
"""

import hashlib
from typing import TYPE_CHECKING, Any

import orjson

from edge.dialects import NO_HEADERS, BadRequest, ClientRequest, bearer, passed_on
from edge.dialects.openai_chat_body import assemble
from edge.dialects.openai_chat_stream import OpenAiChatState
from edge.dialects.provider_errors import failure_of_body
from schemas.events import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.events import LogEvent

_SAMPLING = ("temperature", "top_p", "seed", "max_tokens", "max_completion_tokens", "n", "frequency_penalty",
             "presence_penalty", "reasoning_effort", "logit_bias")  # fmt: skip

_PASSED_ON = ("openai-beta",)


class OpenAiChat:
    """See edge.dialects.Dialect."""

    name = "openai.chat"
    end_raw = "[DONE]"
    end_event: str | None = None
    by_upstream_id = False
    request_id_header = "x-request-id"

    def request_of(self, body: dict[str, Any], headers: "Mapping[str, str]" = NO_HEADERS) -> ClientRequest:
        """See Dialect."""
        model, messages = body.get("model"), body.get("messages")
        if not isinstance(model, str) or not model:
            raise BadRequest("`model` must be a non-empty string")
        if not isinstance(messages, list) or not messages:
            raise BadRequest("`messages` must be a non-empty array")
        stream, options = body.get("stream", False), body.get("stream_options") or {}
        if not isinstance(stream, bool | None) or not isinstance(options, dict):
            raise BadRequest("`stream` must be a boolean and `stream_options` an object")
        choices = 1 if body.get("n") is None else body["n"]
        if type(choices) is not int or choices < 1:
            raise BadRequest("`n` must be a positive integer")
        stop = body.get("stop") or []
        if not isinstance(stop, str | list):
            raise BadRequest("`stop` must be a string or an array of strings")
        canonical = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)
        sampling = {key: body[key] for key in _SAMPLING if key in body}
        return ClientRequest(
            model=model,
            stream=bool(stream),
            wants_usage=bool(options.get("include_usage")) or not stream,
            prompt_hash=hashlib.sha256(canonical).hexdigest(),
            prompt_bytes=len(canonical),
            sampling=orjson.dumps(sampling, option=orjson.OPT_SORT_KEYS).decode(),
            stop_rules=[stop] if isinstance(stop, str) else [str(rule) for rule in stop],
            choices=choices,
            body=body,
            headers=passed_on(headers, _PASSED_ON),
        )

    def upstream_path(self, model: str) -> str:
        """See Dialect."""
        del model
        return "/chat/completions"

    def upstream_body(self, request: ClientRequest, model: str) -> dict[str, Any]:
        """See Dialect."""
        options = {**(request.body.get("stream_options") or {}), "include_usage": True}
        return {**request.body, "model": model, "stream": True, "stream_options": options}

    def upstream_headers(self, request: ClientRequest, api_key: str | None) -> dict[str, str]:
        """See Dialect."""
        return request.headers | bearer(api_key)

    def new_state(self) -> OpenAiChatState:
        """See Dialect."""
        return OpenAiChatState()

    def at_seq(self, raw: str, seq: int) -> str:
        """See Dialect."""
        del seq
        return raw

    def failure_of_body(self, status: int, body: bytes) -> tuple[str, ProviderError]:
        """See Dialect."""
        return failure_of_body(status, body)

    def assemble(self, events: "Iterable[LogEvent]") -> dict[str, Any]:
        """See Dialect."""
        return assemble(events)
