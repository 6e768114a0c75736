"""The six states of a session, as one table. Pure. Before: the package's map. After: ``frames``.

``CONNECTING`` nothing was heard yet · ``STREAMING`` events come · ``PAUSED`` the connection is gone, the time to ask again
has not come · ``RESUMING`` asked again · ``COMPLETED`` the terminal is there (an ``error`` terminal too) ·
``CANCELLED`` given up: by the application, by a refusal (401, 410 …), or by a time-out; the reason is beside it.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Where a session stands."""

    CONNECTING = "connecting"
    STREAMING = "streaming"
    PAUSED = "paused"
    RESUMING = "resuming"
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return not MOVES[self]


MOVES: dict[State, frozenset[State]] = {
    State.CONNECTING: frozenset({State.STREAMING, State.PAUSED, State.COMPLETED, State.CANCELLED}),
    State.STREAMING: frozenset({State.PAUSED, State.COMPLETED, State.CANCELLED}),
    State.PAUSED: frozenset({State.CONNECTING, State.RESUMING, State.COMPLETED, State.CANCELLED}),
    State.RESUMING: frozenset({State.STREAMING, State.PAUSED, State.COMPLETED, State.CANCELLED}),
    State.COMPLETED: frozenset(),
    State.CANCELLED: frozenset(),
}
"""From ``PAUSED`` back to ``CONNECTING`` only where no generation has a name yet: then the call itself is sent again."""


class Change(NamedTuple):
    """One move of a session, as ``on_state`` is told it. ``reason`` says why, where there is something to say."""

    session: str
    old: State
    new: State
    reason: str | None


OnState = Callable[[Change], None]


class IllegalMove(Exception):
    """The table does not have this move; nothing was changed."""


def moved(old: State, new: State) -> State:
    """The new state; raises IllegalMove where the table does not have the move."""
    if new not in MOVES[old]:
        raise IllegalMove(f"{old} -> {new}")
    return new
