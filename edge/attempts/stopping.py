"""What an attempt that we ended came to, what of it a provider's record is told, and which attempt a terminal speaks of.

Before: ``attempt_result``. After: ``race``.
"""

from typing import TYPE_CHECKING

from msgspec import structs

from edge.attempts.attempt_result import LOST_RACE, AttemptResult
from edge.driving.ending import Ending, interruption, write_ending
from edge.driving.watch import USAGE_GRACE
from edge.provider.health import Health, Outcome
from edge.recorder import LOG_UNAVAILABLE
from schemas.events import CancelRequested, EndedBy, Stage, ToolStatus

if TYPE_CHECKING:
    from edge.attempts.attempt import Attempt
    from edge.driver import Driver
    from edge.generation import Generation

FOREIGN_TERMINAL = "foreign_terminal"
"""Another writer (the orphan finder) has ended the generation: only the attempt's end is left to be said."""
_ENDED_BY = {
    "cancelled": EndedBy.CANCEL,
    "edge_lost": EndedBy.CUT,
    LOG_UNAVAILABLE: EndedBy.CUT,
    FOREIGN_TERMINAL: EndedBy.CUT,
    LOST_RACE: EndedBy.HEDGE,
}
_EMPTY_BY_RIGHT = frozenset({"content_filter", "length"})
"""Finish reasons with which an answer without content is no fault of the provider."""


def met(
    cancel: CancelRequested, generation: "Generation", at_us: int, tokens: int, tool: ToolStatus | None
) -> CancelRequested:
    """A cancel call with what it met: where the generation stood, and who read how far of it."""
    return structs.replace(
        cancel,
        stage=Stage(generation.stage),
        at_us=at_us,
        tokens_generated=tokens,
        policy=generation.on_disconnect,
        last_seq=generation.sent_seq,
        disconnect_reason=generation.left_because,
        tool=tool,
    )


def interrupted(driver: "Driver", attempt: "Attempt") -> AttemptResult:
    """What an attempt came to that was ended from outside: by its own time, a lost race, or whatever ends them all."""
    code = attempt.interrupted or driver.interrupted or "cancelled"
    if code == USAGE_GRACE:
        return attempt.result(Ending.proper(driver.dialect))
    ended_by = _ENDED_BY.get(code, EndedBy.WATCHDOG)
    if code == "cancelled" and driver.cancel is not None and driver.cancel.reason == "client_disconnect":
        ended_by = EndedBy.DISCONNECT
    return attempt.result(interruption("cancelled" if code == LOST_RACE else code), ended_by=ended_by)


def only_its_usage_is_missing(attempt: "Attempt") -> bool:
    """Whether its task was cancelled for that alone: it goes on, to an end as it should be."""
    if attempt.interrupted != USAGE_GRACE or attempt.driver.interrupted is not None or attempt.task is None:
        return False
    return attempt.task.uncancel() == 0


def report(health: Health, result: AttemptResult, now_us: int) -> None:
    """Feed the provider's record, unless we ended the attempt."""
    attempt, ending, capture = result.of, result.ending, result.capture
    name = attempt.target.route.provider
    if is_a_lesson(result):
        until_us = capture.first_content_us or attempt.driver.recorder.elapsed_us()
        health.latencies.add(name, attempt.model, until_us - (attempt.dispatched_us or 0))
    if ending.cancelled or attempt.interrupted == LOST_RACE:
        health.let_go(name, attempt.called_us)
        return
    words = {finish.finish_reason for finish in capture.state.finishes.values()}
    content = capture.content_events > 0 or bool(words & _EMPTY_BY_RIGHT)
    asked_us = None if ending.retry_after_ms is None else ending.retry_after_ms * 1000
    health.ended(name, Outcome(ending.code, content, asked_us), attempt.called_us, now_us)


def is_a_lesson(result: AttemptResult) -> bool:
    """Whether an attempt says how soon its provider answers: it did, or it lost while it was waited for."""
    attempt = result.of
    if attempt.driver.wishes.hedge.quantile is None or attempt.dispatched_us is None:
        return False
    return result.capture.first_content_us is not None or attempt.interrupted == LOST_RACE


def last_of_stopped(driver: "Driver", results: list[AttemptResult]) -> AttemptResult:
    """What a generation that was interrupted ends with: its committed attempt, else the first that is still open.

    Where its time is over and there is an answer that was to be repaired, that is given.
    """
    code = driver.interrupted or "cancelled"
    spare = next((r for r in results if r.attempt == driver.race.chain.spare), None)
    if spare is not None and code == "timeout" and not any(r.committed for r in results):
        spare.of.commit()
        return spare
    open_ends = [result for result in results if not result.written]
    result = next((r for r in open_ends if r.committed), None) or next(iter(open_ends), None)
    if result is None:  # it was waiting for the next attempt
        result = max(results, key=lambda r: r.attempt)
        result.ending = interruption(code)
    elif result.ending.code is None and not result.committed:  # its answer was held, and is nobody's now
        write_ending(driver, result, result.ending, terminal=False)
        result.ending = interruption(code)
    elif driver.cancel is not None and result.ending.code not in (None, "cancelled"):
        write_ending(driver, result, result.ending, terminal=False)
        result.ending = interruption("cancelled")
    return result


def last_of_abandoned(driver: "Driver", results: list[AttemptResult]) -> AttemptResult | None:
    """The same where a bug of ours ended the driver; the other ends are written."""
    open_ends = [result for result in results if not result.written]
    last = next((r for r in open_ends if r.committed), None) or next(iter(open_ends or results[-1:]), None)
    for result in open_ends:
        if result is not last:
            write_ending(driver, result, result.ending, terminal=False)
    if last is not None:
        last.ending = interruption("edge_lost")
    return last
