"""The finished answer of OpenAI Chat Completions as one body, assembled from the log as the SDK's accumulator would.

Strings are joined, lists are merged by index, everything else is the last value: unknown fields included. Pure.
Before: ``openai_chat``. After: ``result``.
"""

from collections.abc import Iterable
from typing import Any

import orjson

from schemas.events import Kind, LogEvent

_KEPT = frozenset({"id", "object", "created", "model", "system_fingerprint", "service_tier"})


def assemble(events: Iterable[LogEvent]) -> dict[str, Any]:
    """The body of a non-streaming call, from the numbered events and usage records of a finished generation."""
    body: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.raw is None or event.kind in (Kind.MESSAGE_START, Kind.MESSAGE_END, Kind.ERROR):
            continue
        chunk = orjson.loads(event.raw)
        for key, value in chunk.items():
            if key == "choices":
                for choice in value or ():
                    _merge_choice(choices.setdefault(choice.get("index") or 0, {}), choice)
            elif key in _KEPT:
                body[key] = body.get(key) or value
            elif value is not None or key not in body:
                body[key] = value
    body["object"] = "chat.completion"
    body["choices"] = [_finished(index, choices[index]) for index in sorted(choices)]
    return body


def _merge_choice(into: dict[str, Any], choice: dict[str, Any]) -> None:
    for key, value in choice.items():
        if key == "delta":
            _merge(into.setdefault("message", {}), value or {})
        elif key == "logprobs" and isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif value not in (None, "") or key not in into:
            into[key] = value


def _merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        old = into.get(key)
        if old is None or value is None:
            into[key] = old if value is None else _copy(key, value)
        elif key in ("role", "id", "type", "index"):
            into[key] = value or old
        elif isinstance(old, str) and isinstance(value, str):
            into[key] = old + value
        elif isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        elif isinstance(old, list) and isinstance(value, list):
            _merge_list(old, value)
        else:
            into[key] = value


def _copy(key: str, value: Any) -> Any:
    if key == "tool_calls" and isinstance(value, list):
        merged: list[Any] = []
        _merge_list(merged, value)
        return merged
    return orjson.loads(orjson.dumps(value)) if isinstance(value, dict | list) else value


def _merge_list(old: list[Any], new: list[Any]) -> None:
    for item in new:
        index = item.get("index") if isinstance(item, dict) else None
        at = next(
            (o for o in old if isinstance(o, dict) and index is not None and o.get("index") == index), None
        )
        clash = at is not None and item.get("id") and at.get("id") and item["id"] != at["id"]
        if at is None or clash:
            old.append(_copy("", item))
        else:
            _merge(at, item)


def _finished(index: int, choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.pop("message", {})
    message.setdefault("role", "assistant")
    message.setdefault("content", None)
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
    return {"index": index, **choice, "message": message, "finish_reason": choice.get("finish_reason")}
