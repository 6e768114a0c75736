"""``sequence_number`` in an event's JSON: the one field of a provider that is ours.

Only the number's own characters change; an event without one gets it as its last field. Pure. Before: ``reading``.
After: ``openai_responses``.
"""

import re

from edge.dialects.reading import NotJson, load_at

_FIELD = re.compile(r'"sequence_number"[ \t\n\r]*:[ \t\n\r]*([0-9]+)')
_SPACE = re.compile(r"[ \t\n\r]*")
_BETWEEN = re.compile(r"[ \t\n\r,]*")


def at_seq(raw: str, seq: int) -> str:
    """The JSON object with our number in it; text that is no object is left as it is."""
    found = _FIELD.search(raw)
    if (
        found is not None and raw[0] == "{" and raw.count("{", 0, found.start()) == 1
    ):  # nothing nested before it
        start, end = found.span(1)
        return f"{raw[:start]}{seq}{raw[end:]}"
    try:
        spans = _spans(raw)
    except (ValueError, IndexError):
        return raw
    if not spans:
        head = raw.rstrip()[:-1].rstrip()
        return f'{head}{"" if head.endswith("{") else ","}"sequence_number":{seq}}}'
    for start, end in reversed(spans):
        raw = f"{raw[:start]}{seq}{raw[end:]}"
    return raw


def _spans(raw: str) -> list[tuple[int, int]]:
    """Where the values of the object's own ``sequence_number`` stand; ValueError or IndexError where it is none."""
    spans = []
    at = _end(_SPACE, raw, 0)
    if raw[at] != "{":
        raise NotJson("no object")
    at = _end(_BETWEEN, raw, at + 1)
    while raw[at] != "}":
        key, at = load_at(raw, at)
        start = _end(_SPACE, raw, _end(_SPACE, raw, at) + 1)
        _, end = load_at(raw, start)
        if key == "sequence_number":
            spans.append((start, end))
        at = _end(_BETWEEN, raw, end)
    return spans


def _end(space: re.Pattern[str], raw: str, at: int) -> int:
    found = space.match(raw, at)
    return at if found is None else found.end()
