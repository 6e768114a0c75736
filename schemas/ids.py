"""The generation id: a UUIDv7, so that the id itself says when to look for it.

Invariant: time and randomness are arguments; the shell owns both. Read next: ``events``.
"""

import re
import uuid

_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def uuid7(unix_ms: int, random_bits: int) -> str:
    """Make a UUIDv7 (RFC 9562, 5.7) of a time in Unix milliseconds and 74 random bits."""
    rand_a = (random_bits >> 62) & 0xFFF
    rand_b = random_bits & ((1 << 62) - 1)
    value = (unix_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b
    return str(uuid.UUID(int=value))


def is_uuid7(text: str) -> bool:
    """Whether the text is a UUIDv7 in its canonical (lower-case, hyphenated) form."""
    return _V7.fullmatch(text) is not None


def start_ms(generation_id: str) -> int:
    """The Unix milliseconds inside a UUIDv7; a ValueError for anything else."""
    if not is_uuid7(generation_id):
        raise ValueError(f"{generation_id!r} is not a UUIDv7")
    return int(generation_id[:8] + generation_id[9:13], 16)
