"""The check after the last content: are tool arguments, and content that was asked for as JSON, whole and as asked for?

One word for a generation: ``ok``, ``malformed`` (no more text could complete it, or it breaks its schema), ``truncated``
(cut off, more text could), ``not_applicable`` (no tool call, and no JSON asked for). None: longer than
``CHECKED_CHARS_MAX``, or its schema takes too long, so nobody looked at all of it. The provider's text is judged, never
mended. A proper answer is judged in slices (``judge``), what was cut off at once and as far as that goes. Pure. Before:
``capture`` hands it the parts. After: ``judging``, ``ending``.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from edge.attempts.schema_check import (
    VISITS_AT_ONCE,
    VISITS_MAX,
    has_plain_tools,
    keeps_to,
    schema_of_content,
    schemas_of_tools,
)
from edge.dialects.partial_json import begins_json
from edge.dialects.reading import NotJson, fields, load
from schemas.events import Canonical, PartType

CHECKED_CHARS_MAX = 262_144
"""All texts of one answer together: some tens of milliseconds at the worst (numbers only, cut off), usually one."""

OK, MALFORMED, TRUNCATED, NOT_APPLICABLE = "ok", "malformed", "truncated", "not_applicable"
SLICE_CHARS = 32_768
"""Texts of one slice: well below a millisecond, a single long text aside."""
CALL_CHARS = 100
"""What a call costs beside its text, counted as characters."""
Call = tuple[int, int | None, int | None]
Words = Generator[None, None, str | None]
_JSON_FORMATS = frozenset({"json_object", "json_schema"})


def json_wanted(body: Mapping[str, Any]) -> bool:
    """Whether a client's request asks for content that is JSON, in any of the dialects' words for it."""
    asked = (
        body.get("response_format"),
        fields(body.get("text")).get("format"),
        body.get("output_format"),
        fields(body.get("output_config")).get("format"),
    )
    return any(_is_json_format(format_) for format_ in asked)


def _is_json_format(format_: Any) -> bool:
    kind = fields(format_).get("type")
    return isinstance(kind, str) and kind in _JSON_FORMATS


class OutputCheck:
    """What must be JSON in one attempt's answer, collected as it comes.

    Args:
        body: the client's request: whether it asks for JSON, and by which schemas.
    """

    def __init__(self, body: Mapping[str, Any] | None = None) -> None:
        self._body = body or {}
        self.wants_json = json_wanted(self._body)
        self._texts: dict[int, list[str]] = {}
        self._calls: dict[Call, list[str]] = {}
        self._names: dict[Call, str] = {}
        self._chars = 0
        self._refused = False
        self._judged = False
        self._word: str | None = None

    def note(self, part: Canonical) -> None:
        """Take one part of the answer; a call's first may have its name and nothing else."""
        if part.type is PartType.TOOL_CALL:
            call = (part.choice_index, part.block_index, part.tool_index)
            self._keep(self._calls.setdefault(call, []), part.text)
            if part.name is not None:
                self._names.setdefault(call, part.name)
        elif part.type is PartType.REFUSAL:
            self._refused = True
        elif self.wants_json and part.type is PartType.TEXT:
            self._keep(self._texts.setdefault(part.choice_index, []), part.text)

    def result(self, *, ended_properly: bool) -> str | None:
        """The word for all of it: the worst of its texts.

        Args:
            ended_properly: whether the protocol's own end came; without it arguments that are missing were cut off, and
                an answer that had not begun is none.
        """
        if self._judged and ended_properly:
            return self._word
        words = self._words(VISITS_AT_ONCE, ended_properly=ended_properly)
        while True:
            try:
                next(words)
            except StopIteration as over:
                found: str | None = over.value
                return found

    def judge(self) -> Iterator[None]:
        """Judge a proper answer, one slice of about a millisecond a step; ``result`` has the word behind the last."""
        self._word = yield from self._words(VISITS_MAX, ended_properly=True)
        self._judged = True

    def give_up(self) -> None:
        """Nobody looks any more: there is no word."""
        self._judged, self._word = True, None

    def _words(self, visits_max: int, *, ended_properly: bool) -> Words:
        if self._chars > CHECKED_CHARS_MAX:
            return None
        words, chars = set[str | None](), 0
        for text, schema, empty in self._to_judge(ended_properly=ended_properly):
            chars += len(text) + CALL_CHARS
            if chars > SLICE_CHARS:
                chars = 0
                yield
            words.add((yield from _word(text, schema, visits_max, empty)))
        return next((word for word in (MALFORMED, TRUNCATED, None, OK) if word in words), NOT_APPLICABLE)

    def _to_judge(self, *, ended_properly: bool) -> Iterator[tuple[str, Any, str]]:
        """Each text, its schema, and what it is without anything in it (a call without arguments is whole)."""
        schemas = schemas_of_tools(self._body) if self._calls else {}
        plain = bool(self._calls) and has_plain_tools(self._body)
        for call, fragments in self._calls.items():
            name = self._names.get(call, "")
            if plain and name not in schemas:
                continue
            yield "".join(fragments), schemas.get(name), OK if ended_properly else TRUNCATED
        if self.wants_json and not self._refused:
            texts = ["".join(fragments) for fragments in self._texts.values()]
            for text in texts or ([""] if ended_properly and not self._calls else []):
                yield text, schema_of_content(self._body), TRUNCATED

    def _keep(self, fragments: list[str], text: str) -> None:
        self._chars += len(text)
        if self._chars <= CHECKED_CHARS_MAX:
            fragments.append(text)


def _word(text: str, schema: Any, visits_max: int, empty: str) -> Words:
    """What one text is; None where that would take too long to say."""
    if not text.strip():
        return empty
    try:
        value = load(text)
    except NotJson:
        return TRUNCATED if begins_json(text) else MALFORMED
    keeps = yield from keeps_to(value, schema, visits_max)
    return {True: OK, False: MALFORMED, None: None}[keeps]
