"""Server-sent events: bytes of a provider in, events out; and our own frames as bytes.

Pure: no I/O, no clock. The grammar is WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6.

Invariants: any split of the same bytes gives the same events (and the same error at the same place); memory stays
below one frame's limit plus one chunk; no bytes raise anything but ``FrameTooLarge``.
Lenient in one point only, at the end of a stream: see ``SseDecoder.finish``.

Before it in the flow: the provider's socket (``driver``). After it: ``dialects`` give the events a meaning, ``capture``
numbers them; ``follow`` writes them out with ``encode_frame``.
"""

import codecs
from collections.abc import Sequence
from typing import Final, NamedTuple

from schemas.errors import TokentrailError

BOM: Final = codecs.BOM_UTF8
RETRY_DIGITS_MAX: Final = 9  # 11 days in ms; a longer number is noise, and huge ones make int() raise


class SseError(TokentrailError):
    """What this module can raise about a stream."""


class FrameTooLarge(SseError):
    """One frame, or one line of any kind, is above the limit. The decoder is spent: every later feed raises again.

    Args:
        limit_bytes: the limit that was passed.
        events: the events that were complete before the frame, in the chunk whose feed raised. They are valid and
            given only here.

    """

    def __init__(self, limit_bytes: int, events: Sequence["SseEvent"] = ()) -> None:
        super().__init__(f"one SSE frame is larger than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes
        self.events = tuple(events)


class SseEvent(NamedTuple):
    """One dispatched event, with the fields of its own frame only.

    ``event`` is None without an event field (or with an empty one: the same by the standard); ``data`` joins its lines
    with LF; ``id`` and ``retry_ms`` are None where this frame has none (what lasts: ``SseDecoder.last_event_id``).
    """

    event: str | None
    data: str
    id: str | None
    retry_ms: int | None


class SseDecoder:
    """An incremental decoder of one stream.

    Args:
        max_frame_bytes: limit for the field lines of one frame, without their line ends, and for any single line.
            Comments of any number are no frame and pass.

    Attributes:
        comments: comment lines seen (keep-alives).
        last_event_id: the id that a WHATWG client would send as Last-Event-ID now; empty = none.
        torn: the stream ended inside a UTF-8 character (set by ``finish``).

    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_between_frames",
        "_data",
        "_event",
        "_failed",
        "_frame_bytes",
        "_id",
        "_line",
        "_max_frame_bytes",
        "_retry_ms",
        "comments",
        "last_event_id",
        "torn",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self.comments = 0
        self.last_event_id = ""
        self.torn = False
        self._max_frame_bytes = max_frame_bytes
        self._line = bytearray()  # the line that has no end yet
        self._after_cr = False  # the last byte was CR: a LF that comes next belongs to it
        self._at_start = True  # a byte-order mark may still come, or its rest
        self._between_frames = False  # nothing at all is pending: the fast path may look at the next chunk
        self._failed = False
        self._frame_bytes = 0
        self._data: list[bytes] = []
        self._event: str | None = None
        self._id: str | None = None
        self._retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that end within this chunk. Raises FrameTooLarge, which carries those that came before."""
        events: list[SseEvent] = []
        if not (
            self._between_frames
            and chunk.endswith(b"\n\n")
            and chunk.startswith(b"data: ")
            and b"\r" not in chunk
        ):
            self._feed_any(chunk, events)
            return events
        # Fast path: nearly every read of a provider is one or a few whole `data: …` frames.
        limit_bytes = self._max_frame_bytes
        if chunk.find(b"\n") == len(chunk) - 2 <= limit_bytes:
            data = chunk[6:-2].decode("utf-8", "replace")
            return [tuple.__new__(SseEvent, (None, data, None, None))]  # past the type's own slow constructor
        for frame in chunk[:-2].split(b"\n\n"):
            if frame.startswith(b"data: ") and b"\n" not in frame and len(frame) <= limit_bytes:
                events.append(SseEvent(None, frame[6:].decode("utf-8", "replace"), None, None))
            else:
                self._feed_any(frame + b"\n\n", events)
        return events

    def finish(self) -> list[SseEvent]:
        """End of the stream: the event that no blank line has closed, if it has data.

        A standard client drops it; a gateway must not, since it may hold the finish reason. The caller decides whether
        its payload is usable (complete JSON or ``[DONE]``). A last line without line end counts if it is a data line;
        of other fields nobody can say whether the value is whole. Half a character at its end is dropped and sets
        ``torn``.
        """
        line, self._line = bytes(self._line), bytearray()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(line)
        half_character = decoder.getstate()[0]
        if half_character:
            self.torn = True
            line = line[: -len(half_character)]
        events: list[SseEvent] = []
        if not self._failed:
            if line.partition(b":")[0] == b"data":
                self._take_line(line, events)
            self._dispatch(events)
        return events

    def _feed_any(self, chunk: bytes, events: list[SseEvent]) -> None:
        """Every legal framing: split into lines, keep the unfinished one."""
        if self._failed:
            raise FrameTooLarge(self._max_frame_bytes)
        if not chunk:
            return
        if self._at_start:
            chunk = self._without_bom(chunk)
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if b"\n" in chunk or b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            text = bytes(self._line) + chunk if self._line else chunk
            if b"\r" in text:
                text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            *lines, rest = text.split(b"\n")
            for line in lines:
                self._take_line(line, events)
            self._line = bytearray(rest)
        else:
            self._line += chunk
        self._check_size(len(self._line), events)
        self._between_frames = not (self._line or self._after_cr or self._at_start or self._frame_bytes)

    def _without_bom(self, chunk: bytes) -> bytes:
        """Drop one byte-order mark, which may come in pieces; what is not one goes on as content."""
        head = bytes(self._line) + chunk
        self._line.clear()
        if head.startswith(BOM):
            self._at_start = False
            return head[len(BOM) :]
        if not BOM.startswith(head):
            self._at_start = False
        return head

    def _take_line(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            self._dispatch(events)
            return
        self._check_size(len(line), events)
        if line.startswith(b":"):
            self.comments += 1
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value.decode("utf-8", "replace") or None
        elif field == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif field == b"retry":
            if value.isdigit() and len(value) <= RETRY_DIGITS_MAX:
                self._retry_ms = int(value)
        else:
            return  # unknown fields are not kept, so they do not count
        self._frame_bytes += len(line)

    def _dispatch(self, events: list[SseEvent]) -> None:
        """A blank line: give the event if the frame had data (one empty data line is an event with empty data)."""
        if self._id is not None:
            self.last_event_id = self._id
        if self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            events.append(SseEvent(self._event, data, self._id, self._retry_ms))
        if self._frame_bytes:
            self._reset_frame()

    def _reset_frame(self) -> None:
        self._frame_bytes = 0
        self._data = []
        self._event = self._id = self._retry_ms = None

    def _check_size(self, line_bytes: int, events: list[SseEvent]) -> None:
        if self._frame_bytes + line_bytes > self._max_frame_bytes:
            self._failed, self._between_frames = True, False
            self._line.clear()
            self._reset_frame()
            raise FrameTooLarge(self._max_frame_bytes, events)


def encode_frame(
    event: str | None,
    event_id: str | None,
    data: str,
    *,
    retry_ms: int | None = None,
    comment: str | None = None,
) -> bytes:
    r"""One frame: event, id, data, then the blank line; several data lines become several ``data:`` lines.

    ``retry_ms`` and ``comment`` go in front, inside the frame: alone, each makes openai-python 3.57 raise. CR and CRLF
    in data become LF, which is what any reader of them would get. Raises ValueError where event, id or comment hold a
    line end (that would forge a frame), and for an id with NUL (no reader would take it).
    """
    head = "" if comment is None else f": {_one_line(comment)}\n"
    if retry_ms is not None:
        head += f"retry: {retry_ms}\n"
    if event is not None:
        head += f"event: {_one_line(event)}\n"
    if event_id is not None:
        if "\0" in event_id:
            raise ValueError(f"NUL cannot stand in the id of an SSE field: {event_id!r}")
        head += f"id: {_one_line(event_id)}\n"
    if "\r" in data:
        data = data.replace("\r\n", "\n").replace("\r", "\n")
    if "\n" in data:
        data = data.replace("\n", "\ndata: ")
    return f"{head}data: {data}\n\n".encode()


def comment_line(text: str) -> bytes:
    r"""A bare comment with **no** blank line after it: the OpenAI dialect's heartbeat and the line after the head.

    With a blank line, openai-python up to 3.57 dispatches an empty event once any id was seen, and raises.
    """
    return f": {_one_line(text)}\n".encode()


def comment_block(text: str) -> bytes:
    """A comment closed by a blank line, for clients that hand on only whole blocks. Not for the OpenAI dialect."""
    return comment_line(text) + b"\n"


def _one_line(value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ValueError(f"a line end cannot stand in an SSE field: {value!r}")
    return value
