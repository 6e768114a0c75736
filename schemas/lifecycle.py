"""The states of a generation, as a table.

``accepted → queued → prefill → decode → streaming → finalized``. An illegal move raises in the edge; the fold flags it
(``late``) and changes nothing. Before: ``outcomes``. After: ``reading``.

===========  =================================================================================
accepted     ``message_start`` is on its way to the log
queued       acknowledged; no provider has been called
prefill      a provider was called, no content yet
decode       the first content was captured; the attempt is committed
streaming    the first content was acknowledged by the log
finalized    the terminal was given to the publisher; nothing can follow
===========  =================================================================================
"""

from enum import StrEnum

from schemas.errors import IllegalMove
from schemas.events import Stage


class State(StrEnum):
    """Where a generation stands."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    STREAMING = "streaming"
    FINALIZED = "finalized"


class Signal(StrEnum):
    """What moves a generation."""

    START_ACKED = "start_acked"
    DISPATCHED = "dispatched"
    CONTENT_CAPTURED = "content_captured"
    CONTENT_ACKED = "content_acked"
    ATTEMPT_FAILED = "attempt_failed"
    TERMINAL = "terminal"


MOVES: dict[tuple[State, Signal], State] = {
    (State.ACCEPTED, Signal.START_ACKED): State.QUEUED,
    (State.ACCEPTED, Signal.TERMINAL): State.FINALIZED,
    (State.QUEUED, Signal.DISPATCHED): State.PREFILL,
    (State.QUEUED, Signal.TERMINAL): State.FINALIZED,
    (State.PREFILL, Signal.ATTEMPT_FAILED): State.QUEUED,
    (State.PREFILL, Signal.CONTENT_CAPTURED): State.DECODE,
    (State.PREFILL, Signal.TERMINAL): State.FINALIZED,
    (State.DECODE, Signal.CONTENT_CAPTURED): State.DECODE,
    (State.DECODE, Signal.CONTENT_ACKED): State.STREAMING,
    (State.DECODE, Signal.TERMINAL): State.FINALIZED,
    (State.STREAMING, Signal.CONTENT_CAPTURED): State.STREAMING,
    (State.STREAMING, Signal.CONTENT_ACKED): State.STREAMING,
    (State.STREAMING, Signal.TERMINAL): State.FINALIZED,
    (State.FINALIZED, Signal.CONTENT_ACKED): State.FINALIZED,
}

STAGES: dict[State, Stage] = {
    State.ACCEPTED: Stage.QUEUED,
    State.QUEUED: Stage.QUEUED,
    State.PREFILL: Stage.PREFILL,
    State.DECODE: Stage.DECODE,
    State.STREAMING: Stage.DECODE,
    State.FINALIZED: Stage.POSTPROCESS,
}


def move(state: State, signal: Signal) -> State:
    """The next state; IllegalMove where the table has none."""
    try:
        return MOVES[state, signal]
    except KeyError:
        raise IllegalMove(f"a generation that is {state} cannot take {signal}") from None
