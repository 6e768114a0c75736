r"""A provider's API key in the provider's own words: taken out before anything of them is kept, told or logged.

Some providers say the key that they refuse, some echo a request's head into a stream. The key is looked for in whole
events and whole bodies, as it is and as JSON may write it (``\u002d``, ``\/``). A key that is a word, or shorter than
``SECRET_CHARS_MIN``, is a placeholder for a server that asks for none: answers may hold it, so it is left in them, and
taken out of refusals alone. Pure. Before: ``sse``, ``upstream``. After: ``capture``.
"""

import functools
import re

from edge.sse import SseEvent
from schemas.settings import Provider

MASKED = "[key]"
SECRET_CHARS_MIN = 8
_SHORT = '/"\\'
"""What JSON may write with a backslash before it."""


class Mask:
    """Takes one key out; None: there is none. The hot path pays two searches of a text."""

    def __init__(self, key: str | None) -> None:
        self._key = key or None
        is_secret = key is not None and len(key) >= SECRET_CHARS_MIN and not key.isalpha()
        self._in_streams = key if is_secret else None
        letters = sorted(set(key or ""))
        self._whole = re.compile("".join(f"(?:{re.escape(c)}|{_escaped(c)})" for c in key or ""))
        self._escapes = re.compile("|".join(map(_escaped, letters)))  # whether it may be written so at all

    def events(self, events: list[SseEvent]) -> list[SseEvent]:
        """A stream's events without the key."""
        key = self._in_streams
        if key is None:
            return events
        for event in events:
            name, data = event.event, event.data
            if (
                key in data
                or ("\\" in data and self._escapes.search(data) is not None)
                or (name is not None and key in name)
            ):
                return [self._event(event) for event in events]
        return events

    def text(self, text: str) -> str:
        """A refusal or a header without the key."""
        return text if self._key is None else self._whole.sub(_in_place, text)

    def body(self, body: bytes) -> bytes:
        """A body that is no stream without the key."""
        if self._key is None:
            return body
        text = body.decode("latin-1")  # byte by byte: what is no UTF-8 stays as it came
        masked = self.text(text)
        return masked.encode("latin-1")

    def _event(self, event: SseEvent) -> SseEvent:
        name = None if event.event is None else self.text(event.event)
        return event._replace(event=name, data=self.text(event.data))


def _escaped(letter: str) -> str:
    r"""A pattern of the ways in which JSON may escape a character: ``\u00xx``, and with a backslash where it has that."""
    code = "".join(
        digit if digit.isdigit() else f"[{digit}{digit.upper()}]" for digit in f"{ord(letter):04x}"
    )
    return rf"\\u{code}" + (rf"|\\{re.escape(letter)}" if letter in _SHORT else "")


def _in_place(found: re.Match[str]) -> str:
    r"""The mask. ``\nkey-1`` is a line's end and ``key-1``, no key that begins with n: that stays as it is."""
    text, at = found.string, found.start()
    while at and text[at - 1] == "\\":
        at -= 1
    return found[0] if (found.start() - at) % 2 else MASKED


NO_MASK = Mask(None)


def mask_of(provider: Provider) -> Mask:
    """What takes a provider's key out."""
    return NO_MASK if provider.api_key is None else _mask(provider.api_key.get_secret_value())


@functools.lru_cache(maxsize=256)  # compiling takes as long as a hundred events
def _mask(key: str) -> Mask:
    return Mask(key)
