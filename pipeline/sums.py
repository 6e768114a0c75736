"""What is kept of one generation's records: sums, digests and the few records that its row needs, never its text.

Numbered records come in seq order (``generation`` sees to it). Trace records come in any order, and what is kept of
them does not depend on it. Pure; integer microseconds. Before: ``generation``. After: ``finalize``, ``orphans``.
"""

from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from pipeline.stalls import ContentClock
from schemas.digest import ContentDigest
from schemas.events import (
    CONTENT_KINDS,
    AttemptEnd,
    CancelRequested,
    ClientReader,
    Kind,
    LogEvent,
    Outcome,
    PartType,
    Stage,
    Usage,
)

STAGES_MAX = 64
"""Heartbeats of a stage other than decoding that are remembered, to say where a stall stood."""
_TOLD_STAGES = (Stage.TOOL, Stage.POSTPROCESS)


def revision_of(end: AttemptEnd) -> int:
    """0 for the finder's word, 1 for the edge's own, which stands over it."""
    return 0 if end.outcome is Outcome.LOST else 1


class _Sampling(msgspec.Struct):
    """Of the sampling fields the one that decides what gaps mean."""

    n: int | None = None


@dataclass(slots=True)
class Sums:
    """The state; see the module."""

    clock: ContentClock
    digest: ContentDigest = field(default_factory=ContentDigest)
    start: LogEvent | None = None
    starts: dict[int, LogEvent] = field(default_factory=dict)
    ends: dict[int, AttemptEnd] = field(default_factory=dict)
    open_attempts: set[int] = field(default_factory=set)
    committed_attempt: int | None = None
    events: int = 0
    content_events: int = 0
    text_events: int = 0
    first_text_us: int | None = None
    reasoning_events: int = 0
    raw_bytes: int = 0
    pauses_us: int = 0
    multiple_choices: bool = False
    stages: dict[int, Stage] = field(default_factory=dict)
    usage: Usage | None = None
    cancel: CancelRequested | None = None
    delivered_seq: int | None = None
    acked_seq: int | None = None
    last_detach_reason: str | None = None
    last_elapsed_us: int = 0
    last_wall_us: int = 0
    skew_min_us: int | None = None
    skew_max_us: int | None = None
    _usage_at: tuple[int, int] = (-1, 0)
    _detached_at: tuple[int, int] = (-1, 0)
    _cancelled_at: tuple[int, int] | None = None

    @property
    def skew_us(self) -> int | None:
        """How far the edge's wall clock moved against its monotonic one; None where nothing says it."""
        if self.skew_min_us is None or self.skew_max_us is None:
            return None
        return self.skew_max_us - self.skew_min_us

    @property
    def sampling(self) -> str | None:
        """The sampling fields that the request had, canonical JSON."""
        opening = self.start.message_start if self.start is not None else None
        snapshot = opening.runtime_snapshot if opening is not None else None
        return snapshot.sampling if snapshot is not None else None

    @property
    def choices_asked(self) -> int:
        """How many choices the request asked for; 1 where it says nothing that is a number of them."""
        try:
            asked = msgspec.json.decode(self.sampling or "{}", type=_Sampling)
        except (msgspec.DecodeError, UnicodeError):
            return 1
        return asked.n or 1

    def numbered(self, seq: int, event: LogEvent) -> None:
        """The next numbered record in seq order."""
        self.events += 1
        if event.paused_us:
            self.pauses_us += event.paused_us
            self.clock.paused(event.paused_us)
        elapsed_us = event.elapsed_us
        if elapsed_us is not None:
            self._watch_clocks(elapsed_us, event.wall_us)
        if event.kind in CONTENT_KINDS:
            self._content(seq, event, elapsed_us)
        elif event.kind is Kind.MESSAGE_START and self.start is None:
            self.start = event

    def _watch_clocks(self, elapsed_us: int, wall_us: int) -> None:
        self.last_elapsed_us = max(self.last_elapsed_us, elapsed_us)
        self.last_wall_us = max(self.last_wall_us, wall_us)
        offset_us = wall_us - elapsed_us
        if self.skew_min_us is None or self.skew_max_us is None:
            self.skew_min_us = self.skew_max_us = offset_us
        elif offset_us < self.skew_min_us:
            self.skew_min_us = offset_us
        elif offset_us > self.skew_max_us:
            self.skew_max_us = offset_us

    def _content(self, seq: int, event: LogEvent, elapsed_us: int | None) -> None:
        is_content = has_text = has_reasoning = False
        tokens = 0
        for part in event.canonical:
            if not part.is_content:
                continue
            is_content = True
            tokens += part.tokens_estimate or 0
            has_text = has_text or part.type is PartType.TEXT
            has_reasoning = has_reasoning or part.type is PartType.REASONING
            if part.choice_index:
                self.multiple_choices = True
        if not is_content:
            return
        self.digest.update(event.canonical)
        self.content_events += 1
        self.text_events += has_text
        self.reasoning_events += has_reasoning
        if event.raw:
            self.raw_bytes += len(event.raw.encode())
        if self.committed_attempt is None:
            self.committed_attempt = event.attempt
        if elapsed_us is not None and event.attempt == self.committed_attempt:
            self.clock.content(elapsed_us, seq, event.attempt, tokens)
            if has_text and self.first_text_us is None:
                self.first_text_us = elapsed_us

    def trace(self, event: LogEvent) -> None:
        """A record without seq, not seen before."""
        kind = event.kind
        self.last_elapsed_us = max(self.last_elapsed_us, event.elapsed_us or 0)
        self.last_wall_us = max(self.last_wall_us, event.wall_us)
        if kind is Kind.ATTEMPT_START:
            self.starts.setdefault(event.attempt, event)
            if event.attempt not in self.ends:
                self.open_attempts.add(event.attempt)
        elif kind is Kind.ATTEMPT_END and event.attempt_end is not None:
            self._attempt_end(event.attempt, event.attempt_end)
        elif kind is Kind.HEARTBEAT and event.heartbeat is not None and event.after_seq is not None:
            if event.heartbeat.stage in _TOLD_STAGES and len(self.stages) < STAGES_MAX:
                self.stages.setdefault(event.after_seq, event.heartbeat.stage)
        else:
            self._said(event, (event.elapsed_us or 0, event.wall_us))

    def _said(self, event: LogEvent, at: tuple[int, int]) -> None:
        """What of several such records only the latest, or for a cancel the first, is kept of."""
        if event.kind is Kind.USAGE:
            if at > self._usage_at:
                self.usage, self._usage_at = event.usage, at
        elif event.kind is Kind.CANCEL_REQUESTED:
            if self._cancelled_at is None or at < self._cancelled_at:
                self.cancel, self._cancelled_at = _with_instant(event), at
        elif event.client is not None:
            self._client(event.kind, event.client, at)

    def _attempt_end(self, attempt: int, end: AttemptEnd) -> None:
        before = self.ends.get(attempt)
        if before is None or revision_of(end) > revision_of(before):
            self.ends[attempt] = end
        self.open_attempts.discard(attempt)

    def _client(self, kind: Kind, client: ClientReader, at: tuple[int, int]) -> None:
        if kind is Kind.CLIENT_DETACHED:
            self.delivered_seq = _largest(self.delivered_seq, client.last_seq)
            if at > self._detached_at:
                self.last_detach_reason, self._detached_at = client.reason, at
        elif kind is Kind.CLIENT_ACK:
            last = max((r.last for r in client.ranges), default=client.last_seq)
            self.acked_seq = _largest(self.acked_seq, last)


def _with_instant(event: LogEvent) -> CancelRequested | None:
    """A cancel with the time at which it was taken, which older edges say by the record alone."""
    cancel = event.cancel
    if cancel is None or cancel.at_us is not None:
        return cancel
    return structs.replace(cancel, at_us=event.elapsed_us)


def _largest(one: int | None, other: int | None) -> int | None:
    return max((seq for seq in (one, other) if seq is not None), default=None)
