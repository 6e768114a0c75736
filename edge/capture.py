"""One attempt's stream: provider bytes → understood events, with the counts that its attempt_end will say.

Pure: time is an argument (``elapsed_us``, microseconds since the request was accepted). Content alone feeds the gaps;
keep-alives, empty chunks, role, finish and usage never do. Before: ``sse`` and ``dialects``. After: ``driver``.
"""

from edge.attempts.output_check import MALFORMED, TRUNCATED, OutputCheck
from edge.dialects import Captured, Dialect
from edge.provider.masking import NO_MASK, Mask
from edge.sse import FrameTooLarge, SseDecoder
from schemas.events import Canonical, EndedBy, Gap, Kind, PartType, ProviderError, Stage


class AttemptCapture:
    """The capture of one attempt.

    Args:
        dialect: what the provider speaks.
        frame_bytes: the largest frame that is accepted.
        stall_threshold_us: a gap strictly longer than this is on record.
        tool_bytes: the most that the arguments of one tool call may come to.
        check: what judges the answer at its end.
        mask: what takes the provider's key out of its own words.

    """

    def __init__(
        self,
        dialect: Dialect,
        frame_bytes: int,
        stall_threshold_us: int,
        tool_bytes: int = 16 << 20,
        check: OutputCheck | None = None,
        mask: Mask = NO_MASK,
    ) -> None:
        self._mask = mask
        self.check = check or OutputCheck()
        self._tool_bytes_max = tool_bytes
        self._tool_bytes: dict[tuple[int, int | None, int | None], int] = {}
        self.too_large: str | None = None
        self._decoder = SseDecoder(frame_bytes)
        self._threshold_us = stall_threshold_us
        self.state = dialect.new_state()
        self.bytes_seen = 0
        self.content_events = 0
        self.text_events = 0
        self.tokens_estimate = 0
        self.keepalives = 0
        self.first_content_us: int | None = None
        self.last_content_us: int | None = None
        self.last_content_seq: int | None = None  # set by who numbers it; None while it has no number
        self.finish_us: int | None = None
        self.gaps: list[Gap] = []
        self._paused_us = 0  # since the last content

    def feed(self, chunk: bytes) -> list[Captured]:
        """The events that a read completed; a frame above the limit is a failure behind them."""
        self.bytes_seen += len(chunk)
        try:
            events = self._mask.events(self._decoder.feed(chunk))
        except FrameTooLarge as error:
            said = ProviderError(message=str(error))
            captured = [c for event in self._mask.events([*error.events]) for c in self.state.capture(event)]
            return [*captured, Captured(Kind.ERROR, "", failure=("upstream_frame_too_large", said))]
        if len(events) == 1:
            return self.state.capture(events[0])
        return [c for event in events for c in self.state.capture(event)]

    def finish(self) -> list[Captured]:
        """The event that the end of the stream left unclosed, if its payload is whole."""
        try:
            events = self._mask.events(self._decoder.finish())
        except FrameTooLarge:
            return []
        if self._decoder.torn:
            return []
        captured = [c for event in events for c in self.state.capture(event)]
        return [c for c in captured if c.failure is None or c.failure[0] != "upstream_protocol"]

    def note(self, captured: Captured, elapsed_us: int, paused_us: int) -> bool:
        """Count an event; whether it was content."""
        self._paused_us += paused_us
        content, tokens = False, 0
        for part in captured.canonical:
            if part.is_content:
                content = True
                tokens += part.tokens_estimate or 0
                if part.type is PartType.TEXT:
                    self.text_events += 1
                    if self.check.wants_json:
                        self.check.note(part)
                else:
                    self.check.note(part)
                    if part.type is PartType.TOOL_CALL:
                        self._tool(part)
            elif part.type is PartType.TOOL_CALL:
                self.check.note(part)
        if self.state.finishes and self.finish_us is None:
            self.finish_us = elapsed_us
        if not content:
            return False
        if self.last_content_us is None:
            self.first_content_us = elapsed_us
        else:
            self._gap(elapsed_us, EndedBy.CONTENT)
        self._paused_us = 0
        self.last_content_us = elapsed_us
        self.content_events += 1
        self.tokens_estimate += tokens
        return True

    def _tool(self, part: Canonical) -> None:
        """One more fragment of a call's arguments; they are whole in a client's memory, so they have a bound."""
        call = (part.choice_index, part.block_index, part.tool_index)
        size = self._tool_bytes[call] = self._tool_bytes.get(call, 0) + len(part.text.encode())
        if size > self._tool_bytes_max:
            self.too_large = (
                f"the arguments of one tool call are above {self._tool_bytes_max} bytes "
                "(limit.tool_arguments_bytes)"
            )

    def unparsable(self) -> str | None:
        """Why an answer that came to its own end and was asked for as JSON is none; None where there is nothing to mend."""
        finishes = self.state.finishes.values()
        if not self.check.wants_json or any(finish.finish_reason != "stop" for finish in finishes):
            return None
        word = self.check.result(ended_properly=True)
        return word if word in (MALFORMED, TRUNCATED) else None

    def close(self, elapsed_us: int, ended_by: EndedBy, paused_us: int = 0) -> None:
        """The last gap, that no content closed: a row, and in none of the sums; our own pause at its end left out."""
        self._paused_us += paused_us
        if self.last_content_us is not None and self.finish_us is None:
            self._gap(elapsed_us, ended_by)

    def _gap(self, until_us: int, ended_by: EndedBy) -> None:
        start_us = self.last_content_us or 0
        length_us = until_us - start_us - self._paused_us
        if length_us > self._threshold_us:
            self.gaps.append(
                Gap(
                    content_index=self.content_events - 1,
                    start_us=start_us,
                    length_us=length_us,
                    seq=self.last_content_seq,
                    tokens_estimate=self.tokens_estimate,
                    stage=Stage.DECODE,
                    ended_by=ended_by,
                )
            )
