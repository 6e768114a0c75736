"""The cursor table: what a presented cursor is answered, before any byte of a stream.

One function, ``open_stream``, in the order of the table: can it be parsed (400), is the generation known and the
caller's (404, one body for both), is the signature good (401), is it forgotten (410), is it the terminal (204), does it
lie ahead (409), is what follows still held (410); else a follower that stands behind the cursor. Memory is asked first,
then the log, then the archive: each only where the one before does not hold what is wanted. One that does not answer is
never taken for one that holds nothing. Before: ``find``, ``past``. After: ``follow``, ``emit``.
"""

from collections.abc import Callable

from edge.admission.seats import Seats
from edge.clock import Clock
from edge.configured import Configured
from edge.follow import Follower, Hole, LogSilent, OffsetGone
from edge.generation import Generation
from edge.log import EventLog, LogAway
from edge.reading.archive import Archive
from edge.reading.find import Located
from edge.reading.history import History, read_history, read_past
from edge.reading.past import Past, Pasts
from edge.reading.presented import (
    ERASED,
    EXPIRED,
    NOT_FOUND,
    NOT_GOOD,
    Ask,
    CursorMalformed,
    ModeUnknown,
    Opened,
    Owner,
    Presented,
    Refusal,
    ask_of,
    read_cursor,
    unreadable,
)
from edge.reading.readings import Readings
from edge.reading.searches import Places
from edge.registry import Registry
from schemas.codec import Codec
from schemas.cursor import Cursor
from schemas.ids import is_uuid7
from schemas.records import ForgottenEntry
from schemas.settings import ApiKey, Settings
from schemas.signing import Signing

__all__ = ["Desk", "Opened", "Presented", "Refusal", "read_cursor"]

PRELOAD_EVENTS_MAX = 16
"""So much of a generation is read before the head, to find a hole while a status can still say so. Few: in a busy partition
each further range that this takes is a request that the first event waits for."""


