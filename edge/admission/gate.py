"""Admission: a call waits here, before anything of it is in the log, until its tenant and a provider have room for it.

Off while no limit is set: nobody waits and nothing is counted. The wait is bounded by ``admission.wait_s`` and by the
call's own ``X-Deadline-Ms``; who is refused, gives up or is cancelled leaves no trace in the queue. A ``Slot`` is held
from then until the generation is over, and given back once. Before: ``routes``. After: ``service`` begins the generation.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from edge.admission.queueing import PRIORITIES, Ask, Bounds, Full, Place, Queue, Rules, Stand
from edge.driving.opening import positive_ms
from edge.log import LogAway
from schemas.errors import TokentrailError
from schemas.settings import ApiKey, Settings

if TYPE_CHECKING:
    from edge.policy.routes import Target

AGES = 4
"""A quarter of the longest wait makes a call one priority higher: the lowest is as urgent as any at half of it."""
STOPPING = "this edge is stopping; another one can"


class TenantFull(TokentrailError):
    """The tenant's own limit, and the queue behind it."""


class ProviderFull(TokentrailError):
    """The limits of the model's providers, and the queue behind them."""


class WaitedTooLong(TokentrailError):
    """No room came within the time that the call could wait."""


class Slot:
    """A call's leave to run. ``waited_us``: None where nothing is limited."""

    def __init__(self, place: Place | None, waited_us: int | None, give: Callable[[Place], None]) -> None:
        self._place = place
        self._give = give
        self.waited_us = waited_us

    @property
    def held(self) -> bool:
        """Whether it is a place among those that are counted, and not given back yet."""
        return self._place is not None and self._place.stand is Stand.ADMITTED

    def first(self, targets: "list[Target]") -> "list[Target]":
        """The targets with the one first that has room for this call."""
        if self._place is None:
            return targets
        provider = self._place.provider
        return sorted(targets, key=lambda target: target.route.provider != provider)

    def release(self) -> None:
        """The generation is over, or never began; said again, nothing happens."""
        if self._place is not None:
            self._give(self._place)


class Admission:
    """The queue of one edge, on its clock.

    Args:
        settings: the limits.
        now_us: the process's monotonic microseconds.
        show: is given what counts the waiting.

    """

    def __init__(
        self, settings: Settings, now_us: Callable[[], int], show: Callable[[Callable[[], float]], None]
    ) -> None:
        asked = settings.admission
        rules = Rules(
            Bounds(asked.tenant_generations, asked.tenant_starts_per_s),
            {name: Bounds(p.generations, p.starts_per_s) for name, p in settings.providers.items()},
            asked.waiting_max,
            asked.waiting_tenant_max,
            int(asked.wait_s * 1_000_000 / AGES),
        )
        self._on = any(one != Bounds() for one in (rules.tenant, *rules.providers.values()))
        self._wait_s = asked.wait_s
        self._now_us = now_us
        self._waiting: dict[Place, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.queue = queue = Queue(rules)
        show(lambda: queue.waiting)

    async def admit(
        self, caller: ApiKey, targets: "Sequence[Target]", headers: Mapping[str, str], *, follows: bool
    ) -> Slot:
        """Wait for room; raises TenantFull, ProviderFull, WaitedTooLong, LogAway.

        What follows a generation that is just ending does not wait for its place: they would wait for one another.
        """
        if not self._on:
            return Slot(None, None, self._leave)
        ask = Ask(
            caller.tenant,
            tuple(dict.fromkeys(target.route.provider for target in targets)),
            _rank(headers.get("x-priority"), caller),
        )
        began_us = self._now_us()
        if follows:
            return Slot(self.queue.force(ask, began_us), 0, self._leave)
        self._turn()
        try:
            place = self.queue.enter(ask, began_us)
        except Full as full:
            raise (TenantFull if full.by_tenant else ProviderFull)(str(full)) from full
        if place.stand is Stand.WAITING:
            deadline_ms = positive_ms(headers, "x-deadline-ms")
            bound_s = self._wait_s if deadline_ms is None else min(self._wait_s, deadline_ms / 1000)
            await self._wait(place, bound_s)
        return Slot(place, self._now_us() - began_us, self._leave)

    def stop(self) -> None:
        """Who still waits does so in vain."""
        for waits in self._waiting.values():
            if not waits.done():
                waits.set_exception(LogAway(STOPPING))

    async def _wait(self, place: Place, bound_s: float) -> None:
        waits = self._waiting[place] = asyncio.get_running_loop().create_future()
        self._arm()
        try:
            async with asyncio.timeout(bound_s):
                await waits
        except TimeoutError as error:
            self._leave(place)
            raise WaitedTooLong(f"no room for this call within {bound_s} s (admission.wait_s)") from error
        except BaseException:
            self._leave(place)
            raise
        finally:
            del self._waiting[place]

    def _leave(self, place: Place) -> None:
        self.queue.leave(place)
        self._turn()

    def _turn(self) -> None:
        for place in self.queue.turn(self._now_us()):
            waits = self._waiting[place]
            if not waits.done():  # else it is on its way out, and leaves the place that it was given
                waits.set_result(None)
        self._arm()

    def _arm(self) -> None:
        """Wake when the rate of somebody has room again."""
        if self._timer is not None:
            self._timer.cancel()
        wake_us = self.queue.wake_us()
        self._timer = None
        if wake_us is not None:
            wait_s = max(0, wake_us - self._now_us()) / 1_000_000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._turn)


def _rank(said: str | None, caller: ApiKey) -> int:
    """A key must be allowed to go first; everybody may stand back."""
    rank = PRIORITIES.get(said or "normal", PRIORITIES["normal"])
    return rank if "priority" in caller.allow else max(rank, PRIORITIES["normal"])
