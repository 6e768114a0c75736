"""The cursor table: what a presented cursor is answered, before any byte of a stream.

One function, ``open_stream``, in the order of the table: can it be parsed (400), is the generation known and the
caller's (404, one body for both), is the signature good (401), is it the terminal (204), does it lie ahead (409), is
what follows still held (410); else a follower that stands behind the cursor. Before: ``find``. After: ``follow``,
``emit``.
"""

from typing import NamedTuple

from edge.clock import Clock
from edge.find import Located, at_hint, by_time
from edge.follow import Follower, Hole, OffsetGone
from edge.generation import Generation
from edge.log import EventLog
from edge.registry import Registry
from schemas.codec import Codec
from schemas.cursor import Cursor, CursorMalformed, parse, verify
from schemas.ids import is_uuid7
from schemas.settings import ApiKey, Settings

PRELOAD_EVENTS_MAX = 64
"""So much of a generation is read before the head, to find a hole while a status can still say so."""


class Refusal(NamedTuple):
    """No stream: an HTTP status and a code. ``first_available_seq`` where one is known (410)."""

    status: int
    code: str
    first_available_seq: int | None = None


class Opened(NamedTuple):
    """A stream may begin."""

    follower: Follower
    tenant: str
    key_id: str
    dialect: str
    resumed_from: int | None


class Presented(NamedTuple):
    """What the client showed: ``last_event_id`` from the header, ``after`` from the query, ``token`` beside a plain id."""

    last_event_id: str | None = None
    after: str | None = None
    token: str | None = None


class Desk:
    """Answers cursors.

    Args:
        settings: windows and secrets.
        log: where everything is.
        codec: the process's.
        registry: what runs here.
        clock: the process's.

    """

    def __init__(
        self, settings: Settings, log: EventLog, codec: Codec, registry: Registry, clock: Clock
    ) -> None:
        self._settings = settings
        self._log = log
        self._codec = codec
        self._registry = registry
        self._clock = clock
        self._secrets = [secret.get_secret_value().encode() for secret in settings.secrets.cursor]

    async def open_stream(self, caller: ApiKey, generation_id: str, shown: Presented) -> Opened | Refusal:
        """A follower behind the cursor, or why there is none. Raises LogAway."""
        try:
            cursor = read_cursor(shown)
        except CursorMalformed:
            return Refusal(400, "cursor_invalid")
        if not is_uuid7(generation_id):
            return Refusal(404, "not_found")
        local = self._registry.get(generation_id)
        if local is not None and local.start_offset is not None and not local.on_log:
            return await self._local(caller, local, cursor, shown)
        return await self._remote(caller, generation_id, cursor, shown)

    async def locate(self, generation_id: str, cursor: Cursor | None = None) -> Located | None:
        """Where the log has a generation: at the cursor's hint, else in the window of its id's time."""
        if cursor is not None and cursor.offset is not None:
            found = await at_hint(self._log, self._codec, generation_id, cursor)
            if found is not None:
                return found
        skew_ms = self._settings.resume.skew_s * 1000
        now_ms = self._clock.wall_us() // 1000
        return await by_time(self._log, self._codec, generation_id, skew_ms, now_ms)

    def follower(self, located: Located, next_seq: int, local: Generation | None = None) -> Follower:
        """A follower that begins at a located record."""
        event = located.event
        return Follower(
            self._log, self._codec, event.generation_id, located.partition, next_seq, located.offset, local
        )

    def _allowed(
        self, caller: ApiKey, generation_id: str, key_id: str, cursor: Cursor | None, shown: Presented
    ) -> bool:
        if cursor is None:
            return True
        if cursor.sig is None:
            return shown.last_event_id is None and caller.id == key_id
        return verify(self._secrets, generation_id, cursor, key_id)

    async def _local(
        self, caller: ApiKey, local: Generation, cursor: Cursor | None, shown: Presented
    ) -> Opened | Refusal:
        identity = local.identity
        if identity.tenant != caller.tenant:
            return Refusal(404, "not_found")
        if not self._allowed(caller, local.id, identity.key_id, cursor, shown):
            return Refusal(401, "cursor_invalid")
        if cursor is not None:
            terminal = local.terminal.event.seq if local.terminal is not None else None
            if cursor.seq == terminal:
                return Refusal(204, "ended")
            highest = local.window_first_seq + len(local.window) - 1
            if cursor.seq > highest and (cursor.sig is None or terminal is not None):
                return Refusal(409, "cursor_ahead")
        next_seq = 0 if cursor is None else cursor.seq + 1
        offset = local.start_offset or 0
        follower = Follower(self._log, self._codec, local.id, identity.partition, next_seq, offset, local)
        return Opened(
            follower, identity.tenant, identity.key_id, identity.dialect, cursor.seq if cursor else None
        )

    async def _remote(
        self, caller: ApiKey, generation_id: str, cursor: Cursor | None, shown: Presented
    ) -> Opened | Refusal:
        located = await self.locate(generation_id, cursor)
        if located is None and cursor is not None and verify(self._secrets, generation_id, cursor, caller.id):
            return Refusal(410, "resume_expired")  # we gave this id out: there was such a generation
        if located is None or located.event.tenant != caller.tenant:
            return Refusal(404, "not_found")
        event = located.event
        if not self._allowed(caller, generation_id, event.key_id, cursor, shown):
            return Refusal(401, "cursor_invalid")
        follower = self.follower(located, 0 if cursor is None else cursor.seq + 1)
        refusal = await self._read_ahead(follower, cursor)
        if refusal is not None:
            follower.close()
            return refusal
        return Opened(follower, event.tenant, event.key_id, event.dialect, cursor.seq if cursor else None)

    async def _read_ahead(self, follower: Follower, cursor: Cursor | None) -> Refusal | None:
        """Read to behind the cursor; what stands in the way of a stream is found while a status can say so.

        What lies before the cursor may be gone: only what follows it must be held.
        """
        _, end = await self._log.bounds(follower.partition)
        try:
            await follower.preload(PRELOAD_EVENTS_MAX)
        except Hole as hole:
            return Refusal(410, "resume_expired", hole.first_available_seq)
        except OffsetGone:
            return Refusal(410, "resume_expired")
        if cursor is None:
            return None
        follower.skip_to(cursor.seq)  # an error that ended it earlier is a terminal for everyone
        if follower.ended:
            return Refusal(204, "ended") if follower.seen_seq == cursor.seq else Refusal(409, "cursor_ahead")
        nothing_there = follower.seen_seq < cursor.seq and follower.caught_up and follower.position >= end
        return Refusal(409, "cursor_ahead") if nothing_there and cursor.sig is None else None


def read_cursor(shown: Presented) -> Cursor | None:
    """The cursor of a request: Last-Event-ID, else ``after``; a plain seq takes its signature from the token.

    Raises CursorMalformed; an empty Last-Event-ID is no cursor either, never "from the beginning".
    """
    text = shown.last_event_id if shown.last_event_id is not None else shown.after
    if text is None:
        return None
    cursor = parse(text)
    if cursor.sig is None and shown.token is not None:
        fields = dict(pair.partition("=")[::2] for pair in shown.token.split("&"))
        if fields.get("seq") == str(cursor.seq):
            return cursor._replace(sig=fields.get("sig"))
    return cursor
