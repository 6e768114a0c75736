"""Records above the size limit: encoded whole, cut, and joined again.

Each part is a LogEvent with the same identity and seq, ``part`` of ``parts`` and its ``slice`` of the encoded bytes. A
reader joins parts 0 … n−1 in log order; a part that does not continue the run drops the run (the producer never
leaves one unfinished except when it died). Before: ``prices``. After: ``avro``.
"""

import msgspec

from schemas.codec import Codec
from schemas.errors import Poison
from schemas.events import LogEvent

RECORD_BYTES_MAX = 900_000
"""Largest encoded record: below Kafka's default 1 MiB request limit with room for key, headers and batch overhead."""
SLICE_BYTES = 800_000
"""Payload of one part: the envelope around it stays far below the difference to RECORD_BYTES_MAX."""


def cut(codec: Codec, event: LogEvent) -> list[bytes]:
    """The encoded record, or its encoded parts when it is larger than RECORD_BYTES_MAX."""
    whole = codec.encode(event)
    if len(whole) <= RECORD_BYTES_MAX:
        return [whole]
    slices = [whole[i : i + SLICE_BYTES] for i in range(0, len(whole), SLICE_BYTES)]
    bare = LogEvent(
        generation_id=event.generation_id,
        tenant=event.tenant,
        key_id=event.key_id,
        dialect=event.dialect,
        kind=event.kind,
        wall_us=event.wall_us,
        edge_id=event.edge_id,
        seq=event.seq,
        after_seq=event.after_seq,
        attempt=event.attempt,
        elapsed_us=event.elapsed_us,
    )
    return [
        codec.encode(msgspec.structs.replace(bare, part=i, parts=len(slices), slice=piece))
        for i, piece in enumerate(slices)
    ]


class Joiner:
    """Joins the parts of one generation's records, in log order. Holds at most one unfinished record.

    ``joined``: whether the record that was given out last had come in parts.
    """

    __slots__ = ("_codec", "_parts", "_seq", "_slices", "first_offset", "joined")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._slices: list[bytes] = []
        self._seq: int | None = None
        self._parts = 0
        self.first_offset: int | None = None
        self.joined = False

    def offer(self, event: LogEvent, offset: int = -1) -> LogEvent | None:
        """The whole record once it is complete, None in between. ``offset`` is kept for the first part of a run.

        Raises Poison where complete parts hold no record, or not the one that they say.
        """
        self.joined = event.part is not None and event.parts is not None
        if event.part is None or event.parts is None:
            return event
        if event.part == 0 and event.parts > 0:
            self._slices, self._seq, self._parts = [], event.seq, event.parts
            self.first_offset = offset
        elif event.part != len(self._slices) or event.seq != self._seq or event.parts != self._parts:
            self._slices, self._seq, self._parts = [], None, 0
            return None
        self._slices.append(event.slice or b"")
        if len(self._slices) < self._parts:
            return None
        data, self._slices, self._parts = b"".join(self._slices), [], 0
        whole = self._codec.decode(data, LogEvent)
        if (whole.generation_id, whole.seq, whole.part) != (event.generation_id, event.seq, None):
            raise Poison("bad_field", f"the parts of seq {event.seq} join to another record")
        return whole
