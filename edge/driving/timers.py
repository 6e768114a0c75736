"""The clocks of one running generation: its next time-out, its heartbeat in the log, the outage of the log.

Each is one armed timer of the event loop; what they decide is in ``watch`` (pure) and in the settings. Before:
``watch``. After: ``race``.
"""

import asyncio
from collections.abc import Callable

from edge.clock import Clock
from edge.generation import Generation
from edge.recorder import LOG_UNAVAILABLE, Recorder
from schemas.events import Heartbeat, Kind
from schemas.lifecycle import STAGES, State
from schemas.settings import Settings

CALL_TURNS = 3
"""Turns of the loop until a provider's request is on its socket: the driver begins, its attempt does, the body is written."""
DELIVERY_CHECKS = 4
"""So many looks at the oldest unacknowledged record within the delivery time."""


class Timers:
    """The armed timers.

    Args:
        generation: whose clocks these are.
        recorder: writes the heartbeats.
        settings: their times.
        clock: the process's.
        deadline_us: when the next time-out expires.
        expire: acts on those that have.
        interrupt: called where the log is away.

    """

    def __init__(
        self,
        generation: Generation,
        recorder: Recorder,
        settings: Settings,
        clock: Clock,
        deadline_us: Callable[[], int],
        expire: Callable[[int], None],
        interrupt: Callable[[str], None],
    ) -> None:
        self._generation = generation
        self._recorder = recorder
        self._settings = settings
        self._clock = clock
        self._deadline_us = deadline_us
        self._expire = expire
        self._interrupt = interrupt
        self._stopped = False
        self._deadline: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.Handle | None = None
        self._delivery: asyncio.TimerHandle | None = None
        self._looked_us = clock.now_us()

    def start(self) -> None:
        """Arm all of them; the first heartbeat is written at once, as far as the provider's request does not wait for it."""
        self._looked_us = self._clock.now_us()
        self._beat_after(CALL_TURNS)
        self._check_delivery()
        self._arm()

    def stop(self) -> None:
        """Disarm all of them."""
        self._stopped = True
        for handle in (self._deadline, self._heartbeat, self._delivery):
            if handle is not None:
                handle.cancel()

    def rearm(self) -> None:
        """A deadline came nearer (a dispatch, a finish): arm again."""
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._stopped:
            self._arm()

    def _arm(self) -> None:
        """One timer at the next deadline; deadlines mostly move back, so it looks again when it fires."""
        delay_s = max(0, self._deadline_us() - self._recorder.elapsed_us()) / 1e6
        self._deadline = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        if self._generation.state is State.FINALIZED:
            return
        now_us = self._recorder.elapsed_us()
        if now_us >= self._deadline_us():
            self._expire(now_us)
        if self._deadline_us() > now_us:
            self._arm()

    def _beat_after(self, turns: int) -> None:
        if turns:
            self._heartbeat = asyncio.get_running_loop().call_soon(self._beat_after, turns - 1)
        else:
            self._beat()

    def _beat(self) -> None:
        """The liveness that the orphan finder watches."""
        if self._generation.state is State.FINALIZED:
            return
        elapsed_ms = self._recorder.elapsed_us() // 1000
        stage = STAGES[self._generation.state]
        self._recorder.trace(Kind.HEARTBEAT, heartbeat=Heartbeat(stage=stage, elapsed_ms=elapsed_ms))
        self._heartbeat = asyncio.get_running_loop().call_later(self._settings.stream.heartbeat_s, self._beat)

    def _check_delivery(self) -> None:
        """An outage of the log: past the delivery time readers are told, and the provider is not read any more.

        An edge that stood still itself looks once more first: the acknowledgements wait in its socket.
        """
        deliver_s, now_us = self._settings.log.delivery_s, self._clock.now_us()
        slept = now_us - self._looked_us > 2 * deliver_s * 1e6 / DELIVERY_CHECKS
        self._looked_us = now_us
        oldest_us = self._recorder.oldest_unacked_us
        if not slept and oldest_us is not None and now_us - oldest_us > deliver_s * 1e6:
            self._generation.log_away = True
            self._generation.wake()
            self._interrupt(LOG_UNAVAILABLE)
        elif self._generation.state is not State.FINALIZED:
            loop = asyncio.get_running_loop()
            self._delivery = loop.call_later(deliver_s / DELIVERY_CHECKS, self._check_delivery)
