"""A question to an edge on behalf of an operator: with each known key in turn, its refusals in words.

A generation is visible to its own tenant only, and an operator of a development stack holds one key per tenant: the
one that sees it answers. Before this file: ``commands``, ``doctor``. After it: ``client``.
"""

from typing import Any

from compose.client import Answer, EdgeClient
from compose.target import KEY_NAME, Target
from schemas.errors import TokentrailError

_OK_BELOW = 300
_NOT_FOUND = 404
_UNAUTHORIZED = (401, 403)


class EdgeRefused(TokentrailError):
    """The edge answered with an error status."""


async def ask_edge(target: Target, method: str, path: str, body: Any = None) -> Answer:
    """The first good answer. Raises EdgeRefused with the edge's own words, or Unreachable."""
    address = target.edge  # where no stack runs that is the thing to say, not that a key is missing
    if not target.keys:
        raise EdgeRefused(f"An edge wants an API key: give --key or {KEY_NAME}.")
    last: Answer | None = None
    for key in target.keys:
        async with EdgeClient(address, key) as edge:
            answer = await edge.call(method, path, body)
        if answer.status < _OK_BELOW:
            return answer
        if last is None or answer.status not in (*_UNAUTHORIZED, _NOT_FOUND):
            last = answer
    assert last is not None  # noqa: S101 - there is at least one key
    raise EdgeRefused(_words(address, path, last))


def message_of(answer: Answer) -> str:
    """What an error body says, in whichever dialect."""
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    if isinstance(error, dict):
        return f"{error.get('code') or error.get('type') or ''}: {error.get('message', '')}".strip(": ")
    return answer.text.strip()[:500]


def _words(edge: str, path: str, answer: Answer) -> str:
    said = f"{edge}{path} answered {answer.status}: {message_of(answer).rstrip('.')}."
    if answer.status == _NOT_FOUND:
        return f"{said} Check the id, or give the key of its tenant with --key."
    if answer.status in _UNAUTHORIZED:
        return f"{said} Give another key with --key or {KEY_NAME}."
    return said
