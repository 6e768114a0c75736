"""How a generation ends: attempt_end, then exactly one terminal, written in one place.

``Ending`` is what the attempt came to; ``write_ending`` makes the records of it. A proper end carries the protocol's
own end mark (the provider's, or ours where none came); an error carries the provider's own error event where it fits a
bounded terminal, else ours. Before: ``attempt``. After: ``recorder``.
"""

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import orjson

from edge.dialects import Captured, Dialect
from edge.dialects.reading import NotJson, fields, load
from edge.driving.timing import Marks, breakdown
from edge.generation import Head
from schemas.events import (
    BillingSummary,
    ErrorEnd,
    Kind,
    LatencyBreakdown,
    LogEvent,
    MessageEnd,
    Outcome,
    ProviderError,
    Resources,
    Usage,
)
from schemas.failures import error_body, error_frame
from schemas.lifecycle import Signal, State
from schemas.outcomes import ERRORS, finish_reason_of
from schemas.usage import normalise

if TYPE_CHECKING:
    from edge.attempts.attempt_result import AttemptResult
    from edge.driver import Driver

RAW_ERROR_BYTES_MAX = 16_384
"""A terminal is bounded: a provider's error event above this is replaced by ours with its message cut."""

RAW_USAGE_CHARS_MAX = 16_384
"""The same bound for the provider's usage reports, which a hostile one can make as large as a frame."""


class Ending(NamedTuple):
    """What an attempt came to. ``code`` None: a proper end."""

    code: str | None = None
    message: str = ""
    cancelled: bool = False
    raw: str | None = None
    raw_event: str | None = None
    provider_error: ProviderError | None = None
    retry_after_ms: int | None = None
    not_again: bool = False  # the provider will not have this call again

    @classmethod
    def proper(cls, dialect: Dialect) -> "Ending":
        """A proper end whose mark did not come: ours stands for it."""
        return cls(raw=dialect.end_raw, raw_event=dialect.end_event)

    @classmethod
    def of_failure(cls, captured: Captured) -> "Ending":
        """An error in band: the provider's own event goes on where it is of its dialect."""
        code, said = captured.failure or ("upstream_error", ProviderError())
        return cls(
            code=code,
            message=said.message or ERRORS[code].meaning,
            raw=captured.raw if code != "upstream_protocol" else None,
            raw_event=captured.raw_event,
            provider_error=said,
        )


def interruption(code: str) -> Ending:
    """How an attempt ends that was ended from outside, by the code of what ended it."""
    known = code if code in ERRORS else "log_unavailable"
    return Ending(code=known, cancelled=known == "cancelled", message=ERRORS[known].meaning)


def write_ending(driver: "Driver", result: "AttemptResult", ending: Ending, *, terminal: bool) -> None:
    """Append attempt_end (unless it is written) and the terminal (unless another writer has put one)."""
    recorder = driver.recorder
    if not result.written:
        outcome = result.outcome = _outcome_of(ending)
        recorder.trace(
            Kind.ATTEMPT_END, attempt=result.attempt, attempt_end=result.record(outcome, ending.code)
        )
        result.written = True
    if not terminal:
        return
    usage = usage_of(driver, result)
    if ending.code is None or ending.cancelled:
        _message_end(driver, result, ending, usage)
    else:
        _error(driver, result, ending, usage)


def end_unbegun(driver: "Driver", code: str, message: str, successor: str | None) -> None:
    """End a generation of which no attempt was announced: an error, and nothing else."""
    generation, recorder = driver.generation, driver.recorder
    if generation.state is State.FINALIZED:
        return
    raw_event, raw = error_frame(driver.dialect.name, code, message, recorder.next_seq)
    row, elapsed_us = ERRORS[code], recorder.elapsed_us()
    recorder.numbered(
        Kind.ERROR,
        elapsed_us,
        raw=raw,
        raw_event=raw_event,
        error=ErrorEnd(
            code=code,
            message=message,
            retryable=row.retryable,
            finish_reason=row.finish_reason,
            partial_output_hash=recorder.digest.output_hash(),
            attempts=0,
            successor=successor,
            released=driver.holdings.give_back((), elapsed_us, void=True),
        ),
    )
    generation.signal(Signal.TERMINAL)
    generation.head.set_result(head_of(driver.dialect, Ending(code=code, message=message)))


def head_of(dialect: Dialect, ending: Ending) -> Head:
    """What the response head says where nothing was streamed: the failure's own status, in the dialect's own shape.

    The provider's error body goes on as it came where it is one and is whole.
    """
    if ending.code is None:
        return Head(ok=True)
    said = ending.provider_error
    status = said.status if said is not None else None
    if status is None or not 400 <= status <= 599:  # noqa: PLR2004 - HTTP's own numbers; no other is a failure to a client
        status, said = ERRORS[ending.code].status, None
    raw = said.raw if said is not None else None
    if raw is not None and _is_error_body(raw):
        body = raw.encode()
    else:
        body = orjson.dumps(error_body(dialect.name, ending.code, ending.message, status))
    return Head(ok=False, status=status, body=body, code=ending.code, retry_after_ms=ending.retry_after_ms)


def head_of_event(dialect: Dialect, event: LogEvent) -> Head:
    """The same of a generation that is read from the log, by the first event of it that a client is shown."""
    if event.error is not None:
        said = event.error
        return head_of(
            dialect,
            Ending(
                code=said.code,
                message=said.message,
                provider_error=said.upstream_error,
                retry_after_ms=said.retry_after_ms,
            ),
        )
    if event.message_end is not None and event.message_end.finish_reason == "cancelled":
        return head_of(dialect, Ending(code="cancelled", message=ERRORS["cancelled"].meaning))
    return Head(ok=True)


