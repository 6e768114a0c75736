"""Bytes of one connection in, whole SSE frames out. Pure. Before: ``states``. After: ``endings``.

Invariants: any split of the same bytes gives the same frames; a frame that a cut left unfinished is never given (the
next connection brings it whole); the raw bytes of the frames, joined, are the stream without what carries no data.
"""

import re
from typing import NamedTuple

FRAME_BYTES_MAX = 16 << 20
"""Largest frame: twice what an edge sends at most, so that only a stream that is none of ours meets it."""
SEQ_DIGITS_MAX = 16
"""More are no number of an edge's, and none that a store could hold."""
_LINE = re.compile(rb"[^\r\n]*(\r\n|\n|\r)")
_BOM = b"\xef\xbb\xbf"


class FrameTooLarge(Exception):
    """One frame is above the limit: this is not the stream of an edge."""


class Frame(NamedTuple):
    """One event as it came. ``id`` and ``event`` are None where the frame has none; ``data`` joins its lines by LF."""

    raw: bytes
    id: str | None
    event: str | None
    data: str

    @property
    def seq(self) -> int | None:
        """The event's number, read from its id; None without one."""
        return seq_of(self.id)


def seq_of(event_id: str | None) -> int | None:
    """The number that an id begins with (``<seq>-<partition>.<offset>-<signature>``); None for anything else."""
    head = (event_id or "").partition("-")[0]
    return int(head) if head.isascii() and head.isdigit() and len(head) <= SEQ_DIGITS_MAX else None


def place_of(event_id: str | None) -> str:
    """The id without its signature, which changes with the secret that signs it."""
    return "-".join((event_id or "").split("-", 2)[:2])


class Splitter:
    """Splits one connection's bytes; a new connection takes a new one."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._rest = bytearray()  # the line that has no end yet
        self._lines: list[bytes] = []  # the lines of the frame that has no end yet
        self._size = 0
        self._after_cr = False  # the last line ended in CR: a LF that comes next belongs to it
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that end in this chunk. Raises FrameTooLarge."""
        if self._after_cr and chunk:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        self._rest += chunk
        if b"\n" not in chunk and b"\r" not in chunk:
            self._check(len(self._rest))
            return []
        data, frames, at = bytes(self._rest), [], 0
        if self._at_start and len(data) >= len(_BOM):
            at, self._at_start = len(_BOM) if data.startswith(_BOM) else 0, False
        for line in _LINE.finditer(data, at):
            at = line.end()
            if (frame := self._take(line[0])) is not None:
                frames.append(frame)
        self._after_cr = data.endswith(b"\r")
        self._rest = bytearray(data[at:])
        self._check(len(self._rest))
        return frames

    def _take(self, line: bytes) -> Frame | None:
        self._check(len(line))
        if line.strip(b"\r\n"):
            self._lines.append(line)
            self._size += len(line)
            return None
        lines, self._lines, self._size = self._lines, [], 0
        return _frame([*lines, line]) if lines else None

    def _check(self, more_bytes: int) -> None:
        if self._size + more_bytes > self._frame_bytes_max:
            raise FrameTooLarge(f"one frame of the stream is above {self._frame_bytes_max} bytes")


def _frame(lines: list[bytes]) -> Frame | None:
    """The frame of its lines; None where they carry neither data nor an id."""
    event_id = event = None
    data: list[bytes] = []
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"id" and b"\0" not in value:
            event_id = value.decode("utf-8", "replace")
        elif field == b"event":
            event = value.decode("utf-8", "replace") or None
    if not data:
        return None
    return Frame(b"".join(lines), event_id, event, b"\n".join(data).decode("utf-8", "replace"))
