"""OpenAI Responses: what its events mean.

Facts of the protocol: every event has a type and a ``sequence_number`` (which is our seq: the one field that is not the
provider's); created, queued and in_progress carry the response as it stands; items are numbered, each is added, its
content comes in deltas, it is done; completed, incomplete and failed carry the whole response and are the end; an error
is an event of its own. Clients know a response by the provider's id. The background is ours: the provider is called in
the foreground, and the edge reads to the end whoever listens. Pure. Before: ``edge.dialects``. After:
``openai_responses_stream``; ``openai_responses_body`` assembles the answer.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from edge.dialects import NO_HEADERS, BadRequest, ClientRequest, bearer, passed_on
from edge.dialects.openai_responses_body import assemble
from edge.dialects.openai_responses_stream import OpenAiResponsesState
from edge.dialects.provider_errors import failure_of_body
from edge.dialects.sequence import at_seq
from schemas.events import LogEvent, ProviderError

_PASSED_ON = ("openai-beta",)
_PROMPT = ("instructions", "input", "prompt", "previous_response_id", "conversation")
_SAMPLING = ("temperature", "top_p", "max_output_tokens", "reasoning", "top_logprobs", "truncation")


class OpenAiResponses:
    """See edge.dialects.Dialect."""

    name = "openai.responses"
    end_raw = '{"type":"response.completed"}'
    end_event: str | None = "response.completed"
    by_upstream_id = True
    request_id_header = "x-request-id"

    def request_of(self, body: dict[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> ClientRequest:
        """See Dialect."""
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise BadRequest("`model` must be a non-empty string")
        for name in ("stream", "background"):
            if not isinstance(body.get(name), bool | None):
                raise BadRequest(f"`{name}` must be a boolean")
        canonical = orjson.dumps({key: body.get(key) for key in _PROMPT}, option=orjson.OPT_SORT_KEYS)
        sampling = {key: body[key] for key in _SAMPLING if key in body}
        return ClientRequest(
            model=model,
            stream=bool(body.get("stream")),
            wants_usage=True,
            prompt_hash=hashlib.sha256(canonical).hexdigest(),
            prompt_bytes=len(canonical),
            sampling=orjson.dumps(sampling, option=orjson.OPT_SORT_KEYS).decode(),
            stop_rules=[],
            choices=1,
            body=body,
            headers=passed_on(headers, _PASSED_ON),
            background=bool(body.get("background")),
        )

    def upstream_path(self, model: str) -> str:
        """See Dialect."""
        del model
        return "/responses"

    def upstream_body(self, request: ClientRequest, model: str) -> dict[str, Any]:
        """See Dialect."""
        asked = {key: value for key, value in request.body.items() if key != "background"}
        return {**asked, "model": model, "stream": True}

    def upstream_headers(self, request: ClientRequest, api_key: str | None) -> dict[str, str]:
        """See Dialect."""
        return request.headers | bearer(api_key)

    def new_state(self) -> OpenAiResponsesState:
        """See Dialect."""
        return OpenAiResponsesState()

    def at_seq(self, raw: str, seq: int) -> str:
        """See Dialect."""
        return at_seq(raw, seq)

    def failure_of_body(self, status: int, body: bytes) -> tuple[str, ProviderError]:
        """See Dialect."""
        return failure_of_body(status, body)

    def assemble(self, events: Iterable[LogEvent]) -> dict[str, Any]:
        """See Dialect."""
        return assemble(events)