def _is_error_body(text: str) -> bool:
    try:
        return "error" in fields(load(text))
    except NotJson:  # no JSON, or a longer body of which only the beginning was kept
        return False


def _outcome_of(ending: Ending) -> Outcome:
    if ending.cancelled:
        return Outcome.CANCELLED
    return {None: Outcome.OK, "edge_lost": Outcome.LOST}.get(ending.code, Outcome.FAILED)


def usage_of(driver: "Driver", result: "AttemptResult") -> Usage | None:
    """The normalised usage of an attempt; its reports as received only where they fit (their frames hold them too)."""
    convention = result.target.provider.usage_convention
    usage = normalise(driver.dialect.name, result.capture.state.usage_reports, convention=convention)
    if usage is not None and usage.raw is not None and len(usage.raw) > RAW_USAGE_CHARS_MAX:
        return msgspec.structs.replace(usage, raw=None)
    return usage


def _message_end(driver: "Driver", result: "AttemptResult", ending: Ending, usage: Usage | None) -> None:
    recorder, state = driver.recorder, result.capture.state
    choices = [state.finishes[index] for index in sorted(state.finishes)]
    first = choices[0] if choices else None
    reason = "cancelled" if ending.cancelled else first.finish_reason if first else finish_reason_of(None)
    raw, raw_event = ending.raw, ending.raw_event
    if raw is not None:
        raw = driver.dialect.at_seq(raw, recorder.next_seq)
    if ending.cancelled:
        raw_event, raw = error_frame(driver.dialect.name, "cancelled", ending.message, recorder.next_seq)
    elapsed_us = recorder.elapsed_us()
    recorder.numbered(
        Kind.MESSAGE_END,
        elapsed_us,
        attempt=result.attempt,
        raw=raw,
        raw_event=raw_event,
        message_end=MessageEnd(
            finish_reason=reason,
            raw_finish_reason=first.raw_finish_reason if first else None,
            choices=choices if len(choices) > 1 else [],
            stop_rule_id=None if ending.cancelled else state.stop_rule_id,
            usage=usage,
            latency=_latency(driver, result, elapsed_us),
            output_hash=recorder.digest.output_hash(),
            attempts=driver.attempts_made,
            tokens_generated=result.capture.tokens_estimate,
            tokens_delivered=recorder.tokens_delivered,
            postprocess_result=result.capture.check.result(ended_properly=not ending.cancelled),
            upstream_id=state.upstream_id,
            served_model=state.served_model,
            cancel=driver.cancel,
            billing=_billing(usage or result.estimate()),
            released=_released(driver, result, elapsed_us, void=False),
        ),
    )


def _billing(usage: Usage | None) -> BillingSummary:
    if usage is None:
        return BillingSummary()
    buckets = (usage.input, usage.cache_read, usage.cache_write, usage.output)
    known = [count for count in buckets if count is not None]
    return BillingSummary(usage_source=usage.source, billable_units=sum(known) if known else None)


def _error(driver: "Driver", result: "AttemptResult", ending: Ending, usage: Usage | None) -> None:
    recorder, state = driver.recorder, result.capture.state
    code = ending.code or "upstream_error"
    raw, raw_event = ending.raw, ending.raw_event
    ours = raw is None or len(raw.encode()) > RAW_ERROR_BYTES_MAX or '"error"' not in raw
    message = ending.message[:RAW_ERROR_BYTES_MAX]
    if ours or raw is None or driver.successor is not None:
        status = ending.provider_error.status if ending.provider_error else None
        raw_event, raw = error_frame(
            driver.dialect.name, code, message, recorder.next_seq, driver.successor, status
        )
    else:
        raw = driver.dialect.at_seq(raw, recorder.next_seq)
    row = ERRORS[code]
    elapsed_us = recorder.elapsed_us()
    recorder.numbered(
        Kind.ERROR,
        elapsed_us,
        attempt=result.attempt,
        raw=raw,
        raw_event=raw_event,
        error=ErrorEnd(
            code=code,
            message=message,
            successor=driver.successor,
            retryable=row.retryable,
            retry_after_ms=ending.retry_after_ms,
            finish_reason=row.finish_reason,
            partial_output_hash=recorder.digest.output_hash(),
            tokens_generated=result.capture.tokens_estimate,
            tokens_delivered=recorder.tokens_delivered,
            attempts=driver.attempts_made,
            upstream_error=ending.provider_error,
            usage=usage,
            latency=_latency(driver, result, elapsed_us),
            upstream_id=state.upstream_id,
            served_model=state.served_model,
            postprocess_result=result.capture.check.result(ended_properly=result.unchecked),
            released=_released(driver, result, elapsed_us, void=not recorder.digest.content_bytes),
        ),
    )


def _released(driver: "Driver", result: "AttemptResult", elapsed_us: int, *, void: bool) -> Resources:
    return driver.holdings.give_back((*driver.race.results.values(), result), elapsed_us, void=void)


def _latency(driver: "Driver", result: "AttemptResult", elapsed_us: int) -> LatencyBreakdown:
    """The parts of the whole, from the edge's own clock and the provider's word; what was not observed is None."""
    marks = Marks(
        total_us=elapsed_us,
        first_dispatched_us=driver.first_dispatched_us,
        dispatched_us=result.dispatched_us,
        first_content_us=result.capture.first_content_us,
        last_content_us=result.capture.last_content_us,
        emitted_us=driver.generation.first_emit_us,
        context_ms=driver.generation.identity.start.context_ms,
        admission_us=driver.generation.admission_us,
    )
    return breakdown(marks, result.provider_timing)
