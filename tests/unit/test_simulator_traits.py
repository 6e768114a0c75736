"""The simulated provider's traits: seeded, true to their shares, and clear where they make no sense."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.embedded.simulator.traits import PROFILES, Spread, Traits, draw, profile_of
from schemas.errors import TokentrailError

SHARES = [name for name in Traits.__struct_fields__ if name.endswith("_share")]
MANY = 4000


def seen(options):
    """Name the fault that an answer shows."""
    codes = {"kv_oom": "kv_oom_share", "503": "overloaded_share"}
    if options.error_after is not None:
        return codes.get((options.error or {}).get("code"), "error_share")
    for name, shown in (
        ("silent_share", options.hang_after is not None),
        ("no_head_share", options.silent),
        ("cut_share", options.cut_after is not None),
        ("reset_share", options.reset_after is not None),
        ("rate_limited_share", options.status is not None),
    ):
        if shown:
            return name
    return None


@given(st.integers(), st.integers(0, 10**6))
def test_a_seed_repeats_itself(seed, index):
    """The same seed and index give the same answer, and another index another one."""
    traits = PROFILES["flaky"]
    assert draw(traits, seed, index) == draw(traits, seed, index)
    assert draw(traits, seed, index) != draw(traits, seed, index + 1)


def test_the_shares_of_faults_are_met():
    """Over many answers each fault comes as often as its share says, within five standard deviations."""
    traits = PROFILES["flaky"]
    counts = {}
    for index in range(MANY):
        fault = seen(draw(traits, 7, index))
        counts[fault] = counts.get(fault, 0) + 1
    faults = [name for name in SHARES if name not in {"stall_share", "slow_prefill_share", "tool_share"}]
    for name in faults:
        share = getattr(traits, name)
        margin = 5 * math.sqrt(MANY * share * (1 - share))
        assert abs(counts.get(name, 0) - MANY * share) <= margin, name


def test_a_spread_has_its_median_and_its_p99():
    """Half of the draws lie below the median and one in a hundred above the 99th percentile."""
    traits = Traits(ttft_ms=Spread(350, 2_500))
    drawn = [draw(traits, 3, index).ttft_ms for index in range(MANY)]
    assert abs(sum(value < 350 for value in drawn) / MANY - 0.5) < 0.04
    assert 0.004 < sum(value > 2_500 for value in drawn) / MANY < 0.018


def test_faults_cannot_be_more_than_all():
    """Shares that add up to more than one are refused when the traits are made."""
    with pytest.raises(ValueError, match="more than 1"):
        Traits(silent_share=0.6, cut_share=0.5)


def test_a_profile_is_a_name_or_a_file(tmp_path):
    """A profile of one's own is a TOML file of traits."""
    path = tmp_path / "mine.toml"
    path.write_text("stall_share = 0.5\n[ttft_ms]\nmedian = 10\np99 = 20\n")
    assert profile_of(str(path)) == Traits(stall_share=0.5, ttft_ms=Spread(10, 20))
    assert profile_of("down").overloaded_share == 1.0


@pytest.mark.parametrize(
    "text", ["stall_share = 2", "stall_shar = 0.1", "[ttft_ms]\nmedian = 0\np99 = 1", "= 1"]
)
def test_a_profile_that_makes_no_sense_is_refused(tmp_path, text):
    """A share above one, a misspelt trait, an impossible time and broken TOML are each one sentence with the file's name."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(TokentrailError, match=r"mine\.toml"):
        profile_of(str(path))


def test_an_unknown_profile_names_the_known_ones():
    """A name that is neither a profile nor a file is answered with what there is."""
    with pytest.raises(TokentrailError, match="flaky"):
        profile_of("flakey")


def test_every_profile_can_be_written_and_read():
    """A profile that is printed as JSON is the same traits again."""
    for traits in PROFILES.values():
        assert msgspec.convert(msgspec.to_builtins(traits), Traits) == traits
