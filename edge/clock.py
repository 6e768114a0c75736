"""Time, ids and randomness of the edge: owned here, given to everything else as an argument.

``now_us`` is CLOCK_BOOTTIME where there is one: a sleeping machine's monotonic clock stands still, and the lease must
not. Before: ``app``. After: ``generation``.
"""

import random
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(NamedTuple):
    """Where time comes from. ``now_us``: monotonic microseconds; ``wall_us``: UTC, Unix microseconds."""

    now_us: Callable[[], int]
    wall_us: Callable[[], int]
    random_bits: Callable[[int], int]
    jitter: Callable[[], float]


def system_clock() -> Clock:
    """The machine's own."""
    return Clock(
        now_us=lambda: time.clock_gettime_ns(_CLOCK) // 1000,
        wall_us=lambda: time.time_ns() // 1000,
        random_bits=secrets.randbits,
        jitter=random.random,
    )
