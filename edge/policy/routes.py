"""In which order the ways to serve a model are tried. Pure.

Routes of a lower rank come first; without a rank each route is its own, in the order of the settings. Routes of one rank
share their traffic by weight: which of them is first is drawn for each call, in proportion. Weight 0: never first, only
where all of its rank before it failed. Before: ``settings``. After: ``opening``, ``chain``.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from schemas.settings import Provider, Route


class Target(NamedTuple):
    """Where an attempt goes."""

    route: Route
    provider: Provider


def in_order(routes: Sequence[Route], chance: Callable[[], float]) -> list[Route]:
    """The routes as one call tries them.

    Args:
        routes: as the settings list them.
        chance: random numbers in [0, 1).

    """
    ranks: dict[int, list[Route]] = {}
    for position, route in enumerate(routes):
        ranks.setdefault(position if route.rank is None else route.rank, []).append(route)
    return [route for rank in sorted(ranks) for route in _drawn(ranks[rank], chance)]


def _drawn(routes: list[Route], chance: Callable[[], float]) -> list[Route]:
    """The routes of one rank, one after the other drawn by weight."""
    left, drawn = list(routes), []
    while len(left) > 1 and (whole := sum(route.weight for route in left)) > 0:
        mark = chance() * whole
        for route in left:
            mark -= route.weight
            if mark < 0:
                break
        left.remove(route)
        drawn.append(route)
    return drawn + left
