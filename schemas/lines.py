"""Where log lines go whose loss ends nothing: a full disk, or a reader of stderr that has left, stops no stream.

structlog's own printer raises what the stream raises, out of whatever wrote the line. Before: whichever process sets up
its logs. After: its stream.
"""

from contextlib import suppress
from typing import TextIO


class Lines:
    """A text stream that takes every line and writes it where that is possible."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or not."""
        with suppress(OSError, ValueError):  # ValueError: it is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or not."""
        with suppress(OSError, ValueError):
            self._stream.flush()
