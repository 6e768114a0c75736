"""The finished answer of OpenAI Chat Completions as one body, assembled from the log as the SDK's accumulator would.

Strings are joined, lists are merged by index, everything else is the last value: unknown fields included. Pure.
Before: ``openai_chat``. After: ``result``.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from edge.dialects.reading import fields, index_of, items, load_as_sent, unicode_of
from schemas.events import Kind, LogEvent

_Find = Callable[[list[Any], dict[str, Any]], dict[str, Any] | None]
_KEPT = frozenset({"id", "object", "created", "model", "system_fingerprint", "service_tier"})


def assemble(events: Iterable[LogEvent]) -> dict[str, Any]:
    """The body of a non-streaming call, from the numbered events and usage records of a finished generation."""
    body: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.raw is None or event.kind in (Kind.MESSAGE_START, Kind.MESSAGE_END, Kind.ERROR):
            continue
        chunk = fields(load_as_sent(event.raw))
        for key, value in chunk.items():
            if key == "choices":
                for choice in items(value):
                    _merge_choice(choices.setdefault(index_of(choice.get("index")), {}), choice)
            elif key in _KEPT:
                body[key] = body.get(key) or value
            elif value is not None or key not in body:
                body[key] = value
    body["object"] = "chat.completion"
    body["choices"] = [_finished(index, choices[index]) for index in sorted(choices)]
    whole: dict[str, Any] = unicode_of(body)
    return whole


def _merge_choice(into: dict[str, Any], choice: dict[str, Any]) -> None:
    for key, value in choice.items():
        if key == "delta":
            _merge(_object_in(into, "message"), fields(value))
        elif key == "logprobs" and isinstance(value, dict):
            _merge(_object_in(into, key), value)
        elif value not in (None, "") or key not in into:
            into[key] = value


def _object_in(into: dict[str, Any], key: str) -> dict[str, Any]:
    """The object at a key; one that is new where nothing, a null or something else stands there."""
    if not isinstance(into.get(key), dict):
        into[key] = {}
    found: dict[str, Any] = into[key]
    return found


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
            _merge_list(old, value, _FIND.get(key, _of_index))
        else:
            into[key] = value


def _copy(key: str, value: Any) -> Any:
    if key in _FIND and isinstance(value, list):
        merged: list[Any] = []
        _merge_list(merged, value, _FIND[key])
        return merged
    return copy.deepcopy(value)


def _merge_list(old: list[Any], new: list[Any], find: _Find) -> None:
    for item in new:
        at = find(old, item) if isinstance(item, dict) else None
        if at is None:
            old.append(_copy("", item))
        else:
            _merge(at, item)


def _of_index(old: list[Any], item: dict[str, Any]) -> dict[str, Any] | None:
    """The entry with the same index."""
    index = item.get("index")
    entries = items(old) if index is not None else []
    return next((entry for entry in entries if entry.get("index") == index), None)


def _of_call(old: list[Any], item: dict[str, Any]) -> dict[str, Any] | None:
    """The call that a fragment continues: that of its id, else of the index that it claims, else the latest."""
    call_id, claimed = item.get("id"), item.get("index")
    for entry in items(old)[::-1]:
        same_claim = claimed is not None and entry.get("index") == claimed
        if call_id:
            continues = entry.get("id") == call_id or (not entry.get("id") and same_claim)
        else:
            continues = same_claim or claimed is None
        if continues:
            return entry
    return None


_FIND: dict[str, _Find] = {"tool_calls": _of_call}


def _finished(index: int, choice: dict[str, Any]) -> dict[str, Any]:
    message = _object_in(choice, "message")
    del choice["message"]
    message.setdefault("role", "assistant")
    message.setdefault("content", None)
    for call in items(message.get("tool_calls")):
        call.pop("index", None)
        function = fields(call.get("function"))
        if isinstance(function.get("arguments"), dict):  # some servers send the object itself
            function["arguments"] = orjson.dumps(function["arguments"]).decode()
    return {"index": index, **choice, "message": message, "finish_reason": choice.get("finish_reason")}
