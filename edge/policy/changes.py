"""A request with another prompt: shortened, asked again for its JSON, or to go on where an answer broke off. Pure.

Only what a key allows, or a call asks for, is ever changed, and the client is told (``X-Tokentrail-Changed-Inputs``). A
function gives None where the change is not possible, and then nothing is. All three dialects keep their conversation in
one list of messages, so one set of functions serves them. Before: ``chain``. After: ``announcing``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from edge.dialects import BadRequest, ClientRequest, Dialect
from edge.dialects.reading import fields
from schemas.usage import tokens_of_bytes

REPAIR_PROMPT_VERSION = "1"
_REPAIR = (
    "The answer above is not valid JSON ({why}). Give the same answer again as valid JSON only: no other text, "
    "no code fence."
)
_CONTINUE = (
    "Your answer above was cut off by a broken connection. Go on exactly where it stops. Repeat nothing of it and do "
    "not comment on the interruption."
)
_SYSTEM = frozenset({"system", "developer"})


class Shrunk(NamedTuple):
    """A shorter request. ``dropped``: how many messages it is short of."""

    request: ClientRequest
    dropped: int
    budget_tokens: int


def shrink(dialect: Dialect, request: ClientRequest, budget_tokens: int) -> Shrunk | None:
    """Without its oldest turns, until its messages are within the budget (bytes/4); None where no turn can go.

    A turn begins with what a person said and ends before they speak again, so no tool's answer loses its call. System
    messages and the last turn always stay.
    """
    messages = _messages(request)
    if messages is None:
        return None
    sizes = [tokens_of_bytes(len(orjson.dumps(message))) for message in messages]
    turns = _turns(messages)
    excess, dropped = sum(sizes) - budget_tokens, set[int]()
    for turn in turns[:-1]:
        if excess <= 0:
            break
        dropped.update(turn)
        excess -= sum(sizes[i] for i in turn)
    if not dropped:
        return None
    kept = [message for i, message in enumerate(messages) if i not in dropped]
    changed = _with_messages(dialect, request, kept)
    return None if changed is None else Shrunk(changed, len(dropped), budget_tokens)


def repair(dialect: Dialect, request: ClientRequest, answer: str, why: str) -> ClientRequest | None:
    """Show the model its answer and ask for valid JSON."""
    return _said_on(dialect, request, answer, _REPAIR.format(why=why))


def go_on(dialect: Dialect, request: ClientRequest, answer: str) -> ClientRequest | None:
    """Show the model what it said so far and ask for the rest."""
    return _said_on(dialect, request, answer, _CONTINUE)


def _said_on(dialect: Dialect, request: ClientRequest, answer: str, then: str) -> ClientRequest | None:
    messages = _messages(request)
    if messages is None or not answer.strip():
        return None
    more = [{"role": "assistant", "content": answer}, {"role": "user", "content": then}]
    return _with_messages(dialect, request, [*messages, *more])


def _key(body: Mapping[str, Any]) -> str:
    return "messages" if "messages" in body else "input"


def _messages(request: ClientRequest) -> list[Any] | None:
    found = request.body.get(_key(request.body))
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return found if isinstance(found, list) and found else None


def _with_messages(dialect: Dialect, request: ClientRequest, messages: list[Any]) -> ClientRequest | None:
    try:
        changed = dialect.request_of({**request.body, _key(request.body): messages})
    except BadRequest:
        return None
    return changed._replace(headers=request.headers, background=request.background)


def _turns(messages: list[Any]) -> list[list[int]]:
    """The positions of each turn; system messages, and what stands before the first turn, belong to none."""
    turns: list[list[int]] = []
    for i, message in enumerate(messages):
        if fields(message).get("role") in _SYSTEM:
            continue
        if _is_a_person(fields(message)):
            turns.append([i])
        elif turns:
            turns[-1].append(i)
    return turns


def _is_a_person(message: Mapping[str, Any]) -> bool:
    """Whether a user speaks, and not the result of a tool in a user's message (as Anthropic has it)."""
    if message.get("role") != "user":
        return False
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return not any(fields(block).get("type") == "tool_result" for block in blocks)
