"""A generation from the archive, and where the log goes on with it: one source for every reader of old events.

The archive holds a prefix of the log (its sink inserts in order), so it is read to its end and the log from there on. An
archive with a terminal needs no log at all. Else the log is looked at behind the archive's last record: at that very
place if the record still lies there, and by time if it does not (retention took it, or the topic is another one). Nobody
scans a partition from its beginning: no record of a generation lies later than its longest life.

Before: ``archive``, ``find``. After: ``follow`` and ``history`` read it.
"""

from collections.abc import AsyncIterator

from edge.generation import Delivered
from edge.log import EventLog
from edge.reading.archive import Archive, ArchiveAway
from edge.reading.archive_rows import Found
from edge.reading.find import first_between, holds_window, lies_at
from schemas.codec import Codec
from schemas.events import LogEvent
from schemas.ids import start_ms
from schemas.settings import Settings


class Past:
    """One reading of what the archive has of one generation.

    Args:
        archive: asked in pages.
        log: where it goes on.
        codec: the process's.
        settings: how long a generation can live, and how far clocks differ.
        found: the generation.
        from_seq: numbered records from there on and terminals; None: all records.

    """

    def __init__(
        self,
        archive: Archive,
        log: EventLog,
        codec: Codec,
        settings: Settings,
        found: Found,
        from_seq: int | None,
    ) -> None:
        self.found = found
        self._archive = archive
        self._log = log
        self._codec = codec
        self._settings = settings
        self._from_seq = from_seq
        self._after_offset = -1

    async def page(self) -> list[Delivered] | None:
        """The next records in log order; None where there are no more. Raises ArchiveAway."""
        before = self._after_offset
        events, self._after_offset = await self._archive.page(self.found, before, self._from_seq)
        return None if self._after_offset == before else events

    async def events(self) -> AsyncIterator[LogEvent]:
        """All of them. Raises ArchiveAway."""
        while (page := await self.page()) is not None:
            for delivered in page:
                yield delivered.event

    async def goes_on_at(self) -> int | None:
        """The offset at which the log goes on, None where it has nothing more of it. Raises LogAway."""
        found = self.found
        if found.ended:
            return None
        if await lies_at(self._log, self._codec, found.generation_id, found.partition, found.last_offset):
            return found.last_offset + 1
        skew_ms = self._settings.resume.skew_s * 1000
        life_s = self._settings.timeout.generation_s + 2 * self._settings.pipeline.orphan_after_s
        from_ms = min(start_ms(found.generation_id), found.last_wall_us // 1000) - skew_ms
        until_ms = start_ms(found.generation_id) + skew_ms + int(life_s * 1000)
        located = await first_between(self._log, self._codec, found.generation_id, from_ms, until_ms)
        return None if located is None else located.offset


class Pasts:
    """Finds what the archive has; without an archive, nothing."""

    def __init__(self, archive: Archive | None, log: EventLog, codec: Codec, settings: Settings) -> None:
        self._archive = archive
        self._log = log
        self._codec = codec
        self._settings = settings

    async def find(
        self, tenant: str, generation_id: str, from_seq: int | None, *, alone: bool, will_do: bool
    ) -> Past | None:
        """A tenant's generation, to be read from a seq on (None: all records). Raises ArchiveAway.

        Where the archive does not answer, it is not needed in two cases.

        Args:
            tenant: whose.
            generation_id: which one.
            from_seq: the first numbered record that is wanted.
            alone: nothing says that it was ever there: so it never was, if the log must hold it and does not.
            will_do: the log has an answer that the archive could only better.

        """
        if self._archive is None:
            return None
        try:
            found = await self._archive.find(tenant, generation_id)
        except ArchiveAway:
            skew_ms = self._settings.resume.skew_s * 1000
            if will_do or (alone and await holds_window(self._log, generation_id, skew_ms)):
                return None
            raise
        if found is None:
            return None
        return Past(self._archive, self._log, self._codec, self._settings, found, from_seq)
