"""What a JSON text that was cut off says so far: the arguments of a tool call whose answer ended in the middle.

The same as the SDKs' accumulators show: containers are closed where they were left, an unfinished string, number, word or
member is left out. ``begins_json`` says whether more text could complete it at all. Pure. Before: ``reading``. After:
``anthropic_messages_body``, ``output_check``.
"""

import re
from typing import Any

from edge.dialects.reading import NESTED_MAX, NotJson, load

_TOKEN = re.compile(
    r'[ \t\n\r]*(?:(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*")|(?P<scalar>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?'
    r"(?![0-9.eE+-])|true|false|null)|(?P<mark>[{}\[\],:]))"
)
_BEGUN_TEXT = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*(?:\\(?:u[0-9a-fA-F]{0,3})?)?'
)
_BEGUN_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?")
_WORDS = ("true", "false", "null")
_CLOSE = {"{": "}", "[": "]"}
_NEXT = {
    ("first", "{", "text"): "colon",
    ("key", "{", "text"): "colon",
    ("colon", "{", ":"): "value",
    ("comma", "{", ","): "key",
    ("comma", "[", ","): "value",
}


def load_partial(text: str) -> Any:
    """The value of a JSON text of which only the beginning may be there; NotJson where nothing can be said."""
    try:
        return load(text)
    except NotJson:
        return load(_closed(text))


def begins_json(text: str) -> bool:
    """Whether this is the beginning of a JSON text, the whole of one included: whether more text could make it one."""
    stack: list[str] = []
    at, want, done = 0, "value", False
    while not done and (found := _TOKEN.match(text, at)):
        at = found.end()
        want = _after(found.group("mark") or found.lastgroup or "", want, stack)
        if not want:
            return False
        done = want == "comma" and not stack
    rest = text[at:].strip(" \t\n\r")
    if done or not rest:
        return not rest
    inside = stack[-1] if stack else ""
    if want == "key" or (want == "first" and inside == "{"):
        return _BEGUN_TEXT.fullmatch(rest) is not None
    if want != "value" and not (want == "first" and inside == "["):
        return False
    begun = _BEGUN_TEXT.fullmatch(rest) or _BEGUN_NUMBER.fullmatch(rest)
    return begun is not None or any(word.startswith(rest) for word in _WORDS)


def _closed(text: str) -> str:
    """The longest beginning that is whole once its containers are closed."""
    stack: list[str] = []
    whole_to, closers = 0, ""
    at, want = 0, "value"
    while found := _TOKEN.match(text, at):
        at = found.end()
        want = _after(found.group("mark") or found.lastgroup or "", want, stack)
        if not want or len(stack) > NESTED_MAX:
            break
        if want in ("comma", "first"):
            whole_to, closers = at, "".join(_CLOSE[opened] for opened in reversed(stack))
        if not stack:
            break
    return text[:whole_to] + closers


def _after(what: str, want: str, stack: list[str]) -> str:
    """What may come behind a token; "" where the token itself may not stand here.

    ``value``, ``key``, ``colon``, ``comma`` (or the container's end), ``first`` (of a container, or its end).
    """
    inside = stack[-1] if stack else ""
    if want == "value" or (want == "first" and inside == "["):
        if what in _CLOSE:
            stack.append(what)
            return "first"
        if what in ("text", "scalar"):
            return "comma"
    if want in ("comma", "first") and what == _CLOSE.get(inside):
        stack.pop()
        return "comma"
    return _NEXT.get((want, inside, what), "")
