"""What ends a stream, in each dialect: the terminal, and the error frames that are none.

Pure. Before: ``frames``. After: ``advice``.

A numbered frame that is the protocol's own end, or its error, is the terminal: nothing follows it. An error frame
without an id is the edge's word about this connection only: ``log_unavailable`` is asked again, everything else is the
end of what can be had.
"""

import json
import re
from typing import Any, NamedTuple

from tokentrail_client.frames import Frame

NATIVE = "native"
PATHS = {
    "/chat/completions": "openai.chat",
    "/messages": "anthropic.messages",
    "/responses": "openai.responses",
}
"""Where a call is sent below ``/v1``, and the dialect that it is made in."""
_ENDS = {
    "anthropic.messages": {"message_stop"},
    "openai.responses": {"response.completed", "response.incomplete", "response.failed"},
    NATIVE: {"message_end"},
}
_ERRORS = {"anthropic.messages": {"error"}, "openai.responses": {"error"}, NATIVE: {"generation_error"}}
_FINISH = {
    "openai.chat": re.compile(r'"finish_reason"\s*:\s*"'),
    "anthropic.messages": re.compile(r'"stop_reason"\s*:\s*"'),
}
ASK_AGAIN = frozenset({"log_unavailable"})
"""Codes of error frames without an id after which the log has more to say."""


class Ending(NamedTuple):
    """How a stream ends. ``error`` is None for a proper end; ``terminal``: the log's own, not this connection's."""

    terminal: bool
    error: "Fault | None" = None

    @property
    def asks_again(self) -> bool:
        """Whether the stream goes on on another connection."""
        return not self.terminal and self.error is not None and self.error.code in ASK_AGAIN


class Fault(NamedTuple):
    """An error as a dialect says it."""

    code: str
    message: str
    retryable: bool = False


def ending_of(dialect: str, frame: Frame) -> Ending | None:
    """How this frame ends its stream; None where it does not."""
    if frame.event in _ENDS.get(dialect, ()) or (dialect == "openai.chat" and frame.data == "[DONE]"):
        return Ending(terminal=True) if frame.seq is not None else None
    named = '"error"' in frame.data if dialect == "openai.chat" else frame.event in _ERRORS.get(dialect, ())
    fault = fault_of(frame.data) if named else None
    return None if fault is None else Ending(frame.seq is not None, fault)


def is_finish(dialect: str, frame: Frame) -> bool:
    """Whether the model has said its last word here, although the protocol's end is still to come."""
    if dialect == "anthropic.messages" and frame.event != "message_delta":
        return False
    finish = _FINISH.get(dialect)
    return finish is not None and finish.search(frame.data) is not None


def fault_of(text: str | bytes) -> Fault | None:
    """The error that a body or a frame's data tells, in any dialect; None where there is none."""
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):  # nested without end
        return None
    inner = (said.get("error") or (said if "code" in said else None)) if isinstance(said, dict) else None
    if not isinstance(inner, dict):
        return None
    code = inner.get("code") or inner.get("type") or "error"
    return Fault(str(code), str(inner.get("message") or ""), bool(inner.get("retryable")))


def code_of(status: int, body: bytes) -> str:
    """The code of a refusal: the edge's own, else its status."""
    fault = fault_of(body)
    return fault.code if fault else f"http_{status}"


def message_of(status: int, body: bytes) -> str:
    """What a refusal says to people."""
    fault = fault_of(body)
    return fault.message if fault and fault.message else f"the edge answered {status}"


def cut_refusal(status: int, why: str) -> bytes:
    """The body of a refusal of which only the head is known, as every dialect says one."""
    message = f"HTTP {status}, and what it says did not come whole: {why}"
    error = {"type": "refusal_cut", "code": "refusal_cut", "message": message}
    return json.dumps({"type": "error", "error": error}).encode()
