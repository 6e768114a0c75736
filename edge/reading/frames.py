"""A delivered event as bytes on the wire, in the dialect that the reader asked for.

In a provider's dialect a frame is the provider's own event, byte for byte, with our ``id:`` before it; the native
dialect shows the canonical fields. Rendered once per event and dialect, whoever reads. Pure. Before: ``follow``. After:
``emit``.
"""

from edge.dialects.native import heartbeat_data, native_frame
from edge.generation import Delivered
from edge.sse import comment_line, encode_frame
from schemas.cursor import Signer, render
from schemas.events import Kind
from schemas.failures import error_frame

NATIVE = "native"
ACK_EVERY = 32
"""Native frames between two that ask for an acknowledgement, by a line that decoders ignore."""
RETRY_MS = 2000


class Frames:
    """Renders the frames of one generation for one dialect.

    Args:
        dialect: ``native`` or the generation's own.
        generation_id: whose events these are.
        key_id: of the generation's owner; ids are equal for all readers.
        secret: the signing secret in force at the generation's start.

    """

    def __init__(self, dialect: str, generation_id: str, key_id: str, secret: bytes) -> None:
        self.dialect = dialect
        self._signer = Signer(secret, generation_id, key_id)

    def frame(self, delivered: Delivered) -> bytes:
        """The frame of an event; empty where the dialect does not show it."""
        cached = delivered.frames.get(self.dialect)
        if cached is None:
            cached = self._render(delivered)
            delivered.frames[self.dialect] = cached
        return cached

    def first(self, frame: bytes, resumed_from: int | None) -> bytes:
        """The first frame of a connection: the reconnect time and where the reading began stand inside it."""
        head = f"retry: {RETRY_MS}\n"
        if resumed_from is not None:
            head += f": resumed from {resumed_from}\n"
        return head.encode() + frame

    def heartbeat(self, stage: str, elapsed_ms: int) -> bytes:
        """A heartbeat: no id, never content; in the OpenAI dialect a bare comment line."""
        if self.dialect == NATIVE:
            return encode_frame("heartbeat", None, heartbeat_data(stage, elapsed_ms))
        if self.dialect == "anthropic.messages":
            return encode_frame("ping", None, '{"type": "ping"}')
        return comment_line("heartbeat")

    def unnumbered_error(self, code: str, message: str) -> bytes:
        """An error frame without id: not the terminal, a later resume gives the log's."""
        name, data = error_frame("openai.chat" if self.dialect == NATIVE else self.dialect, code, message, 0)
        return encode_frame("generation_error" if self.dialect == NATIVE else name, None, data)

    def _render(self, delivered: Delivered) -> bytes:
        event = delivered.event
        seq = event.seq or 0
        if self.dialect == NATIVE:
            name, data = native_frame(event)
        elif event.kind is Kind.MESSAGE_START or event.raw is None:
            return b""
        else:
            name, data = event.raw_event or "", event.raw
        line = (
            f"ack: {seq}\n".encode() if self.dialect == NATIVE and seq % ACK_EVERY == ACK_EVERY - 1 else b""
        )
        cursor = render(seq, delivered.partition, delivered.offset, self._signer.sign(seq))
        return line + encode_frame(name or None, cursor, data)
