"""``output_hash``: SHA-256 over a generation's content in seq order.

Fragments of one channel (type, choice, tool) are joined before hashing, so that the value does not depend on how a
provider cut its text: each change of channel writes ``RS type.choice.tool US``, then the fragments' UTF-8 follow.
Used by the edge (in ``message_end``), the fold and the checks on ClickHouse: one value for all three.

Before: ``reading``. After: ``usage``.
"""

import hashlib
from collections.abc import Iterable

from schemas.events import Canonical, PartType

HANDFUL = 64
"""So many fragments are hashed at once: above it nothing is gained, and the memory stays a few KiB."""


class ContentDigest:
    """The running hash of one generation, with the plain text's own SHA-256 beside it.

    Fragments are hashed in handfuls: a call of the hash costs more than the few bytes of a fragment.
    """

    __slots__ = ("_all", "_channel", "_content_bytes", "_pending", "_pending_text", "_text", "_text_bytes")

    def __init__(self) -> None:
        self._all = hashlib.sha256()
        self._text = hashlib.sha256()
        self._channel: tuple[PartType, int, int] | None = None
        self._pending: list[str] = []
        self._pending_text: list[str] = []
        self._content_bytes = 0
        self._text_bytes = 0

    def update(self, parts: Iterable[Canonical]) -> None:
        """Take the canonical parts of the next record."""
        for part in parts:
            if not part.is_content:
                continue
            channel = (part.type, part.choice_index, part.tool_index or 0)
            if channel != self._channel:
                self._flush()
                self._channel = channel
                self._all.update(f"\x1e{part.type.value}.{channel[1]}.{channel[2]}\x1f".encode())
            self._pending.append(part.text)
            if part.type is PartType.TEXT:
                self._pending_text.append(part.text)
            if len(self._pending) >= HANDFUL:
                self._flush()

    @property
    def content_bytes(self) -> int:
        """UTF-8 bytes of all content."""
        self._flush()
        return self._content_bytes

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of the text parts."""
        self._flush()
        return self._text_bytes

    def output_hash(self) -> str:
        """Hex SHA-256 over all content."""
        self._flush()
        return self._all.hexdigest()

    def text_sha256(self) -> str:
        """Hex SHA-256 over the text parts alone, as a client that joins its deltas sees them."""
        self._flush()
        return self._text.hexdigest()

    def _flush(self) -> None:
        if self._pending:
            data = "".join(self._pending).encode()
            self._all.update(data)
            self._content_bytes += len(data)
            self._pending.clear()
        if self._pending_text:
            data = "".join(self._pending_text).encode()
            self._text.update(data)
            self._text_bytes += len(data)
            self._pending_text.clear()
