"""Whether a failed attempt may be followed by another one, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.policy import (
    BACKOFF_MS_MAX,
    FORBIDDEN,
    RETRY_AFTER_S_MAX,
    Failure,
    Rules,
    after_failure,
    retry_after_s,
)

RULES = Rules(attempts_max=3, backoff_ms=100, deadline_us=10_000_000)
UNIX_S = 1_795_985_600.0  # Sun, 29 Nov 2026 20:53:20 GMT


def decide(code="upstream_error", rules=RULES, jitter=1.0, **fields):
    plain = {"committed": False, "attempts_made": 1, "now_us": 0}
    return after_failure(Failure(code=code, **(plain | fields)), rules, unix_s=UNIX_S, jitter=jitter)


@pytest.mark.parametrize("fields", [{"committed": True}, {"attempts_made": 3}, {"now_us": 9_999_999}])
def test_never_after_the_commit_the_last_attempt_or_the_deadline(fields):
    """Content that was delivered is not paid twice; a chain has an end."""
    assert decide(**fields) is None


@pytest.mark.parametrize("code", sorted(FORBIDDEN))
def test_never_where_another_try_changes_nothing(code):
    """A client's fault, a cancel, a time-out of the whole."""
    assert decide(code) is None


@pytest.mark.parametrize(
    ("attempts_made", "low_us", "high_us"), [(1, 50_000, 100_000), (2, 100_000, 200_000)]
)
def test_backoff_doubles_with_jitter(attempts_made, low_us, high_us):
    """Between half and all of the backoff, which doubles."""
    assert decide(attempts_made=attempts_made, jitter=0.0).wait_us == low_us
    assert decide(attempts_made=attempts_made, jitter=1.0).wait_us == high_us


def test_backoff_is_bounded():
    """Doubling ends."""
    rules = Rules(attempts_max=99, backoff_ms=1_000, deadline_us=1 << 60)
    assert decide(rules=rules, attempts_made=90).wait_us == BACKOFF_MS_MAX * 1000


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        (" 1.5 ", 1.5),
        ("soon", None),
        ("-5", None),
        (".", None),
        ("٣", None),
        ("Sun, 29 Nov 2026 20:53:23 GMT", 3.0),
        ("Sun, 29 Nov 2026 20:53:00 GMT", 0.0),
        ("9" * 400, RETRY_AFTER_S_MAX),
    ],
)
def test_retry_after(value, seconds):
    """A number or an HTTP date; nonsense is none; a date that has passed is now; a huge number is bounded."""
    assert retry_after_s(value, UNIX_S) == seconds


def test_retry_after_beyond_the_deadline():
    """The chain is spent when the provider asks for more than there is."""
    assert decide(retry_after="2").wait_us == 2_000_000
    assert decide(retry_after="10") is None
    assert decide(retry_after="9" * 400) is None


@given(st.text(max_size=40))
def test_no_header_is_a_bug(value):
    """Whatever a provider sends as Retry-After, there is a number or none."""
    found = retry_after_s(value, UNIX_S)
    assert found is None or 0 <= found <= RETRY_AFTER_S_MAX
