"""What a client shows when it comes back, what it asks for by it, and what it may be answered. Pure.

Before: the request's headers and query. After: ``resume`` answers it.
"""

from typing import NamedTuple

from edge.follow import Follower
from edge.reading.archive_rows import Found
from schemas.cursor import Cursor, CursorMalformed, parse
from schemas.settings import ApiKey

AFTER_LAST_ID, FROM_START = "after-last-id", "from-start"


class ModeUnknown(ValueError):
    """X-Resume-Mode says something else than the two that there are."""


class Presented(NamedTuple):
    """What the client showed: ``last_event_id`` from the header, ``after`` from the query, ``token`` beside a plain id.

    ``mode`` is X-Resume-Mode: ``from-start`` plays it all again, whatever the id says; the id must be good all the same.
    """

    last_event_id: str | None = None
    after: str | None = None
    token: str | None = None
    mode: str | None = None


class Ask(NamedTuple):
    """Who asks for which generation, with what. ``plain_allowed``: a seq without signature may do, for the owner's key."""

    caller: ApiKey
    generation_id: str
    cursor: Cursor | None
    plain_allowed: bool
    from_start: bool

    @property
    def behind(self) -> Cursor | None:
        """The cursor behind which the stream is to begin; None: at its beginning."""
        return None if self.from_start else self.cursor

    @property
    def next_seq(self) -> int:
        """The first seq that is wanted."""
        return 0 if self.behind is None else self.behind.seq + 1


def ask_of(caller: ApiKey, generation_id: str, shown: Presented) -> Ask:
    """What is asked for; raises CursorMalformed or ModeUnknown."""
    cursor = read_cursor(shown)
    if shown.mode not in (None, AFTER_LAST_ID, FROM_START):
        raise ModeUnknown(f"X-Resume-Mode must be {AFTER_LAST_ID} or {FROM_START}")
    return Ask(caller, generation_id, cursor, shown.last_event_id is None, shown.mode == FROM_START)


def read_cursor(shown: Presented) -> Cursor | None:
    """The cursor of a request: Last-Event-ID, else ``after``, else the token; a plain seq takes its signature from that.

    Raises CursorMalformed; an empty Last-Event-ID is no cursor either, never "from the beginning", and neither is a token
    that stands alone and says no seq.
    """
    said = {} if shown.token is None else dict(pair.partition("=")[::2] for pair in shown.token.split("&"))
    text = shown.last_event_id if shown.last_event_id is not None else shown.after
    if text is None:
        return None if shown.token is None else parse(said.get("seq", ""))._replace(sig=said.get("sig", ""))
    cursor = parse(text)
    if cursor.sig is None and said.get("seq") == str(cursor.seq):
        return cursor._replace(sig=said.get("sig"))
    return cursor


class Refusal(NamedTuple):
    """No stream: an HTTP status and a code. ``first_available_seq`` where one is known (410)."""

    status: int
    code: str
    first_available_seq: int | None = None


NOT_FOUND = Refusal(404, "not_found")
NOT_GOOD = Refusal(401, "cursor_invalid")
EXPIRED = Refusal(410, "resume_expired")
ERASED = Refusal(410, "erased")


def unreadable(found: Found) -> Refusal | None:
    """Why the archive gives nothing of what it knows: forgotten, or without the text that was streamed."""
    if found.erased:
        return ERASED
    return None if found.readable else EXPIRED


class Owner(NamedTuple):
    """Whose generation it is, by its own records."""

    tenant: str
    key_id: str
    dialect: str


class Opened(NamedTuple):
    """A stream may begin."""

    follower: Follower
    tenant: str
    key_id: str
    dialect: str
    resumed_from: int | None


__all__ = [
    "ERASED",
    "EXPIRED",
    "NOT_FOUND",
    "NOT_GOOD",
    "Ask",
    "CursorMalformed",
    "ModeUnknown",
    "Opened",
    "Owner",
    "Presented",
    "Refusal",
    "ask_of",
    "read_cursor",
    "unreadable",
]
