"""CRC-32s over ranges of received events: what a client can show of what it holds.

Pure. Before: ``course``. After: ``store``.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

EVENTS_PER_RANGE = 32
RANGES_MAX = 64
"""Ranges kept for one session: the newest, 2048 events."""


class Range(NamedTuple):
    """The events ``first`` to ``last``, and the CRC-32 over their data, joined without anything between."""

    first: int
    last: int
    crc32: int


def added(ranges: Sequence[Range], events: Iterable[tuple[int, str]]) -> list[Range]:
    """The ranges with more events (number, data); a range grows until it is full or a number is missing."""
    found = list(ranges)
    for seq, data in events:
        newest = found[-1] if found else None
        if newest and seq == newest.last + 1 and seq - newest.first < EVENTS_PER_RANGE:
            found[-1] = Range(newest.first, seq, zlib.crc32(data.encode(), newest.crc32))
        elif newest is None or seq > newest.last:
            found.append(Range(seq, seq, zlib.crc32(data.encode())))
    return found[-RANGES_MAX:]


def intact(events: Sequence[tuple[int, str]], ranges: Iterable[Range]) -> int:
    """How many of the events (number, data), from the first on, are without a hole and fit the ranges that cover them."""
    whole = next((i for i, (seq, _) in enumerate(events) if seq != events[0][0] + i), len(events))
    data = dict(events[:whole])
    for part in sorted(ranges):
        if part.first in data:
            crc = 0
            for seq in range(part.first, part.last + 1):
                crc = zlib.crc32(data.get(seq, "").encode(), crc)
            if crc != part.crc32:
                return min(whole, part.first - events[0][0])
    return whole
