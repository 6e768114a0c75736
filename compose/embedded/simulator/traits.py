"""How a provider behaves over many calls: distributions of its times, and the shares of its faults.

Pure and seeded: the n-th answer of a seed is the same on every machine. A share is a probability between 0 and 1; the
faults of one answer exclude one another, so that the shares add up. Before: ``options``. After: ``server``.
"""

import math
import random
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from compose.embedded.simulator.options import TOKENS_MAX, WAIT_MS_MAX, SimulatorOptions, ToolCall
from schemas.errors import TokentrailError

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=WAIT_MS_MAX)]
NORMAL_P99: Final = 2.3263478740408408  # the 99th percentile of the standard normal distribution
KV_OOM: Final = {"type": "server_error", "code": "kv_oom", "message": "out of KV cache blocks"}
OVERLOADED: Final = {"type": "overloaded_error", "code": "503", "message": "the engine is overloaded"}


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A log-normal distribution, as operators know it: by its median and its 99th percentile."""

    median: Positive
    p99: Positive

    def draw(self, source: random.Random) -> float:
        """One value; the same where both numbers are equal."""
        sigma = math.log(self.p99 / self.median) / NORMAL_P99
        drawn = self.median * math.exp(sigma * source.gauss(0, 1))
        return float(min(drawn, WAIT_MS_MAX))


class Traits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider. ``*_share`` are shares of its answers; times are milliseconds."""

    tokens: Spread = Spread(120, 800)
    ttft_ms: Spread = Spread(350, 2_500)
    interval_ms: Spread = Spread(20, 60)  # one value an answer: a slow replica is slow throughout
    slow_prefill_share: Share = 0.0
    slow_prefill_ms: Spread = Spread(8_000, 30_000)  # added to the time to first token
    stall_share: Share = 0.0
    stall_ms: Spread = Spread(4_000, 20_000)  # one silence, at a random place behind the first token
    silent_share: Share = 0.0  # a head, then nothing for ever
    no_head_share: Share = 0.0  # not even a head
    error_share: Share = 0.0  # an error object in band, at a random place
    overloaded_share: Share = 0.0  # the same, of an overloaded engine, before any token
    kv_oom_share: Share = 0.0  # the same, out of key-value cache, before any token
    cut_share: Share = 0.0  # the connection ends at a random place
    reset_share: Share = 0.0  # … by RST
    rate_limited_share: Share = 0.0  # 429
    retry_after_s: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 1  # of the 429
    tool_share: Share = 0.0  # not a fault: a tool call instead of text
    usage: bool = True

    def __post_init__(self) -> None:
        if self.faults > 1:
            raise ValueError(f"the shares of faults add up to {self.faults:g}, which is more than 1")

    @property
    def faults(self) -> float:
        """The share of answers that end badly."""
        return float(sum(getattr(self, name) for name in _FAULTS))


def draw(traits: Traits, seed: int, index: int) -> SimulatorOptions:
    """The index-th answer (from 0) of a provider with this seed."""
    source = random.Random(f"{seed}/{index}")  # noqa: S311 - repeatable on purpose
    tokens = min(TOKENS_MAX, max(1, round(traits.tokens.draw(source))))
    ttft_ms = traits.ttft_ms.draw(source)
    interval_ms = traits.interval_ms.draw(source)
    place = source.randrange(1, tokens + 1)
    stalls: tuple[tuple[int, float], ...] = ()
    if source.random() < traits.slow_prefill_share:
        ttft_ms = min(WAIT_MS_MAX, ttft_ms + traits.slow_prefill_ms.draw(source))
    if source.random() < traits.stall_share:
        stalls = ((place, traits.stall_ms.draw(source)),)
    tool = ToolCall() if source.random() < traits.tool_share else None
    return msgspec.structs.replace(
        SimulatorOptions(
            tokens=0 if tool else tokens,
            tool_call=tool,
            ttft_ms=ttft_ms,
            interval_ms=interval_ms,
            stalls=stalls,
            usage=traits.usage,
        ),
        **_fault(traits, source.random(), place),
    )


def _fault(traits: Traits, drawn: float, place: int) -> dict[str, Any]:
    """The fault that a number in [0, 1) falls on, if any."""
    for name, fields in _FAULTS.items():
        share = getattr(traits, name)
        if drawn < share:
            said = {key: place if value is _PLACE else value for key, value in fields.items()}
            return {**said, "retry_after_s": traits.retry_after_s} if "status" in said else said
        drawn -= share
    return {}


class _PLACE:
    """Stands for the random place of an answer."""


_FAULTS: Final[dict[str, dict[str, Any]]] = {
    "silent_share": {"hang_after": 0},
    "no_head_share": {"silent": True},
    "error_share": {"error_after": _PLACE},
    "overloaded_share": {"error_after": 0, "error": OVERLOADED},
    "kv_oom_share": {"error_after": 0, "error": KV_OOM},
    "cut_share": {"cut_after": _PLACE},
    "reset_share": {"reset_after": _PLACE},
    "rate_limited_share": {"status": 429},
}

PROFILES: Final[dict[str, Traits]] = {
    "healthy": Traits(),
    "jittery": Traits(stall_share=0.2, slow_prefill_share=0.05),
    "flaky": Traits(
        stall_share=0.05,
        silent_share=0.02,
        error_share=0.02,
        overloaded_share=0.02,
        kv_oom_share=0.01,
        cut_share=0.02,
        reset_share=0.01,
        rate_limited_share=0.03,
    ),
    "silent": Traits(silent_share=0.05),
    "down": Traits(overloaded_share=1.0),
}
"""Providers to begin with; ``tokentrail simulate --profile`` takes these names, or a file."""


def profile_of(name: str) -> Traits:
    """The traits of a profile's name, or of a TOML file; TokentrailError says what is wrong with either."""
    if name in PROFILES:
        return PROFILES[name]
    try:
        return msgspec.toml.decode(Path(name).read_bytes(), type=Traits)
    except OSError as error:
        known = ", ".join(PROFILES)
        raise TokentrailError(f"no profile {name!r}: give one of {known}, or a TOML file") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise TokentrailError(f"{name}: {error}") from error
