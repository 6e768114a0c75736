"""The finished answer of Anthropic Messages as one body, assembled from the log as the SDK's accumulator would.

message_start gives the message, blocks begin with what content_block_start says, deltas continue them, message_delta
gives the end and the totals that overwrite those of the start. A null erases nothing; a field that nobody knows is kept
where it has a place. Pure. Before: ``anthropic_messages``. After: ``result``.
"""

from collections.abc import Iterable
from typing import Any

from edge.dialects.partial_json import load_partial
from edge.dialects.reading import NotJson, fields, index_of, items, load_as_sent, unicode_of
from schemas.events import Kind, LogEvent

_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking",
           "citations_delta": "text", "input_json_delta": "tool_use"}  # fmt: skip
"""The type of a block that is begun by a delta, where its start did not come."""
_OF_THE_EVENT = frozenset({"type", "delta", "usage"})


def assemble(events: Iterable[LogEvent]) -> dict[str, Any]:
    """The body of a non-streaming call, from the numbered events of a finished generation."""
    message: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}  # fragments of JSON, joined once the block is whole
    for event in events:
        if event.raw is None or event.kind in (Kind.MESSAGE_START, Kind.MESSAGE_END, Kind.ERROR):
            continue
        said = fields(load_as_sent(event.raw))
        kind, index = said.get("type") or event.raw_event, index_of(said.get("index"))
        if kind == "message_start":
            message |= fields(said.get("message"))
            blocks, inputs = dict(enumerate(items(message.get("content")))), {}
        elif kind == "content_block_start":
            blocks[index] = fields(said.get("content_block"))
            inputs.pop(index, None)
            _relabel(message, blocks[index])
        elif kind == "content_block_delta":
            _delta(blocks, inputs, index, fields(said.get("delta")))
        elif kind == "message_delta":
            _end(message, said)
    for index, fragments in inputs.items():
        _input(blocks[index], "".join(fragments))
    message["content"] = [blocks[index] for index in sorted(blocks)]
    whole: dict[str, Any] = unicode_of(message)
    return whole


def _delta(
    blocks: dict[int, dict[str, Any]], inputs: dict[int, list[str]], index: int, delta: dict[str, Any]
) -> None:
    kind = str(delta.get("type"))
    if kind == "compaction_delta":
        block = blocks.setdefault(index, {"type": "compaction"})
        block |= {key: value for key, value in delta.items() if key != "type"}
    if kind not in _DELTAS:
        return
    block = blocks.setdefault(index, {"type": _DELTAS[kind]})
    if kind == "input_json_delta":
        fragment = delta.get("partial_json")
        if isinstance(fragment, str) and fragment:
            inputs.setdefault(index, []).append(fragment)
    elif kind == "citations_delta":
        block["citations"] = [*items(block.get("citations")), delta.get("citation")]
    elif kind == "signature_delta":
        block["signature"] = delta.get("signature")
    else:
        key = kind.removesuffix("_delta")
        old, new = block.get(key), delta.get(key)
        block[key] = (old if isinstance(old, str) else "") + (new if isinstance(new, str) else "")


def _input(block: dict[str, Any], text: str) -> None:
    """The arguments of a call: of one that was cut off, what is there of them."""
    try:
        block["input"] = load_partial(text)
    except NotJson:
        block.setdefault("input", {})


def _relabel(message: dict[str, Any], block: dict[str, Any]) -> None:
    """The block of a fallback names the model that goes on with the answer."""
    model = fields(block.get("to")).get("model")
    if block.get("type") == "fallback" and isinstance(model, str):
        message["model"] = model


def _end(message: dict[str, Any], said: dict[str, Any]) -> None:
    """Reasons, and totals as they stand now; what is null, or not said, stays as it was."""
    beside = {key: value for key, value in said.items() if key not in _OF_THE_EVENT}
    for key, value in (beside | fields(said.get("delta"))).items():
        if value is not None or key not in message:
            message[key] = value
    usage = dict(fields(message.get("usage")))
    for key, value in fields(said.get("usage")).items():
        if value is not None or key not in usage:
            usage[key] = value
    if usage:
        message["usage"] = usage
