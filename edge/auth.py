"""API keys: who is calling. Keys are stored as SHA-256 hashes; a key's text is never kept and never logged.

A key is its id: it may have several texts (a rotation lets the old one run out), and all of them own the same streams.
Asked at each connect, so a revocation holds from the next one on. What a key may do is the sum of its roles:

==========================  ====  ====  ===  ===========
role                        read  call  end  end by force
==========================  ====  ====  ===  ===========
``caller``, ``admin``       yes   yes   yes  no
``operator``                yes   yes   yes  yes
``analyst``, ``finance``    yes   no    no   no
==========================  ====  ====  ===  ===========

Of its own tenant's generations alone, whatever the role. Before: the request's headers. After: ``routes``.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import structlog

from schemas.errors import TokentrailError
from schemas.records import KeyEntry
from schemas.settings import ApiKey

log = structlog.get_logger()


class Unauthorized(TokentrailError):
    """No key, or one that is not known."""


class Right(StrEnum):
    """What a route asks of a key, in the words of a refusal."""

    READ = "read"
    CALL = "call a model"
    END = "end a generation or report its tools"
    FORCE = "end a generation by force"


_READER = frozenset({Right.READ})
_CALLER = frozenset({Right.READ, Right.CALL, Right.END})
_RIGHTS = {
    "caller": _CALLER,
    "admin": _CALLER,
    "operator": _CALLER | {Right.FORCE},
    "analyst": _READER,
    "finance": _READER,
}
ROLES = tuple(_RIGHTS)
"""All that there are; another word gives no right."""


def may(key: ApiKey, right: Right) -> bool:
    """Whether one of a key's roles gives a right."""
    return any(right in _RIGHTS.get(role, ()) for role in key.roles)


class _Text(NamedTuple):
    """One text of a key. ``until_us``: good no more from then on; None: as long as it stands."""

    key: ApiKey
    until_us: int | None


class Keys:
    """All keys of this edge: those of the settings, and what the config topic says of them since.

    Args:
        keys: of the settings.
        wall_us: the time now, UTC.

    """

    def __init__(self, keys: Sequence[ApiKey], wall_us: Callable[[], int]) -> None:
        self._wall_us = wall_us
        self._by_hash = {key.sha256: _Text(key, None) for key in keys}

    def configure(self, key_id: str, entry: KeyEntry) -> None:
        """What holds of a key from now on, in place of all that was said of its id before; no text: it is revoked."""
        try:
            texts = [
                _Text(
                    ApiKey(
                        id=key_id,
                        tenant=entry.tenant,
                        sha256=text.sha256,
                        name=entry.label,
                        roles=tuple(entry.roles),
                    ),
                    text.until_us,
                )
                for text in entry.hashes
            ]
        except ValueError as error:
            log.warning("an API key's entry cannot be, the key is closed", key_id=key_id, error=str(error))
            texts = []
        kept = {sha256: text for sha256, text in self._by_hash.items() if text.key.id != key_id}
        self._by_hash = kept | {text.key.sha256: text for text in texts}

    def ids_of(self, tenant: str) -> set[str]:
        """The ids of a tenant's keys that are known here."""
        return {text.key.id for text in self._by_hash.values() if text.key.tenant == tenant}

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
        if found is None or (found.until_us is not None and self._wall_us() >= found.until_us):
            raise Unauthorized("this API key is not known here")
        return found.key

    def of_id(self, key_id: str) -> ApiKey | None:
        """The key with an id, for those who act in its name; None for one that is not known, or no longer."""
        now_us = self._wall_us()
        good = (t.key for t in self._by_hash.values() if t.until_us is None or now_us < t.until_us)
        return next((key for key in good if key.id == key_id), None)
