"""Reading a provider's JSON without trusting its shape: what every dialect needs.

A wrong type is read as absent, never raised: the event goes to the client as it came, and only what could be understood
becomes canonical. Text in the log is Unicode; half a surrogate pair, which JSON's escapes can carry, is not, so it is
replaced in what was understood and kept in ``raw``. Pure. Before: ``sse``. After: ``openai_chat_stream``.
"""

import json
from collections.abc import Iterable
from typing import Any

import orjson

FACT_CHARS_MAX = 512
"""Ids, model names and finish words stand on the terminal record, which is bounded."""
REPORTS_MAX = 64
"""Usage reports that do not contain one another: no provider sends more than a few."""


_WRITER_LEVELS = 254
NESTED_MAX = 200
"""Levels of a value: more could be read but not written again, by ``orjson``, inside an answer of ours."""
TOO_DEEP = f"a value with more than {NESTED_MAX} levels"


class NotJson(ValueError):
    """The text is no JSON value."""


def no_constant(word: str) -> None:
    """Refuse NaN and its like: a parser's extension, no JSON."""
    raise ValueError(f"{word} is no JSON")


def _number(digits: str) -> int | float:
    """An integer, or a float beyond 64 bits: what the fast parser makes of it, and what can be written again."""
    return int(digits) if len(digits) < DIGITS_MAX else float(digits)


DIGITS_MAX = 19
HIGH_FIRST, HIGH_LAST = "\ud800", "\udbff"
_DECODER = json.JSONDecoder(parse_constant=no_constant, parse_int=_number)


def load(text: str) -> Any:
    """One JSON value, its texts valid Unicode; NotJson for anything else, and for a text that holds several.

    Also for one that is nested deeper than could be written again.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = unicode_of(load_as_sent(text))
    if too_deep(value, len(text)):
        raise NotJson(TOO_DEEP)
    return value


def too_deep(value: Any, size: int) -> bool:
    """Whether a value has more than ``NESTED_MAX`` levels; ``size`` is that of the text which it was read from."""
    if size < 2 * NESTED_MAX:  # a level is at least two characters
        return False
    wrapped = value
    for _ in range(_WRITER_LEVELS - NESTED_MAX):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except TypeError:  # too deep, or what the fast writer does not know: half a surrogate pair
        level = [value]
        for _ in range(NESTED_MAX):
            level = [inner for item in level for inner in _inside(item)]
        return any(isinstance(item, dict | list) for item in level)
    return False


def _inside(item: Any) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()


def load_as_sent(text: str) -> Any:
    """One JSON value, halves of surrogate pairs kept: the other half may be in the next event. NotJson as above."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        value, end = load_at(text, 0)
    if text[end:].strip():
        raise NotJson("several values")
    return value


def load_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at a position, as it was sent, and where it ends; NotJson where there is none."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def unicode_of(value: Any) -> Any:
    """The same value with every text valid Unicode: surrogate pairs joined, halves replaced by U+FFFD."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, list):
        return [unicode_of(item) for item in value]
    if isinstance(value, dict):
        return {unicode_of(key): unicode_of(item) for key, item in value.items()}
    return value


class Halves:
    """Joins text that was cut inside a surrogate pair, half of it in one event and half in the next.

    A half at a fragment's end waits for the next fragment of the same text.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[Any, ...], str] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def whole(self, place: tuple[Any, ...], text: str) -> str:
        """The fragment with a waiting half before it, and without a half at its end."""
        text = self._waiting.pop(place, "") + text
        if text and HIGH_FIRST <= text[-1] <= HIGH_LAST:
            self._waiting[place] = text[-1]
            text = text[:-1]
        return text


def items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def fields(value: Any) -> dict[str, Any]:
    """An object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def word(value: Any) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def fact(value: Any) -> str | None:
    """A text that is not empty, cut to what a terminal may carry."""
    return value[:FACT_CHARS_MAX] if isinstance(value, str) and value else None


def index_of(value: Any) -> int:
    """A choice's index; 0 where it is none that could be."""
    return value if type(value) is int and 0 <= value < 1 << 31 else 0


def keep_report(reports: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Take a usage report; one that says at least as much as the report before it stands for both.

    Totals that run along on every chunk leave one report this way, and the largest value of each field is the same.
    """
    if reports and _covers(new, reports[-1]):
        reports[-1] = new
        return
    reports.append(new)
    if len(reports) > REPORTS_MAX:
        del reports[0]


def _covers(new: dict[str, Any], old: dict[str, Any]) -> bool:
    return all(_at_least(new.get(key), value) for key, value in old.items())


def _at_least(new: Any, old: Any) -> bool:
    if old is None:
        return True
    if isinstance(old, dict):
        return isinstance(new, dict) and _covers(new, old)
    if type(old) is int:
        return type(new) is int and new >= old >= 0
    return bool(new == old)
