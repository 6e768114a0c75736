"""The table of states is the whole truth about moves."""

import itertools

import pytest
from tokentrail_client.states import MOVES, IllegalMove, State, moved


@pytest.mark.parametrize(("old", "new"), list(itertools.product(State, State)))
def test_a_move_is_in_the_table_or_raises(old, new):
    """Every pair of states: a move of the table is made, any other raises."""
    if new in MOVES[old]:
        assert moved(old, new) is new
    else:
        with pytest.raises(IllegalMove, match=f"{old} -> {new}"):
            moved(old, new)


def test_six_states_of_which_two_are_the_end():
    """Six states; nothing follows COMPLETED and CANCELLED, and both can be reached from everywhere else."""
    assert len(State) == len(MOVES) == 6
    over = {state for state in State if state.is_over}
    assert over == {State.COMPLETED, State.CANCELLED}
    assert all(over <= MOVES[state] for state in State if state not in over)


def test_a_stream_is_only_entered_by_an_answer():
    """STREAMING is reached from CONNECTING and RESUMING alone, and what is paused asks before it streams."""
    assert {old for old, new in MOVES.items() if State.STREAMING in new} == {State.CONNECTING, State.RESUMING}
    assert {old for old, new in MOVES.items() if State.RESUMING in new} == {State.PAUSED}
