"""The words between a generation's chain and who acts for it: what happened, what is to be done, what is true outside.

===========  ============================================================================================
Began        the generation is open: the first attempt begins
Delivered    an attempt has something to deliver: it is committed, the others are dropped; or it is too late
Ended        an attempt came to a proper end; where its answer does not parse, a repair may follow
Failed       an attempt failed: the end, or others still run, or another begins at once or after a wait
Due          that wait is over
Silent       everything in flight has been silent for the hedge's time
Stopped      something from outside ends the generation: everything in flight is dropped
===========  ============================================================================================

An attempt's number counts from 0 within its generation; a target is an index into ``Rules.providers``. Before:
``retries``. After: ``chain``.
"""

from typing import NamedTuple


class Rules(NamedTuple):
    """What one generation may do. ``providers``: of each target, in the order in which they are tried."""

    attempts_max: int
    backoff_ms: int
    deadline_us: int
    providers: tuple[str, ...]
    in_flight_max: int = 0
    long_prompt: bool = False
    shrink: bool = False
    repair: bool = False


class World(NamedTuple):
    """What is true outside of this generation now; targets are indexes into ``Rules.providers``.

    ``open``: no breaker is in the way; ``paid``: of those, whose own record pays for one more call of a chain that has called
    it before; ``hedge_paid``: where a hedge may go;
    ``pushed_us``: until when each one's provider asked to be left alone (0: it did not).
    """

    now_us: int
    jitter: float
    open: frozenset[int]
    paid: frozenset[int]
    hedge_paid: frozenset[int]
    pushed_us: tuple[int, ...]


class Start(NamedTuple):
    """An attempt begins, and the reason of it; ``after``: the attempt that it follows or runs beside."""

    number: int
    target: int
    reason: str = "first"
    code: str | None = None
    backoff_us: int | None = None
    after: int | None = None


class Pay(NamedTuple):
    """Take one token for an attempt at this target: it is decided, so nobody else is promised the same one."""

    target: int
    hedge: bool = False


class Commit(NamedTuple):
    """This attempt supplies the answer."""

    number: int


class Drop(NamedTuple):
    """End this attempt at its socket; it is never heard of again but in its own end."""

    number: int


class End(NamedTuple):
    """The generation ends as this attempt did."""

    number: int


class Began(NamedTuple):
    """See the table."""


class Delivered(NamedTuple):
    """See the table."""

    number: int


class Ended(NamedTuple):
    """See the table. ``unparsable``: why its answer is not the JSON that was asked for."""

    number: int
    unparsable: str | None = None


class Failed(NamedTuple):
    """See the table.

    ``asked_us``: the wait that the provider named, None where it named none; ``not_again``: it will not have this call again.
    """

    number: int
    code: str
    asked_us: int | None = None
    not_again: bool = False


class Due(NamedTuple):
    """See the table."""


class Silent(NamedTuple):
    """See the table."""

    reason: str


class Forbidden(NamedTuple):
    """A side effect was committed, or an action approved: nothing is tried again by itself."""


class Stopped(NamedTuple):
    """See the table."""


Action = Pay | Start | Commit | Drop | End
Event = Began | Delivered | Ended | Failed | Due | Silent | Forbidden | Stopped
