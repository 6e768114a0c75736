"""Steps as the bytes of the OpenAI Responses dialect, streamed and whole.

The same steps as in every dialect: each kind of token is an output item of its own, opened and closed as the protocol
says; every event has its ``sequence_number``. Every event carries a field that no gateway needs (``x_sim``). Pure. Before
it in the flow: ``plan``. After it: ``server``.
"""

from collections.abc import Iterable
from typing import Any, Final

import orjson

from compose.embedded.simulator.chunks import SERVICE_TIER, error_body
from compose.embedded.simulator.options import SimulatorOptions
from compose.embedded.simulator.plan import TOKEN_KINDS, Step, finish_reason_of

CALL_ID: Final = "call_sim_0"
_ITEM_OF: Final = {
    "reasoning": "reasoning",
    "text": "message",
    "tool_head": "function_call",
    "tool": "function_call",
}
_DELTA_OF: Final = {
    "reasoning": "response.reasoning_summary_text.delta",
    "message": "response.output_text.delta",
    "function_call": "response.function_call_arguments.delta",
}


class ResponsesRenderer:
    """The events of one answer; the arguments are those of ``ChunkRenderer``."""

    prefix: Final = "resp_"

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
        del usage_asked
        self._response: dict[str, Any] = {
            "id": answer_id,
            "object": "response",
            "created_at": created_s,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "service_tier": SERVICE_TIER,
            "usage": None,
        }
        self._options = options
        self._prompt_tokens = prompt_tokens
        self._sequence = 0
        self._item: str | None = None  # the type of the item that is open
        self._said: list[str] = []  # its tokens
        self._output: list[dict[str, Any]] = []
        self.tokens_sent = 0

    def render(self, step: Step, sent_ns: int | None = None) -> bytes:
        """The events of a step; ``sent_ns`` goes into x_sim when given."""
        return b"".join(self._event(event, sent_ns) for event in self._events(step))

    def usage(self) -> dict[str, Any]:
        """The usage of what was rendered until now."""
        options, output = self._options, self.tokens_sent
        return {
            "input_tokens": self._prompt_tokens,
            "input_tokens_details": {"cached_tokens": min(options.cached_tokens, self._prompt_tokens)},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": min(options.reasoning_tokens, output)},
            "total_tokens": self._prompt_tokens + output,
        }

    def whole(self, played: Iterable[Step]) -> dict[str, Any]:
        """The same answer as the body of a call that does not stream."""
        for step in played:
            for _ in self._events(step):
                continue
        return {**self._finished(), "x_sim": {"index": 0}}

    def _events(self, step: Step) -> Iterable[dict[str, Any]]:
        if step.kind == "role":
            yield {"type": "response.created", "response": self._response}
            yield {"type": "response.in_progress", "response": self._response}
        elif step.kind in _ITEM_OF:
            kind = _ITEM_OF[step.kind]
            yield from self._in_item(kind)
            if step.kind in TOKEN_KINDS:
                self.tokens_sent += 1
                self._said.append(step.value)
                yield {"type": _DELTA_OF[kind], **self._place(), "delta": step.value}
        elif step.kind == "error":
            said = error_body(500, self._options)["error"]
            words = {key: said.get(key) for key in ("code", "message", "param")}
            yield {"type": "error", **words}
        elif step.kind == "finish":
            yield from self._end_item()
        elif step.kind == "done":
            finished = self._finished()
            yield {"type": f"response.{finished['status']}", "response": finished}

    def _finished(self) -> dict[str, Any]:
        cut = finish_reason_of(self._options) == "length"
        return {
            **self._response,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": self._output,
            "usage": self.usage() if self._options.usage else None,
        }

    def _in_item(self, kind: str) -> Iterable[dict[str, Any]]:
        """End the item before, begin this one, unless it is open."""
        if self._item == kind:
            return
        yield from self._end_item()
        self._item = kind
        index = len(self._output)
        begun = self._whole_item() | {"status": "in_progress"}
        if kind == "message":
            begun["content"] = []
        if kind == "reasoning":
            begun["summary"] = []
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if kind != "function_call":
            yield {"type": f"response.{self._part_name()}.added", **self._place(), "part": self._part()}

    def _end_item(self) -> Iterable[dict[str, Any]]:
        kind = self._item
        if kind is None:
            return
        name = "arguments" if kind == "function_call" else "text"
        done = _DELTA_OF[kind].removesuffix("delta") + "done"
        yield {"type": done, **self._place(), name: "".join(self._said)}
        if kind != "function_call":
            yield {"type": f"response.{self._part_name()}.done", **self._place(), "part": self._part()}
        item, index = self._whole_item(), len(self._output)
        self._output.append(item)
        self._item, self._said = None, []
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _part_name(self) -> str:
        return "content_part" if self._item == "message" else "reasoning_summary_part"

    def _part(self) -> dict[str, Any]:
        text = "".join(self._said)
        if self._item == "message":
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {"type": "summary_text", "text": text}

    def _place(self) -> dict[str, Any]:
        """Which part of which item an event belongs to."""
        index = {"message": "content_index", "reasoning": "summary_index"}.get(self._item or "")
        place: dict[str, Any] = {"item_id": self._item_id(), "output_index": len(self._output)}
        return place if index is None else place | {index: 0}

    def _item_id(self) -> str:
        return f"{self._item}_sim_{len(self._output)}"

    def _whole_item(self) -> dict[str, Any]:
        """The item that is open, with what was said of it."""
        item: dict[str, Any] = {"type": self._item, "id": self._item_id(), "status": "completed"}
        if self._item == "message":
            return item | {"role": "assistant", "content": [self._part()]}
        if self._item == "reasoning":
            return item | {"summary": [self._part()]}
        name = self._options.tool_call.name if self._options.tool_call else ""
        return item | {"call_id": CALL_ID, "name": name, "arguments": "".join(self._said)}

    def _event(self, event: dict[str, Any], sent_ns: int | None) -> bytes:
        mark = {"index": self._sequence} | ({} if sent_ns is None else {"sent_ns": sent_ns})
        whole = {"type": event["type"], "sequence_number": self._sequence, **event, "x_sim": mark}
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(whole))
