"""Where a generation's time went: what providers say of their own time, and the parts that add up.

All of our own times come from the edge's monotonic clock. What a provider says is read where it offers it, from the
body (``of_body``) or the head (``of_headers``) of its answer:

=====================================  ================================  =========================================
who                                    where                             what
=====================================  ================================  =========================================
vLLM (``--enable-per-request-metrics``)  ``metrics`` of the usage chunk    ``queue_time_ms``; ``time_to_first_token_ms``,
                                                                         which it counts from its scheduling
llama.cpp                              ``timings`` of the last chunk     ``prompt_ms``
Groq                                   ``usage`` or ``x_groq.usage``     ``queue_time``, ``prompt_time``, in seconds
OpenAI                                 ``openai-processing-ms``          its whole processing
Anthropic                              ``anthropic-processing-ms``       its whole processing
=====================================  ================================  =========================================

``breakdown`` never believes a provider beyond what was seen: queue and prefill that are longer than the wait for its
first content are nobody's, so both are null. Pure. Before: ``attempt``. After: ``ending``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from schemas.events import LatencyBreakdown

CLAIM_US_MAX = 86_400_000_000
"""A day: no provider takes longer, and a larger number would not fit every reader's integer."""
_HEADERS = ("openai-processing-ms", "anthropic-processing-ms")
_US_PER_MS, _US_PER_S = 1_000, 1_000_000


class ProviderTiming(NamedTuple):
    """What a provider says of its own time, microseconds; None where it says nothing."""

    queue_us: int | None = None
    prefill_us: int | None = None
    whole_us: int | None = None

    def joined(self, other: "ProviderTiming | None") -> "ProviderTiming":
        """The same, with what another place of the answer says beside or instead."""
        if other is None:
            return self
        return ProviderTiming(
            *(new if new is not None else old for old, new in zip(self, other, strict=True))
        )


NOTHING_SAID = ProviderTiming()


class Marks(NamedTuple):
    """Instants of a generation: microseconds since the request was accepted; None for what did not happen.

    ``admission_us`` is a length: how much of the time before the first dispatch was spent waiting to be admitted.
    """

    total_us: int
    first_dispatched_us: int | None = None
    dispatched_us: int | None = None  # of the attempt whose answer it is
    first_content_us: int | None = None
    last_content_us: int | None = None
    emitted_us: int | None = None
    admission_us: int | None = None
    context_ms: int | None = None


def of_headers(headers: Mapping[str, str]) -> ProviderTiming:
    """What the head of an answer says."""
    for name in _HEADERS:
        if (text := headers.get(name)) is not None:
            try:
                return ProviderTiming(whole_us=_us(float(text), _US_PER_MS))
            except ValueError:
                return NOTHING_SAID
    return NOTHING_SAID


def of_body(said: Mapping[str, Any]) -> ProviderTiming | None:
    """What a JSON object of the stream says; None where it is not one that speaks of time."""
    timings, metrics = said.get("timings"), said.get("metrics")
    if isinstance(timings, dict):
        return ProviderTiming(prefill_us=_us(timings.get("prompt_ms"), _US_PER_MS))
    if isinstance(metrics, dict):
        return ProviderTiming(
            queue_us=_us(metrics.get("queue_time_ms"), _US_PER_MS),
            prefill_us=_us(metrics.get("time_to_first_token_ms"), _US_PER_MS),
        )
    usage = said.get("usage")
    if not isinstance(usage, dict) and isinstance(said.get("x_groq"), dict):
        usage = said["x_groq"].get("usage")
    if isinstance(usage, dict) and ("queue_time" in usage or "prompt_time" in usage):
        return ProviderTiming(
            queue_us=_us(usage.get("queue_time"), _US_PER_S),
            prefill_us=_us(usage.get("prompt_time"), _US_PER_S),
        )
    return None


def breakdown(marks: Marks, said: ProviderTiming = NOTHING_SAID) -> LatencyBreakdown:
    """The parts; those of ``LATENCY_PARTS`` and the unattributed rest add up to the total, and none is negative."""
    first_us, last_us = marks.first_content_us, marks.last_content_us
    before_us = marks.total_us if marks.first_dispatched_us is None else marks.first_dispatched_us
    admission_us = None if marks.admission_us is None else min(marks.admission_us, before_us)
    gateway_us = None if marks.first_dispatched_us is None else before_us - (admission_us or 0)
    queue_us, prefill_us = _within(said, marks)
    parts = {
        "gateway_us": gateway_us,
        "queue_us": _sum(admission_us, queue_us),
        "prefill_us": prefill_us,
        "decode_us": _between(first_us, last_us),
        "postprocess_us": _between(last_us, marks.total_us),
    }
    return LatencyBreakdown(
        **parts,
        context_us=None if marks.context_ms is None else marks.context_ms * _US_PER_MS,
        first_event_us=_between(first_us, marks.emitted_us),
        ttft_us=first_us,
        ttft_emitted_us=marks.emitted_us,
        unattributed_us=marks.total_us - sum(part or 0 for part in parts.values()),
        total_us=marks.total_us,
        provider_us=said.whole_us,
    )


def _within(said: ProviderTiming, marks: Marks) -> tuple[int | None, int | None]:
    """The provider's queue and prefill, where both fit between the dispatch and the first content."""
    if marks.dispatched_us is None:
        return None, None
    until_us = marks.total_us if marks.first_content_us is None else marks.first_content_us
    if (said.queue_us or 0) + (said.prefill_us or 0) > until_us - marks.dispatched_us:
        return None, None
    return said.queue_us, said.prefill_us


def _between(from_us: int | None, to_us: int | None) -> int | None:
    return None if from_us is None or to_us is None else max(0, to_us - from_us)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _us(value: Any, per: int) -> int | None:
    """A claimed length in microseconds; None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    us = value * per
    return round(us) if 0 <= us <= CLAIM_US_MAX else None  # neither holds of NaN
