"""API keys: who is calling. Keys are stored as SHA-256 hashes; a key's text is never kept and never logged.

Before: the request's headers. After: ``routes``.
"""

import hashlib
from collections.abc import Mapping

from schemas.errors import TokentrailError
from schemas.settings import ApiKey


class Unauthorized(TokentrailError):
    """No key, or one that is not known."""


class Keys:
    """All keys of this edge."""

    def __init__(self, keys: tuple[ApiKey, ...]) -> None:
        self._by_hash = {key.sha256: key for key in keys}

    def identify(self, headers: Mapping[str, str]) -> ApiKey:
        """The key of ``Authorization: Bearer`` or ``x-api-key``; Unauthorized says what to send.

        The lookup is by hash: its time says nothing about any other key's text.
        """
        text = headers.get("x-api-key") or ""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            text = bearer.strip()
        if not text:
            raise Unauthorized("send your tokentrail API key as `Authorization: Bearer …` or `x-api-key`")
        found = self._by_hash.get(hashlib.sha256(text.encode()).hexdigest())
        if found is None:
            raise Unauthorized("this API key is not known here")
        return found
