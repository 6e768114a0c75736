"""A record that can never be processed, as it stands in ``dead-letters.v1``.

The value is the original bytes, the key the original key, the headers say where it lay and why (each UTF-8 text).
A record too large to be sent on with its headers is cut, and the detail says so with size and SHA-256. Pure: the
shell sends it and awaits the acknowledgement before it commits. Before: ``wellformed``, the codec. After: ``kafka``.
"""

import hashlib
from typing import NamedTuple

from schemas.errors import Poison
from schemas.topics import DEAD_LETTER_HEADERS

STAGE_FOLD = "fold"
VALUE_BYTES_MAX = 900_000
"""Below the broker's 1 MiB with room for key and headers."""
DETAIL_CHARS_MAX = 2_000


class Source(NamedTuple):
    """Where a record lay, and its bytes."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Letter(NamedTuple):
    """Key, value and headers of a record of the dead-letters topic."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def letter(source: Source, poison: Poison, *, stage: str, failed_us: int) -> Letter:
    """The dead letter of a record.

    Args:
        source: the record.
        poison: why it can never be processed.
        stage: who gave up on it.
        failed_us: when, Unix microseconds.
    """
    value, detail = source.value, poison.detail[:DETAIL_CHARS_MAX]
    if value is not None and len(value) > VALUE_BYTES_MAX:
        sha256 = hashlib.sha256(value).hexdigest()
        detail = f"{detail} (cut from {len(value)} bytes, SHA-256 {sha256})"
        value = value[:VALUE_BYTES_MAX]
    if value is None and source.key is None:
        value = b""  # the client refuses a record that has neither
    said = {
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(source.offset),
        "stage": stage,
        "reason": poison.reason,
        "detail": detail,
        "failed_us": str(failed_us),
    }
    return Letter(source.key, value, [(name, said[name].encode()) for name in DEAD_LETTER_HEADERS])
