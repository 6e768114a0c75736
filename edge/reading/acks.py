"""What a client says that it has of a stream, and what of it must be sent again.

Native dialect only. A client acknowledges inclusive ranges of seqs with a CRC-32 over their joined ``data`` bytes
(UTF-8), and names what it lacks. Those ranges do not overlap, so one acknowledgement costs one pass at most. A range whose checksum differs, and what is lacking, is sent again as ``event: resent``
without an id, so that a browser's position does not move back: its data is ``{"seq", "event", "data"}``, the last two as
the frame had them. Before: ``routes.acks``. After: ``emit`` writes it.
"""

import asyncio
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from edge.dialects import BadRequest
from edge.dialects.native import native_frame
from edge.sse import encode_frame
from schemas.events import LogEvent, SeqRange
from schemas.limits import Limit

_RANGE = re.compile(r"(0|[1-9][0-9]{0,15})(?:-(0|[1-9][0-9]{0,15}))?", re.ASCII)
_CRC = re.compile(r"[0-9a-f]{8}", re.ASCII)
TURN_EVENTS = 64
"""So many are put into their frames at a time, a millisecond; then the event loop serves the streams."""
_HOW = "ranges are FIRST-LAST:CRC32 with eight hex digits, separated by commas"


class Claims(NamedTuple):
    """What a client has (``ranges``, each with its checksum) and what it lacks (``missing``)."""

    ranges: list[SeqRange]
    missing: list[SeqRange]

    def __bool__(self) -> bool:
        return bool(self.ranges or self.missing)

    @property
    def last(self) -> int:
        """The highest seq that is named; -1 for none."""
        return max((said.last for said in (*self.ranges, *self.missing)), default=-1)


class TooMuch(BadRequest):
    """More would be sent again than one answer may hold."""


def claims_of(body: dict[str, Any], limit: Limit) -> Claims:
    """The claims of an acknowledgement: ``ranges`` of [first, last, "crc32"], ``missing`` of [first, last]."""
    ranges, missing = body.get("ranges", []), body.get("missing", [])
    if not (isinstance(ranges, list) and isinstance(missing, list)):
        raise BadRequest("ranges and missing are lists")
    return _checked(
        Claims(
            [_range(said, 3) for said in ranges],
            [_range(said, 2) for said in missing],
        ),
        limit,
    )


def claims_in(checksums: str | None, missing: str | None, limit: Limit) -> Claims:
    """The claims of a resume: X-Resumption-Checksum (``0-31:0a1b2c3d,…``) and X-Resume-Nack (``5-7,12``)."""
    ranges = []
    for text in _items(checksums):
        where, _, crc = text.partition(":")
        if not _CRC.fullmatch(crc):
            raise BadRequest(_HOW)
        ranges.append(_where(where, int(crc, 16)))
    return _checked(Claims(ranges, [_where(text, None) for text in _items(missing)]), limit)


async def wanted(claims: Claims, delivered: Sequence[LogEvent], limit: Limit) -> list[LogEvent]:
    """The events that must be sent again, in order and each once. Raises TooMuch.

    Args:
        claims: what the client said.
        delivered: the generation's events as readers get them.
        limit: how many may be sent again.

    """
    doubtful = [said for said in claims.ranges if said.crc32 != await checksum(delivered, said)]
    again: dict[int | None, LogEvent] = {}
    for said in (*doubtful, *claims.missing):
        found = within(delivered, said)
        if len(found) <= limit.resent_events:
            again |= {event.seq: event for event in found}
        if max(len(found), len(again)) > limit.resent_events:
            raise TooMuch(
                f"more than {limit.resent_events} events would be sent again (limit.resent_events): "
                "read on with X-Resume-Mode: from-start"
            )
    return [again[seq] for seq in sorted(again, key=lambda seq: seq or 0)]


def within(delivered: Sequence[LogEvent], said: SeqRange) -> Sequence[LogEvent]:
    """The events of a range; readers get them in the order of their seqs."""
    first = bisect_left(delivered, said.first, key=_seq_of)
    return delivered[first : bisect_right(delivered, said.last, lo=first, key=_seq_of)]


async def checksum(delivered: Sequence[LogEvent], said: SeqRange) -> int:
    """The CRC-32 over the joined data bytes of a range, as a native client has them."""
    crc = 0
    for number, event in enumerate(within(delivered, said)):
        if number % TURN_EVENTS == 0:
            await asyncio.sleep(0)
        crc = zlib.crc32(native_frame(event)[1].encode(), crc)
    return crc


def resent(events: Iterable[LogEvent]) -> bytes:
    """The frames of events that are sent again."""
    return b"".join(_resent(event) for event in events)


def _seq_of(event: LogEvent) -> int:
    return -1 if event.seq is None else event.seq


def _resent(event: LogEvent) -> bytes:
    name, data = native_frame(event)
    return encode_frame(
        "resent", None, orjson.dumps({"seq": event.seq, "event": name, "data": data}).decode()
    )


def _checked(claims: Claims, limit: Limit) -> Claims:
    if len(claims.ranges) + len(claims.missing) > limit.ack_ranges:
        raise BadRequest(f"at most {limit.ack_ranges} ranges at once (limit.ack_ranges): join what touches")
    ranges = sorted(claims.ranges, key=lambda said: said.first)
    if any(later.first <= said.last for said, later in pairwise(ranges)):
        raise BadRequest("ranges with checksums do not overlap: each event is checked once")
    return claims


def _range(said: object, size: int) -> SeqRange:
    """A range of a body; its checksum is eight hex digits."""
    if isinstance(said, list) and len(said) == size:
        crc = said[2] if size == 3 else "00000000"  # noqa: PLR2004 - first, last, checksum
        places = all(type(seq) is int and 0 <= seq < 10**16 for seq in said[:2])
        if places and said[0] <= said[1] and isinstance(crc, str) and _CRC.fullmatch(crc):
            return SeqRange(first=said[0], last=said[1], crc32=int(crc, 16) if size == 3 else None)  # noqa: PLR2004
    raise BadRequest('ranges are [first, last, "crc32"] with eight hex digits, missing are [first, last]')


def _items(text: str | None) -> list[str]:
    return [] if text is None else [item.strip() for item in text.split(",")]


def _where(text: str, crc32: int | None) -> SeqRange:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise BadRequest(
            _HOW if crc32 is not None else "X-Resume-Nack is FIRST-LAST or SEQ, separated by commas"
        )
    first, last = int(found[1]), int(found[2] or found[1])
    if first > last:
        raise BadRequest(f"a range ends before it begins: {first}-{last}")
    return SeqRange(first=first, last=last, crc32=crc32)
