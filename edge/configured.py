"""What an operator told all edges by the config topic: API keys as they are now, and what is forgotten.

Read from the topic's beginning, then as it comes; the last record of a name stands, and hearing one twice changes
nothing. A key's entry there takes the place of the one with its id in the settings. Ids of forgotten generations are kept
until nothing can be held of them any more. Before: ``log``. After: ``auth``, ``resume``, ``registry``.
"""

from collections.abc import Callable

from edge.log import EventLog
from edge.reading.decode import said_in
from schemas.codec import Codec
from schemas.ids import is_uuid7, start_ms
from schemas.records import ConfigRecord, ForgottenEntry, KeyEntry
from schemas.topics import DAY_MS

HELD_DAYS = 31
"""Log and archive hold nothing for longer (7 and 30 days): an older id need not be remembered as forgotten."""


class Configured:
    """The state.

    Args:
        wall_ms: the time now, UTC.
        on_forgotten: told of the id of each forgotten generation.
        on_key: told of each API key's entry.

    """

    def __init__(
        self,
        wall_ms: Callable[[], int],
        on_forgotten: Callable[[str], None],
        on_key: Callable[[str, KeyEntry], None],
    ) -> None:
        self._wall_ms = wall_ms
        self._on_forgotten = on_forgotten
        self._on_key = on_key
        self._forgotten: dict[str, ForgottenEntry] = {}

    def forgotten(self, generation_id: str) -> ForgottenEntry | None:
        """Whose it was, if it is forgotten."""
        return self._forgotten.get(generation_id)

    async def follow(self, event_log: EventLog, codec: Codec) -> None:
        """Take in what the topic says; runs until cancelled."""
        async for value in event_log.config():
            record = await said_in(event_log, codec, value, ConfigRecord)
            if record is not None:
                self.take(record)

    def take(self, record: ConfigRecord) -> None:
        """One record."""
        if record.forgotten is not None and is_uuid7(record.name):
            if start_ms(record.name) > self._wall_ms() - HELD_DAYS * DAY_MS:
                self._forgotten[record.name] = record.forgotten
                self._on_forgotten(record.name)
        elif record.api_key is not None:
            self._on_key(record.name, record.api_key)
