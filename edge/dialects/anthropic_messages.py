"""Anthropic Messages: what its events mean.

Facts of the protocol: message_start carries id, model and the first usage; blocks are numbered and come one after the
other, each with a start, deltas and a stop; message_delta carries the stop reason and usage totals that replace the
earlier ones (null erases nothing); message_stop is the end mark; an error is an event of its own, also after HTTP 200;
pings come at any time and mean nothing. A provider's ``base_url`` is what the SDK's is: without ``/v1``. Pure. Before:
``edge.dialects``. After: ``anthropic_messages_stream``; ``anthropic_messages_body`` assembles the answer.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from edge.dialects import NO_HEADERS, BadRequest, ClientRequest, passed_on
from edge.dialects.anthropic_messages_body import assemble
from edge.dialects.anthropic_messages_stream import AnthropicMessagesState
from edge.dialects.provider_errors import failure_of_body
from schemas.events import LogEvent, ProviderError

API_VERSION = "2023-06-01"
"""What a client that names no version is taken to speak: the protocol requires one."""
_PASSED_ON = ("anthropic-version", "anthropic-beta")
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "thinking", "output_config")


class AnthropicMessages:
    """See edge.dialects.Dialect."""

    name = "anthropic.messages"
    end_raw = '{"type":"message_stop"}'
    end_event: str | None = "message_stop"
    by_upstream_id = False
    request_id_header = "request-id"

    def request_of(self, body: dict[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> ClientRequest:
        """See Dialect."""
        model, messages, stream = body.get("model"), body.get("messages"), body.get("stream", False)
        if not isinstance(model, str) or not model:
            raise BadRequest("`model` must be a non-empty string")
        if not isinstance(messages, list) or not messages:
            raise BadRequest("`messages` must be a non-empty array")
        if not isinstance(stream, bool | None):
            raise BadRequest("`stream` must be a boolean")
        stop = body.get("stop_sequences") or []
        if not isinstance(stop, list):
            raise BadRequest("`stop_sequences` must be an array of strings")
        prompt = {"system": body.get("system"), "messages": messages}
        canonical = orjson.dumps(prompt, option=orjson.OPT_SORT_KEYS)
        sampling = {key: body[key] for key in _SAMPLING if key in body}
        return ClientRequest(
            model=model,
            stream=bool(stream),
            wants_usage=True,
            prompt_hash=hashlib.sha256(canonical).hexdigest(),
            prompt_bytes=len(canonical),
            sampling=orjson.dumps(sampling, option=orjson.OPT_SORT_KEYS).decode(),
            stop_rules=[str(rule) for rule in stop],
            choices=1,
            body=body,
            headers={"anthropic-version": API_VERSION} | passed_on(headers, _PASSED_ON),
        )

    def upstream_path(self, model: str) -> str:
        """See Dialect."""
        del model
        return "/v1/messages"

    def upstream_body(self, request: ClientRequest, model: str) -> dict[str, Any]:
        """See Dialect."""
        return {**request.body, "model": model, "stream": True}

    def upstream_headers(self, request: ClientRequest, api_key: str | None) -> dict[str, str]:
        """See Dialect."""
        return request.headers | ({} if api_key is None else {"x-api-key": api_key})

    def new_state(self) -> AnthropicMessagesState:
        """See Dialect."""
        return AnthropicMessagesState()

    def at_seq(self, raw: str, seq: int) -> str:
        """See Dialect."""
        del seq
        return raw

    def failure_of_body(self, status: int, body: bytes) -> tuple[str, ProviderError]:
        """See Dialect."""
        return failure_of_body(status, body)

    def assemble(self, events: Iterable[LogEvent]) -> dict[str, Any]:
        """See Dialect."""
        return assemble(events)