class Desk:
    """Answers cursors.

    Args:
        settings: windows and secrets.
        log: where everything is.
        codec: the process's.
        registry: what runs here.
        clock: the process's.
        archive: what the log does not hold any more; None where there is none.
        configured: what is forgotten on request.
        key_ids: the ids of a tenant's keys.

    """

    def __init__(
        self,
        settings: Settings,
        log: EventLog,
        codec: Codec,
        registry: Registry,
        clock: Clock,
        archive: Archive | None = None,
        configured: Configured | None = None,
        key_ids: Callable[[str], set[str]] = lambda _: set(),
    ) -> None:
        self._key_ids = key_ids
        self._log = log
        self._codec = codec
        self._registry = registry
        self._clock = clock
        self._pasts = Pasts(archive, log, codec, settings)
        self._configured = configured
        self.readings = Readings(settings.limit)
        self.seats = Seats(settings.limit)
        self._signing = Signing(settings.secrets.cursor)
        self.locate = Places(log, codec, clock, settings.resume.skew_s * 1000).locate

    async def open_stream(self, caller: ApiKey, generation_id: str, shown: Presented) -> Opened | Refusal:
        """A follower behind the cursor, or why there is none. Raises LogAway."""
        try:
            ask = ask_of(caller, generation_id, shown)
        except (CursorMalformed, ModeUnknown) as error:
            return Refusal(400, "bad_request" if isinstance(error, ModeUnknown) else "cursor_invalid")
        if (settled := self.settled(caller, generation_id, ask)) is not None:
            return settled
        local = self._registry.get(generation_id)
        own = local is not None and local.identity.tenant == caller.tenant
        if own and local is not None and local.start_offset is not None and not local.on_log:
            return self._local(ask, local)
        return await self._remote(ask)

    async def history(self, caller: ApiKey, generation_id: str) -> History | Refusal:
        """All that is held of a generation of the caller's tenant, by log and archive. Raises LogAway, Crowded."""
        if (settled := self.settled(caller, generation_id)) is not None:
            return settled
        found = await self._history(caller, generation_id)
        return self.settled(caller, generation_id) or found  # it may have been forgotten meanwhile

    async def _history(self, caller: ApiKey, generation_id: str) -> History | Refusal:
        held: History | None = None
        async with self.readings.turn(caller.tenant, generation_id):  # also to look for what is nowhere
            located = await self.locate(generation_id, tenant=caller.tenant)
            if located is not None:
                held = await read_history(self._log, self._codec, located)
        if held is None or not held.whole:
            past = await self._pasts.find(
                caller.tenant,
                generation_id,
                None,
                alone=held is None,
                will_do=held is not None and held.start is not None and held.complete,
            )
            if past is not None and (why := unreadable(past.found)) is not None:
                return why
            if past is not None:
                async with self.readings.turn(caller.tenant, generation_id):
                    held = await read_past(past, self._log, self._codec)
        if held is None or not held.records:
            return NOT_FOUND
        return ERASED if held.erased else held

    def follower(self, located: Located, next_seq: int) -> Follower:
        """A follower that begins at a located record."""
        return self._follower(located.event.generation_id, located.partition, next_seq, located.offset)

    def begun_here(self, generation: Generation) -> Follower:
        """A follower from nothing of a generation that begins on this edge."""
        partition, offset = generation.identity.partition, generation.start_offset or 0
        return self._follower(generation.id, partition, 0, offset, generation)

    def _follower(
        self,
        generation_id: str,
        partition: int,
        next_seq: int,
        offset: int,
        local: Generation | None = None,
        past: Past | None = None,
    ) -> Follower:
        return Follower(
            self._log,
            self._codec,
            generation_id,
            partition,
            next_seq,
            offset,
            local,
            past,
            lambda: self._is_forgotten(generation_id) is not None,
            self._registry.replays,
        )

    def _is_forgotten(self, generation_id: str) -> ForgottenEntry | None:
        return None if self._configured is None else self._configured.forgotten(generation_id)

    def settled(self, caller: ApiKey, generation_id: str, ask: Ask | None = None) -> Refusal | None:
        """What is answered without looking anywhere: for an id that cannot be, and for what is forgotten."""
        if not is_uuid7(generation_id):
            return NOT_FOUND
        forgotten = self._is_forgotten(generation_id)
        if forgotten is None or forgotten.tenant != caller.tenant:  # another's is looked for, and not found
            return None
        return ERASED if ask is None or self._allowed(ask, forgotten.key_id) else NOT_GOOD

    def _allowed(self, ask: Ask, key_id: str) -> bool:
        if ask.cursor is None:
            return True
        if ask.cursor.sig is None:
            return ask.plain_allowed and ask.caller.id == key_id
        return self._signing.verify(ask.generation_id, ask.cursor, key_id, self._clock.wall_us())

    def _given_out(self, ask: Ask) -> bool:
        """Whether an edge gave this id out to the caller's tenant: it is signed for one of its keys."""
        if ask.cursor is None:
            return False
        owners, now_us = self._key_ids(ask.caller.tenant) | {ask.caller.id}, self._clock.wall_us()
        good = [self._signing.verify(ask.generation_id, ask.cursor, owner, now_us) for owner in owners]
        return any(good)

    def _local(self, ask: Ask, local: Generation) -> Opened | Refusal:
        identity = local.identity
        if not self._allowed(ask, identity.key_id):
            return NOT_GOOD
        if (cursor := ask.behind) is not None:
            terminal = local.terminal.event.seq if local.terminal is not None else None
            if cursor.seq == terminal:
                return Refusal(204, "ended")
            highest = local.window_first_seq + len(local.window) - 1
            if cursor.seq > highest and (cursor.sig is None or terminal is not None):
                return Refusal(409, "cursor_ahead")
        offset = local.start_offset or 0
        follower = self._follower(local.id, identity.partition, ask.next_seq, offset, local)
        return _opened(follower, Owner(identity.tenant, identity.key_id, identity.dialect), ask)

    async def _remote(self, ask: Ask) -> Opened | Refusal:
        located = await self.locate(ask.generation_id, ask.behind, ask.caller.tenant)
        if located is None:  # nobody's and another's take one way to one answer
            return await self._archived(ask, None)
        event = located.event
        if not self._allowed(ask, event.key_id):
            return NOT_GOOD
        follower = self.follower(located, ask.next_seq)
        answer = await self._begun(follower, Owner(event.tenant, event.key_id, event.dialect), ask)
        lacks = answer.follower.jumped if isinstance(answer, Opened) else answer.code == EXPIRED.code
        if not lacks:
            return answer
        try:
            better = await self._archived(ask, answer)
        except BaseException:
            follower.close()
            raise
        if isinstance(answer, Opened) and isinstance(better, Refusal) and better.code == EXPIRED.code:
            return answer  # the archive has less of it than the log
        if better is not answer:
            follower.close()
        return better

    async def _archived(self, ask: Ask, answer: Opened | Refusal | None) -> Opened | Refusal:
        """What the archive makes of it. ``answer``: that of the log alone, None where it holds nothing of it."""
        given_out = self._given_out(ask)
        from_seq = max(0, ask.next_seq - 1)
        alone = answer is None and not given_out
        will_do = isinstance(answer, Opened) and not answer.follower.begins_late
        past = await self._pasts.find(
            ask.caller.tenant, ask.generation_id, from_seq, alone=alone, will_do=will_do
        )
        if past is None:  # an id that we gave out says that there was such a generation
            return answer or (EXPIRED if given_out else NOT_FOUND)
        found = past.found
        if not self._allowed(ask, found.key_id):
            return NOT_GOOD
        if (why := unreadable(found)) is not None:
            return answer if answer is not None and not found.erased else why
        follower = self._follower(ask.generation_id, found.partition, ask.next_seq, 0, past=past)
        return await self._begun(follower, Owner(found.tenant, found.key_id, found.dialect), ask)

    async def _begun(self, follower: Follower, owner: Owner, ask: Ask) -> Opened | Refusal:
        """The stream, if nothing stands in its way."""
        try:
            refusal = await self._read_ahead(follower, ask.behind)
        except BaseException:
            follower.close()
            raise
        if refusal is not None:
            follower.close()
            return refusal
        return _opened(follower, owner, ask)

    async def _read_ahead(self, follower: Follower, cursor: Cursor | None) -> Refusal | None:
        """Read to behind the cursor; what stands in the way of a stream is found while a status can say so.

        What lies before the cursor may be gone: only what follows it must be held.
        """
        end = None if cursor is None or cursor.sig else (await self._log.bounds(follower.partition))[1]
        try:
            await follower.preload(PRELOAD_EVENTS_MAX)
        except Hole as hole:
            return Refusal(410, hole.code, hole.first_available_seq)
        except OffsetGone:
            return EXPIRED
        except LogSilent as silent:
            raise LogAway(str(silent)) from silent
        if follower.begins_behind is not None:
            return Refusal(410, EXPIRED.code, follower.begins_behind)
        if cursor is None:
            return None
        follower.skip_to(cursor.seq)  # an error that ended it earlier is a terminal for everyone
        if follower.ended:
            return Refusal(204, "ended") if follower.seen_seq == cursor.seq else Refusal(409, "cursor_ahead")
        read_all = end is not None and follower.caught_up and follower.position >= end
        return Refusal(409, "cursor_ahead") if read_all and follower.seen_seq < cursor.seq else None


def _opened(follower: Follower, owner: Owner, ask: Ask) -> Opened:
    return Opened(follower, *owner, None if ask.behind is None else ask.behind.seq)
