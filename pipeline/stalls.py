"""Gaps between the content events of one attempt, and which of them are stalls.

A gap lies between consecutive content events of one attempt, in seq order, on the edge's monotonic clock, minus the
time in which the edge itself paused reading. A gap strictly longer than the threshold is a stall: one gap is one
stall and its whole length counts. The last gap, which no content closed, is a row and in none of the sums.

Pure; all times are integer microseconds. Memory is bounded: sums are exact, rows and the gaps behind the percentiles
are capped. Before: ``generation`` feeds it. After: ``finalize`` reads the sums.
"""

from array import array

from msgspec import structs

from schemas.events import AttemptEnd, EndedBy, Gap, Outcome, Stage
from schemas.records import StallRow

STALL_ROWS_MAX = 1_000
"""Rows of one generation; the sums count every stall beyond them too."""
ICL_GAPS_MAX = 4_096
"""Gaps kept for the percentiles (32 KiB): when full, every other one goes and from then on every other one is kept."""

CLIENT_GONE = "client_disconnect"
"""The reason of a cancel that nobody asked for: no reader was left."""

_ENDED_BY = {
    "stall_timeout": EndedBy.WATCHDOG,
    "decode_timeout": EndedBy.WATCHDOG,
    "timeout": EndedBy.WATCHDOG,
    "cancelled": EndedBy.CANCEL,
    "superseded": EndedBy.CANCEL,
}


class ContentClock:
    """The content events of one attempt, one after the other.

    Args:
        threshold_us: a longer gap is a stall.
    """

    __slots__ = (
        "_icl_skip",
        "_icl_stride",
        "_in_run",
        "_paused_us",
        "content_events",
        "first_us",
        "icl_gaps_us",
        "icl_max_us",
        "last_seq",
        "last_us",
        "longest_stall_us",
        "rows",
        "stall_count",
        "stall_runs",
        "stall_us",
        "threshold_us",
        "tokens_estimate",
    )

    def __init__(self, threshold_us: int) -> None:
        self.threshold_us = threshold_us
        self.content_events = 0
        self.first_us: int | None = None
        self.last_us: int | None = None
        self.last_seq: int | None = None
        self.tokens_estimate = 0
        self.icl_gaps_us = array("q")
        self.icl_max_us: int | None = None
        self.stall_us = 0
        self.stall_count = 0
        self.stall_runs = 0
        self.longest_stall_us = 0
        self.rows: list[tuple[StallRow, int]] = []  # with the seq of the content event that closed it
        self._paused_us = 0
        self._in_run = False
        self._icl_stride = 1
        self._icl_skip = 0

    def paused(self, paused_us: int) -> None:
        """The edge did not read for so long; what comes next is not the provider's fault."""
        self._paused_us += paused_us

    def content(self, at_us: int, seq: int, attempt: int, tokens: int = 0) -> None:
        """The next content event, at ``elapsed_us`` ``at_us``."""
        last_us = self.last_us
        if last_us is None:
            self.first_us = at_us
        else:
            gap_us = max(0, at_us - last_us - self._paused_us)
            self._keep_for_percentiles(gap_us)
            if gap_us > self.threshold_us:
                self._stall(gap_us, attempt, seq)
            else:
                self._in_run = False
        self._paused_us = 0
        self.content_events += 1
        self.last_us = at_us
        self.last_seq = seq
        self.tokens_estimate += tokens

    def _stall(self, gap_us: int, attempt: int, closing_seq: int) -> None:
        self.stall_us += gap_us
        self.stall_count += 1
        self.stall_runs += not self._in_run
        self._in_run = True
        self.longest_stall_us = max(self.longest_stall_us, gap_us)
        if len(self.rows) < STALL_ROWS_MAX:
            row = StallRow(
                attempt=attempt,
                seq=self.last_seq,
                content_index=self.content_events - 1,
                start_us=self.last_us or 0,
                length_us=gap_us,
                tokens_estimate=self.tokens_estimate or None,
            )
            self.rows.append((row, closing_seq))

    def _keep_for_percentiles(self, gap_us: int) -> None:
        if self.icl_max_us is None or gap_us > self.icl_max_us:
            self.icl_max_us = gap_us
        if self._icl_skip:
            self._icl_skip -= 1
            return
        self.icl_gaps_us.append(gap_us)
        if len(self.icl_gaps_us) >= ICL_GAPS_MAX:
            self.icl_gaps_us = self.icl_gaps_us[::2]
            self._icl_stride *= 2
        self._icl_skip = self._icl_stride - 1

    def trailing(self, attempt: int, end: AttemptEnd) -> StallRow | None:
        """The last gap, which the end of the attempt closed and not content; None where it is no longer than allowed.

        The edge's own word for it (the last of ``end.gaps``) stands where there is one, since it knows what ended it. One
        that measured by our threshold, or a shorter, and names none has seen none: it may have paused itself meanwhile.
        """
        told = end.gaps[-1] if end.gaps else None
        if told is not None and told.ended_by is not EndedBy.CONTENT:
            return _row(attempt, told, self.last_seq)
        if end.stall_threshold_us is not None and end.stall_threshold_us <= self.threshold_us:
            return None
        if self.last_us is None or end.dispatched_us is None or end.outcome in (Outcome.OK, Outcome.LOST):
            return None
        gap_us = end.dispatched_us + end.elapsed_us - self.last_us
        if gap_us <= self.threshold_us:
            return None
        return StallRow(
            attempt=attempt,
            seq=self.last_seq,
            content_index=self.content_events - 1,
            start_us=self.last_us,
            length_us=gap_us,
            tokens_estimate=self.tokens_estimate or None,
            ended_by=_ENDED_BY.get(end.error_code or "", EndedBy.CUT),
            counted=False,
        )


def rows_of_loser(attempt: int, end: AttemptEnd) -> list[StallRow]:
    """The gaps of an attempt whose content never reached the log, as its edge measured them."""
    return [_row(attempt, gap, None) for gap in end.gaps]


def ended_by_the_reader(row: StallRow) -> StallRow:
    """The row of a generation that was cancelled because no reader was left: that, and no cancel call, ended the gap."""
    return structs.replace(row, ended_by=EndedBy.DISCONNECT) if row.ended_by is EndedBy.CANCEL else row


def percentile(sorted_gaps_us: list[int], percent: int) -> int | None:
    """The nearest-rank percentile; None of nothing."""
    if not sorted_gaps_us:
        return None
    rank = -(-len(sorted_gaps_us) * percent // 100)
    return sorted_gaps_us[max(rank, 1) - 1]


def stage_of(row: StallRow, closing_seq: int, stages: dict[int, Stage]) -> Stage:
    """Where the generation stood in this gap: what a heartbeat between its two content events said.

    Args:
        row: the gap.
        closing_seq: of the content event that ended it.
        stages: ``after_seq`` of a heartbeat → its stage.
    """
    if row.seq is None:
        return row.stage
    within = [seq for seq in stages if row.seq <= seq < closing_seq]
    return stages[max(within)] if within else row.stage


def _row(attempt: int, gap: Gap, seq: int | None) -> StallRow:
    return StallRow(
        attempt=attempt,
        seq=gap.seq if gap.seq is not None else seq,
        content_index=gap.content_index,
        start_us=gap.start_us,
        length_us=gap.length_us,
        tokens_estimate=gap.tokens_estimate,
        stage=gap.stage,
        ended_by=gap.ended_by,
        counted=gap.ended_by is EndedBy.CONTENT,
    )
