"""The cursor: the SSE ``id``, ``<seq>-<partition>.<offset>-<sig>``, and the plain resumption token beside it.

``sig`` is the first 16 bytes of HMAC-SHA-256(secret, ``<generation_id>|<seq>|<key_id>``) as unpadded base64url.
Partition and offset are a hint that is not signed: a reader that does not find the event there looks for it as if
there were none. Comparison is in constant time. Before: ``partition``. After: ``signing``.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from typing import NamedTuple

CURSOR_BYTES_MAX = 128
"""Longest id: fits any header limit; 16 digits each for seq and offset are far beyond what a topic can hold."""
_CURSOR = re.compile(r"(0|[1-9][0-9]{0,15})-([0-9]{1,5})\.([0-9]{1,18})-([A-Za-z0-9_-]{22})", re.ASCII)
_SEQ = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)


class Cursor(NamedTuple):
    """Where a reader stands. ``partition`` and ``offset`` are hints, None for a plain seq."""

    seq: int
    partition: int | None
    offset: int | None
    sig: str | None


class CursorMalformed(ValueError):
    """The text is no cursor at all (HTTP 400)."""


def sign(secret: bytes, generation_id: str, seq: int, key_id: str) -> str:
    """The 22 characters that bind a seq to its generation and its owner's key id."""
    mac = hmac.digest(secret, f"{generation_id}|{seq}|{key_id}".encode(), "sha256")
    return urlsafe_b64encode(mac[:16])[:22].decode()


class Signer:
    """``sign`` for one generation: the parts of the HMAC that every seq shares are hashed once (RFC 2104)."""

    __slots__ = ("_inner", "_key_id", "_outer")

    def __init__(self, secret: bytes, generation_id: str, key_id: str) -> None:
        block = hashlib.sha256().block_size
        key = (hashlib.sha256(secret).digest() if len(secret) > block else secret).ljust(block, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + f"{generation_id}|".encode())
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key))
        self._key_id = key_id

    def sign(self, seq: int) -> str:
        """The signature of a seq."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(f"{seq}|{self._key_id}".encode())
        outer.update(inner.digest())
        return urlsafe_b64encode(outer.digest()[:16])[:22].decode()


def render(seq: int, partition: int, offset: int, sig: str) -> str:
    """The SSE id."""
    return f"{seq}-{partition}.{offset}-{sig}"


def parse(text: str) -> Cursor:
    """A cursor from what a client presented: a whole one, or a plain seq (no signature).

    Raises CursorMalformed for everything else; the text is never echoed.
    """
    if len(text) <= CURSOR_BYTES_MAX:
        if whole := _CURSOR.fullmatch(text):
            return Cursor(int(whole[1]), int(whole[2]), int(whole[3]), whole[4])
        if _SEQ.fullmatch(text):
            return Cursor(int(text), None, None, None)
    raise CursorMalformed("not a cursor: send the id of the last event that was received, unchanged")


def verify(secrets: list[bytes], generation_id: str, cursor: Cursor, key_id: str) -> bool:
    """Whether the cursor's signature is good under any of the secrets; every one is tried, in constant time."""
    good, shown = False, (cursor.sig or "").encode()
    for secret in secrets:
        expected = sign(secret, generation_id, cursor.seq, key_id).encode()
        good |= hmac.compare_digest(expected, shown)
    return good


def resumption_token(generation_id: str, seq: int, sig: str) -> str:
    """``X-Resumption-Token``: the same signature, so that a plain integer Last-Event-ID works beside it."""
    return f"resumption_id={generation_id}&seq={seq}&sig={sig}"
