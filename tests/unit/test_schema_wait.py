"""How long a partition waits for a schema, and what is remembered when it never comes."""

from pipeline.schema_wait import BACKOFF_MAX_US, GIVEN_UP_FOR_US, SchemaPatience

WAIT_US = 30_000_000


def test_it_is_looked_up_at_once_and_then_less_and_less_often():
    """The first look-up is due immediately; the pauses between them double up to a bound."""
    waiting = SchemaPatience(WAIT_US).wait("ab", [1], 0)
    now_us, pauses = 0, []
    for _ in range(8):
        assert waiting.is_due(now_us)
        waiting.again(now_us)
        assert not waiting.is_due(now_us)
        pauses.append(waiting.retry_us - now_us)
        now_us = waiting.retry_us
    assert pauses[:3] == [50_000, 100_000, 200_000]
    assert pauses[-1] == BACKOFF_MAX_US


def test_a_schema_that_never_comes_is_given_up_for_a_while():
    """Its records then go aside at once instead of stopping the partition each time; later it gets another chance."""
    patience = SchemaPatience(WAIT_US)
    waiting = patience.wait("ab", [1], 0)
    assert not patience.give_up(waiting, WAIT_US - 1)
    assert patience.give_up(waiting, WAIT_US)
    assert patience.wait("ab", [2], WAIT_US + 1) is None
    assert patience.wait("cd", [2], WAIT_US + 1) is not None
    assert patience.wait("ab", [3], WAIT_US + GIVEN_UP_FOR_US) is not None
