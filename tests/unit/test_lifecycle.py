"""The state table: what leads where, and that everything else changes nothing."""

import itertools

import pytest

from schemas.errors import IllegalMove
from schemas.events import Stage
from schemas.lifecycle import MOVES, STAGES, Signal, State, move


def run(*signals):
    state = State.ACCEPTED
    for signal in signals:
        state = move(state, signal)
    return state


def test_the_ordinary_way():
    """Accepted, acknowledged, dispatched, content, acknowledged, ended: every state in its order."""
    way = [
        Signal.START_ACKED,
        Signal.DISPATCHED,
        Signal.CONTENT_CAPTURED,
        Signal.CONTENT_ACKED,
        Signal.TERMINAL,
    ]
    assert list(itertools.accumulate(way, move, initial=State.ACCEPTED)) == list(State)


def test_retry_before_content():
    """A failed attempt without content goes back to the queue, and another may be called."""
    assert (
        run(Signal.START_ACKED, Signal.DISPATCHED, Signal.ATTEMPT_FAILED, Signal.DISPATCHED) is State.PREFILL
    )


@pytest.mark.parametrize("state", [State.DECODE, State.STREAMING])
def test_no_retry_after_content(state):
    """Once content was captured a failed attempt leads nowhere but to the terminal."""
    with pytest.raises(IllegalMove, match=state):
        move(state, Signal.ATTEMPT_FAILED)
    assert move(state, Signal.TERMINAL) is State.FINALIZED


@pytest.mark.parametrize("state", [state for state in State if state is not State.FINALIZED])
def test_every_state_can_end(state):
    """From everywhere a terminal leads to the end, so that no generation is without one."""
    assert move(state, Signal.TERMINAL) is State.FINALIZED


@pytest.mark.parametrize("signal", [signal for signal in Signal if signal is not Signal.CONTENT_ACKED])
def test_nothing_follows_the_end(signal):
    """After the end only acknowledgements still arrive; above all, there is no second terminal."""
    with pytest.raises(IllegalMove):
        move(State.FINALIZED, signal)


def test_no_provider_before_the_log():
    """Nobody is called and nothing is captured before message_start is acknowledged."""
    for signal in (Signal.DISPATCHED, Signal.CONTENT_CAPTURED):
        with pytest.raises(IllegalMove):
            move(State.ACCEPTED, signal)


def test_table_is_closed():
    """Every pair that the table lacks raises, names state and signal, and every listed pair leads where it says."""
    for state, signal in itertools.product(State, Signal):
        if (state, signal) in MOVES:
            assert move(state, signal) is MOVES[state, signal]
        else:
            with pytest.raises(IllegalMove, match=rf"{state} cannot take {signal}"):
                move(state, signal)


def test_every_state_has_a_stage():
    """A heartbeat can be written in any state, and never says unknown."""
    assert STAGES.keys() == set(State)
    assert Stage.UNKNOWN not in STAGES.values()
