"""A tenant's month: where it begins and ends. Pure.

A month is half-open, in the tenant's own zone; the host's means nothing. Before: ``bill`` and ``focus`` ask. After: nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from schemas.errors import TokentrailError


class ExportError(TokentrailError):
    """Nothing was written; the message says what to do."""


def bounds(period: str, zone: str) -> tuple[datetime, datetime]:
    """The first instant of a month in a zone, and the first that is not in it any more, in UTC. Raises ExportError."""
    match = re.fullmatch(r"(2[01]\d{2})-(0[1-9]|1[0-2])", period)
    if match is None:
        raise ExportError(f"a period is a month like 2026-11, not {period!r}")
    try:
        tz = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ExportError(f"{zone!r} is no IANA time zone; Europe/Budapest is one") from error
    year, month = int(match.group(1)), int(match.group(2))
    following = (year + month // 12, month % 12 + 1)
    begin, end = (datetime(y, m, 1, tzinfo=tz).astimezone(UTC) for y, m in ((year, month), following))
    return begin, end
