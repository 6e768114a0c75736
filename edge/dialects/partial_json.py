"""What a JSON text that was cut off says so far: the arguments of a tool call whose answer ended in the middle.

The same as the SDKs' accumulators show: containers are closed where they were left, an unfinished string, number, word or
member is left out. ``begins_json`` says whether more text could complete it at all. Pure. Before: ``reading``. After:
``anthropic_messages_body``, ``output_check``.
"""

import json
import re
from typing import Any

from edge.dialects.reading import NESTED_MAX, NotJson, load, no_constant

_TOKEN = re.compile(
    r'[ \t\n\r]*(?:(?P<text>"(?:[^"\\\x00-\x1f]++|\\.)*+")|(?P<scalar>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?'
    r"(?![0-9.eE+-])|true|false|null)|(?P<mark>[{}\[\],:]))"
)
_BEGUN_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?")
_BEGUN_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,4})?")
_NUMBER_TAIL = re.compile(r"-?[0-9][0-9.eE+-]*$")
_NUMBER_CHARS = 400
"""A number is not longer; of one that is, its end decides."""
_TAIL_CHARS = 8
"""No token that the end of a text may cut off is longer, strings and numbers aside."""
_WORDS = ("true", "false", "null")
_BLANK = " \t\n\r"
_PROBE = json.JSONDecoder(parse_int=float, parse_constant=no_constant)
"""Numbers of any length are read without being understood."""
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
    """Whether this is the beginning of a JSON text, the whole of one included: whether more text could make it one.

    Decided by where a parser gives up: at the end, or in a token which the end cut off. What is nested too deep to be
    parsed counts as a beginning.
    """
    try:
        _, at = _PROBE.raw_decode(text, len(text) - len(text.lstrip(_BLANK)))
    except json.JSONDecodeError as error:
        return _is_cut(text, error.pos, error.msg)
    except RecursionError:
        return True
    except ValueError:  # a word that is no JSON
        return False
    return _is_cut(text, at, "")


def _is_cut(text: str, at: int, why: str) -> bool:
    """Whether nothing is wrong at a place but that the text ends there."""
    if why.startswith("Unterminated string"):
        return True
    if why.startswith("Invalid \\"):
        return _BEGUN_ESCAPE.fullmatch(text, text.rfind("\\", 0, at + 1)) is not None
    text = text.rstrip(_BLANK)
    rest = text[at : at + _TAIL_CHARS]
    if not rest or len(text) - at > len(rest):
        return not rest
    if why.startswith("Expecting value"):
        return rest == "-" or any(word.startswith(rest) for word in _WORDS)
    number = _NUMBER_TAIL.search(text, max(0, at - _NUMBER_CHARS))
    return number is not None and number.start() < at and _BEGUN_NUMBER.fullmatch(number.group()) is not None


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
