"""The times of an ``upstream`` vector: what the product says it took, and what either end measured from outside.

Before it: ``observed``. After it: ``upstream_checks``.
"""

import itertools

from schemas.events import PartType

from .values import within


def _in_ms(value, wanted, what):
    assert within(value, wanted), f"{what}: {value} ms is not in {wanted}"


def ttft_ms(seen, wanted):
    """Dispatch to the first content of any kind: by the row, and by the attempt's record."""
    end = seen.delivered.end
    _in_ms((end.first_content_us - end.dispatched_us) / 1000, wanted, "attempt_end")
    _in_ms(seen.row.timings.attempt_ttft_us / 1000, wanted, "row")


def ttft_text_ms(seen, wanted):
    """Dispatch to the first text."""
    first = next(e for e in seen.numbered for p in e.canonical if p.type is PartType.TEXT and p.text)
    _in_ms((first.elapsed_us - seen.delivered.end.dispatched_us) / 1000, wanted, "log")
    _in_ms(seen.row.timings.attempt_ttft_text_us / 1000, wanted, "row")


def terminal_ms(seen, wanted):
    """Dispatch to the terminal: in the log, and at the client."""
    dispatched_us = seen.attempts[0].end.dispatched_us
    _in_ms((seen.terminal.elapsed_us - dispatched_us) / 1000, wanted, "log")
    _in_ms((seen.client.ended_s - seen.player.requests[0].received_s) * 1000, wanted, "wire")


def terminal_after_content_ms(seen, wanted):
    """Last content to the terminal."""
    last_us, _ = seen.contents()[-1]
    _in_ms((seen.terminal.elapsed_us - last_us) / 1000, wanted, "log")
    content_s = [at_s for at_s, chunk in seen.wire_chunks() if seen.speaks.texts(chunk)]
    if seen.wire_texts():
        _in_ms((seen.client.events[-1].at_s - content_s[0]) * 1000, [0, wanted[1] * 2], "wire")


def terminal_after_last_byte_ms(seen, wanted):
    """The provider's last write to the terminal at the client."""
    written_s = seen.player.requests[seen.delivered.attempt].writes[-1].at_s
    _in_ms((seen.client.events[-1].at_s - written_s) * 1000, wanted, "wire")


def attempt_ms(seen, wanted):
    """Each attempt's own length."""
    for record, limits in zip(seen.attempts, wanted, strict=True):
        if limits is not None:
            _in_ms(record.end.elapsed_us / 1000, limits, f"attempt {record.attempt}")


def attempt_gap_ms(seen, wanted):
    """The end of one attempt to the dispatch of the next: on record, and between the requests that were received."""
    for index, limits in enumerate(wanted):
        before, after = seen.attempts[index].end, seen.attempts[index + 1].end
        ended_us = before.dispatched_us + before.elapsed_us
        _in_ms((after.dispatched_us - ended_us) / 1000, limits, "log")
        requests = seen.player.requests
        _in_ms((requests[index + 1].received_s - requests[index].writes[-1].at_s) * 1000, limits, "wire")


def head_ms(seen, wanted):
    """The request to the response head."""
    _in_ms((seen.client.head_s - seen.client.sent_s) * 1000, wanted, "wire")


def delta_lag_ms(seen, wanted):
    """Each text delta: written by the provider to read by the client."""
    for written_s, read_s in seen.text_arrivals():
        _in_ms((read_s - written_s) * 1000, wanted, "wire")


def max_silence_ms(seen, wanted):
    """The longest time without a single byte at the client."""
    instants = [seen.client.sent_s, seen.client.head_s, *(at_s for at_s, _ in seen.client.pieces)]
    silences = [later - earlier for earlier, later in itertools.pairwise(instants)]
    _in_ms(max(silences) * 1000, wanted, "wire")


TIMING = {
    "ttft_ms": ttft_ms,
    "ttft_text_ms": ttft_text_ms,
    "terminal_ms": terminal_ms,
    "terminal_after_content_ms": terminal_after_content_ms,
    "terminal_after_last_byte_ms": terminal_after_last_byte_ms,
    "attempt_ms": attempt_ms,
    "attempt_gap_ms": attempt_gap_ms,
    "head_ms": head_ms,
    "delta_lag_ms": delta_lag_ms,
    "max_silence_ms": max_silence_ms,
}
