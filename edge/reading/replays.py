"""What the log gave lately, decoded and rendered: all readers of a generation on this edge share it.

Reading is cheap and decoding is not: of 200 clients that lost an edge and come to another one, each would decode and
render the same records for itself. So a record is decoded by whoever comes to it first, and its frames are rendered once.
Nothing is decided here: every reader judges each event by the reader's rule on its own, whoever decoded it.

An event is found by the place and the very bytes of its record: on a topic that was made anew another record may lie
there. It is left out after a while in which nobody came for it, where the windows of running generations want the room,
and when its generation is forgotten. Before: ``log``. After: ``follow`` asks; ``registry`` bounds it beside the windows.
"""

from collections import OrderedDict

from edge.generation import Delivered
from edge.log import EventLog, Raw
from edge.reading.decode import whole_event
from schemas.codec import Codec
from schemas.parts import Joiner

UNUSED_US = 10_000_000
"""Clients that lost the same edge come back within seconds of one another; twice this at the most nobody came."""
RECORD_BYTES_MAX = 64 * 1024
"""A larger record is decoded by each reader: a few of them would take the room of very many."""
_ENTRY_BYTES = 200


class _Replay:
    """One generation's events: those that somebody came for since the last turn, and those of before."""

    __slots__ = ("old", "old_bytes", "young", "young_bytes")

    def __init__(self) -> None:
        self.young: dict[int, tuple[bytes, Delivered]] = {}
        self.old: dict[int, tuple[bytes, Delivered]] = {}
        self.young_bytes = 0
        self.old_bytes = 0

    def turn(self) -> int:
        """What was not used since the last turn goes; how many bytes that were."""
        gone = self.old_bytes
        self.old, self.old_bytes = self.young, self.young_bytes
        self.young, self.young_bytes = {}, 0
        return gone


class Replays:
    """All of an edge. ``room_bytes``: so much may be held until ``keep_within`` says another number."""

    def __init__(self, room_bytes: int) -> None:
        self._replays: OrderedDict[str, _Replay] = OrderedDict()  # the one that was added to last stands last
        self._room_bytes = room_bytes
        self._turned_us = 0
        self.bytes = 0

    def find(self, generation_id: str, raw: Raw) -> Delivered | None:
        """The event of a record that somebody decoded lately."""
        replay = self._replays.get(generation_id)
        if replay is None:
            return None
        held = replay.young.get(raw.offset)
        if held is None:
            held = replay.old.pop(raw.offset, None)
            if held is None:
                return None
            size = _size(*held)
            replay.old_bytes -= size
            replay.young_bytes += size
            replay.young[raw.offset] = held
        return held[1] if held[0] == raw.value else None

    async def decoded(
        self, log: EventLog, codec: Codec, joiner: Joiner, partition: int, raw: Raw
    ) -> Delivered | None:
        """The event that a record completes, held for others; None for a part before the last, and for poison.

        What came in parts is held by nobody: a reader that begins behind the first part must not have it. Raises LogAway.
        """
        event = await whole_event(log, codec, joiner, raw.value, raw.offset)
        if event is None:
            return None
        delivered = Delivered(event, partition, raw.offset)
        if not joiner.joined:
            self.add(event.generation_id, raw, delivered)
        return delivered

    def add(self, generation_id: str, raw: Raw, delivered: Delivered) -> None:
        """An event was decoded from a record that holds it whole."""
        if len(raw.value) > RECORD_BYTES_MAX:
            return
        replay = self._replays.get(generation_id)
        if replay is None:
            replay = self._replays[generation_id] = _Replay()
        else:
            self._replays.move_to_end(generation_id)
        before = replay.young.get(raw.offset)
        size = _size(raw.value, delivered) - (0 if before is None else _size(*before))
        replay.young[raw.offset] = raw.value, delivered
        replay.young_bytes += size
        self.bytes += size
        while self.bytes > self._room_bytes:
            self.forget(next(iter(self._replays)))

    def forget(self, generation_id: str) -> None:
        """Hold nothing of a generation."""
        replay = self._replays.pop(generation_id, None)
        if replay is not None:
            self.bytes -= replay.young_bytes + replay.old_bytes

    def keep_within(self, room_bytes: int, now_us: int) -> None:
        """Take no more room than this, and leave out what nobody came for since a while."""
        self._room_bytes = room_bytes
        if now_us - self._turned_us >= UNUSED_US:
            self._turned_us = now_us
            for generation_id, replay in list(self._replays.items()):
                self.bytes -= replay.turn()
                if not (replay.young or replay.old):
                    del self._replays[generation_id]
        while self.bytes > max(0, room_bytes):
            self.forget(next(iter(self._replays)))


def _size(value: bytes, delivered: Delivered) -> int:
    """About how many bytes an entry holds."""
    return _ENTRY_BYTES + len(value) + delivered.size
