"""``output_hash``: SHA-256 over a generation's content in seq order.

Fragments of one channel (type, choice, tool) are joined before hashing, so that the value does not depend on how a
provider cut its text: each change of channel writes ``RS type.choice.tool US``, then the fragments' UTF-8 follow.
Used by the edge (in ``message_end``), the fold and the checks on ClickHouse: one value for all three.

Before: ``reading``. After: ``usage``.
"""

import hashlib
from collections.abc import Iterable

from schemas.events import Canonical, PartType


class ContentDigest:
    """The running hash of one generation, with the plain text's own SHA-256 beside it."""

    __slots__ = ("_all", "_channel", "_text", "content_bytes", "text_bytes")

    def __init__(self) -> None:
        self._all = hashlib.sha256()
        self._text = hashlib.sha256()
        self._channel = ""
        self.content_bytes = 0
        self.text_bytes = 0

    def update(self, parts: Iterable[Canonical]) -> None:
        """Take the canonical parts of the next record."""
        for part in parts:
            if not part.is_content:
                continue
            data = part.text.encode()
            channel = f"\x1e{part.type.value}.{part.choice_index}.{part.tool_index or 0}\x1f"
            if channel != self._channel:
                self._channel = channel
                self._all.update(channel.encode())
            self._all.update(data)
            self.content_bytes += len(data)
            if part.type is PartType.TEXT:
                self._text.update(data)
                self.text_bytes += len(data)

    def output_hash(self) -> str:
        """Hex SHA-256 over all content."""
        return self._all.hexdigest()

    def text_sha256(self) -> str:
        """Hex SHA-256 over the text parts alone, as a client that joins its deltas sees them."""
        return self._text.hexdigest()
