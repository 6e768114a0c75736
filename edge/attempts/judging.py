"""What stands between a provider's proper end and its attempt's: the answer is checked, then delivered, if it is not yet.

The check is work of our own, so it has a time of its own (``timeout.postprocess_s``) and none of the provider's is
counted meanwhile. Most answers are judged in one slice, at once; what takes longer lets everybody else have their turn
between two slices. Whose time is over is tried once more from the beginning, here and without any provider (an edge may
have been busy); then nobody knows whether the answer is what was asked for, and its generation ends as
``postprocess_timeout`` behind all of it. Before: ``attempt``. After: ``race``.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from edge.attempts.attempt_result import LOST_RACE, AttemptResult

if TYPE_CHECKING:
    from edge.attempts.attempt import Attempt
    from edge.attempts.output_check import OutputCheck

TRIES: Final = 2
_OVER: Final = object()


async def judged(attempt: "Attempt", result: AttemptResult) -> AttemptResult:
    """The same result, checked and delivered where it is a proper end; unless it may be repaired."""
    if result.ending.code is not None:
        return result
    driver, capture = attempt.driver, attempt.capture
    if next(capture.check.judge(), _OVER) is not _OVER:
        attempt.watch.ended()
        driver.timers.rearm()
        result.unchecked = not await _in_time(capture.check, driver.settings.timeout.postprocess_s)
    if attempt.committed or attempt.interrupted == LOST_RACE:
        return result
    if attempt.hold.whole and driver.wishes.repair:
        result.unparsable = capture.unparsable()
    if result.unparsable is None:
        driver.race.delivered(attempt)
    return result


async def _in_time(check: "OutputCheck", within_s: float) -> bool:
    """Judge in slices; whether that was done within the time, the second one included."""
    for _ in range(TRIES):
        try:
            async with asyncio.timeout(within_s):
                for _ in check.judge():
                    await asyncio.sleep(0)
        except TimeoutError:
            continue
        return True
    check.give_up()
    return False
