"""Who may begin, and who waits for that: the limits of tenants and providers, and a fair queue behind them. Pure.

A call needs room with its tenant and with one of its providers: fewer running at once than the limit says, and a start
left in the rate (a second's worth may come at once). Who finds none waits. Whenever there is room it goes to the highest
priority first, among equals to the tenant whose last turn is longest ago, within a tenant in order of arrival. Who has
waited ``age_us`` counts as one priority higher, so that a flood of urgent calls keeps nobody out for good. Nobody who could begin is ever left waiting (``turn``), so a newcomer that finds room overtakes nobody. A place is given back
once, however often that is said (``leave``). Times are monotonic microseconds. Before: the settings. After:
``admission``.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from math import ceil
from typing import NamedTuple

from schemas.errors import TokentrailError

PRIORITIES = {"high": 0, "normal": 1, "low": 2}
"""What ``X-Priority`` may say; any other word is kept on record and means normal."""


class Full(TokentrailError):
    """Nobody more may wait. ``by_tenant``: it is the tenant's own limit that this call would wait for."""

    def __init__(self, *, by_tenant: bool) -> None:
        whose = "this tenant runs" if by_tenant else "the providers of this model run"
        super().__init__(f"{whose} as many calls as allowed, and the queue behind them is full")
        self.by_tenant = by_tenant


class Bounds(NamedTuple):
    """Of one tenant or provider; None: no limit."""

    at_once: int | None = None
    per_s: float | None = None


class Rules(NamedTuple):
    """All limits. ``providers``: those that have one."""

    tenant: Bounds
    providers: Mapping[str, Bounds]
    waiting_max: int
    waiting_tenant_max: int
    age_us: int = 0  # 0: a priority is for ever


class Ask(NamedTuple):
    """What a call needs room with: its tenant, and one of the providers, the first that has some."""

    tenant: str
    providers: tuple[str, ...]
    rank: int = 1


class Stand(Enum):
    """Where a call stands."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    GONE = "gone"


class Place:
    """One call's place: in the queue, then among those that run."""

    __slots__ = ("ask", "number", "provider", "since_us", "stand")

    def __init__(self, ask: Ask, number: int, since_us: int) -> None:
        self.ask = ask
        self.since_us = since_us
        self.number = number
        self.provider = ask.providers[0]
        self.stand = Stand.WAITING


class Meter:
    """What one tenant or provider has running, and when its rate lets the next one begin."""

    __slots__ = ("_at_once", "_burst_us", "_interval_us", "_next_us", "held")

    def __init__(self, bounds: Bounds) -> None:
        self._at_once = bounds.at_once
        per_s = bounds.per_s
        self._interval_us = 0 if per_s is None else ceil(1_000_000 / per_s)
        self._burst_us = 0 if per_s is None else (max(1, int(per_s)) - 1) * self._interval_us
        self._next_us = 0  # when its rate would be used up, were all starts evenly spread
        self.held = 0

    def opens_us(self) -> int | None:
        """From when on there is room, as far as time decides; None: when somebody leaves."""
        if self._at_once is not None and self.held >= self._at_once:
            return None
        return self._next_us - self._burst_us if self._interval_us else 0

    def room(self, now_us: int) -> bool:
        """Whether one more may begin now."""
        opens_us = self.opens_us()
        return opens_us is not None and opens_us <= now_us

    def take(self, now_us: int) -> None:
        """One begins."""
        self.held += 1
        self._next_us = max(self._next_us, now_us) + self._interval_us

    def give(self) -> None:
        """One has ended."""
        self.held -= 1


