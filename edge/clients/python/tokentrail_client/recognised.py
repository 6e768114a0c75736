"""Which of an SDK's requests are calls, and what of them a session needs to know. Pure. Before: ``keys``. After: ``transport``."""

import json
from collections.abc import Iterable
from typing import Any

from tokentrail_client.endings import PATHS
from tokentrail_client.keys import name_of

_SECRETS = frozenset({"authorization", "x-api-key"})


def is_call(request: Any) -> bool:
    """Whether a request may be a call: only then is its body read here."""
    if request.method == "GET":
        return bool(request.url.params.get("stream") == "true")
    return request.method == "POST" and call_at("POST", request.url.path) is not None


def call_at(method: str, path: str) -> tuple[str, str] | None:
    """The dialect's part of a path, and the dialect: of a call, or of a Responses answer that is read again."""
    for suffix, dialect in PATHS.items():
        if method == "POST" and path.endswith(suffix):
            return suffix, dialect
    if method == "GET" and "/responses/" in path:
        return "/responses/", "openai.responses"
    return None


def root_end(url: str, suffix: str) -> int:
    """Where the edge's address ends in a URL, and the path behind ``/v1`` begins."""
    return url.partition("?")[0].rindex(suffix)


def call_name(url: str, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """The call's name in the memory of keys."""
    return name_of(url, "\n".join(value for name, value in headers if name in _SECRETS), body)


def wants_stream(body: bytes) -> bool:
    """Whether a call asks for a stream."""
    try:
        asked = json.loads(body)
    except ValueError:
        return False
    return isinstance(asked, dict) and asked.get("stream") is True