class Queue:
    """Everybody who runs or waits."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._tenants: dict[str, Meter] = {}
        self._providers = {name: Meter(bounds) for name, bounds in rules.providers.items()}
        self._unlimited = Meter(Bounds())
        self._lanes: dict[Ask, deque[Place]] = {}
        self._waiting: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._number = 0
        self.waiting = 0

    def enter(self, ask: Ask, now_us: int) -> Place:
        """Come: admitted at once where there is room (nobody waits for it, see ``turn``), else waiting; raises Full."""
        place = self._place(ask, now_us)
        provider = self._free(ask, now_us)
        if provider is not None:
            self._admit(place, provider, now_us)
            return place
        waits = self._waiting.get(ask.tenant, 0)
        if self.waiting >= self._rules.waiting_max or waits >= self._rules.waiting_tenant_max:
            raise Full(by_tenant=not self._tenant(ask.tenant).room(now_us))
        self._lanes.setdefault(ask, deque()).append(place)
        self._count(ask.tenant, 1)
        return place

    def force(self, ask: Ask, now_us: int) -> Place:
        """Begin above the limits if need be: what goes on for one that is just ending."""
        place = self._place(ask, now_us)
        self._admit(place, self._free(ask, now_us) or ask.providers[0], now_us)
        return place

    def turn(self, now_us: int) -> list[Place]:
        """Admit everybody who may begin by now, in order; to be asked after each ``leave`` and at ``wake_us``."""
        admitted = []
        while self._lanes:
            free = [
                (self._rank(lane[0], now_us), self._turns.get(ask.tenant, 0), lane[0].number, ask, provider)
                for ask, lane in self._lanes.items()
                if (provider := self._free(ask, now_us)) is not None
            ]
            if not free:
                break
            *_, ask, provider = min(free)
            place = self._lanes[ask][0]
            self._unqueue(place)
            self._admit(place, provider, now_us)
            admitted.append(place)
        return admitted

    def wake_us(self) -> int | None:
        """When somebody who waits may begin although nobody left; None where only that helps."""
        times = []
        for ask in self._lanes:
            own_us = self._tenant(ask.tenant).opens_us()
            others = [o for name in ask.providers if (o := self._provider(name).opens_us()) is not None]
            if own_us is not None and others:
                times.append(max(own_us, min(others)))
        return min(times, default=None)

    def leave(self, place: Place) -> None:
        """Go, from the queue or at the end; of one that has gone nothing changes."""
        if place.stand is Stand.WAITING:
            self._unqueue(place)
        elif place.stand is Stand.ADMITTED:
            self._tenant(place.ask.tenant).give()
            self._provider(place.provider).give()
        place.stand = Stand.GONE

    def held(self, tenant: str) -> int:
        """How many of a tenant run."""
        return self._tenant(tenant).held

    def _place(self, ask: Ask, now_us: int) -> Place:
        self._number += 1
        return Place(ask, self._number, now_us)

    def _rank(self, place: Place, now_us: int) -> int:
        """Its priority by now: the first of a lane has waited longest."""
        aged = (now_us - place.since_us) // self._rules.age_us if self._rules.age_us else 0
        return max(0, place.ask.rank - aged)

    def _admit(self, place: Place, provider: str, now_us: int) -> None:
        place.stand, place.provider = Stand.ADMITTED, provider
        self._turns[place.ask.tenant] = self._number = self._number + 1
        self._tenant(place.ask.tenant).take(now_us)
        self._provider(provider).take(now_us)

    def _unqueue(self, place: Place) -> None:
        lane = self._lanes[place.ask]
        lane.remove(place)
        if not lane:
            del self._lanes[place.ask]
        self._count(place.ask.tenant, -1)

    def _count(self, tenant: str, more: int) -> None:
        self.waiting += more
        left = self._waiting[tenant] = self._waiting.get(tenant, 0) + more
        if not left:
            del self._waiting[tenant]

    def _free(self, ask: Ask, now_us: int) -> str | None:
        if not self._tenant(ask.tenant).room(now_us):
            return None
        return next((name for name in ask.providers if self._provider(name).room(now_us)), None)

    def _tenant(self, tenant: str) -> Meter:
        """Tenants come from the keys, so they are as few as those."""
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = Meter(self._rules.tenant)
        return found

    def _provider(self, name: str) -> Meter:
        return self._providers.get(name, self._unlimited)
