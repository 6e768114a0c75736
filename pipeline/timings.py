"""The numbers of one generation's row: exact definitions, integer microseconds, None where nothing was measured.

=================================  ====================================================================================
ttft_us                            first content of the committed attempt since the request was accepted
attempt_ttft_us                    the same since that attempt's own dispatch; _text: its first text
generation_us                      last content − first content; never overwritten by what is known about stalls
active_generation_us               generation_us − stall_us
e2e_us                             last content since the request was accepted; end marks and usage do not count
icl_*                              gaps between content events (a chunk is not a token)
tpot_us                            generation_us / (output tokens − 1), without reasoning that was not streamed
tokens_per_second_active / _wall   output tokens per active / per whole second, in thousandths
tps_basis, tps_null_reason         which of the two is to be trusted; why not the active one
=================================  ====================================================================================

Everything that rests on gaps is None for fewer than two content events and for several choices (an upstream is always
streamed: the edge asks for it, and one that answers otherwise failed). ``docs/metrics.md`` says it for people. Pure. Before: ``sums``.
After: ``finalize``.
"""

from msgspec import structs

from pipeline import stalls
from pipeline.sums import Sums
from schemas.events import AttemptEnd, LogEvent, MessageEnd, Usage
from schemas.records import Timings

TPS_CONTENT_EVENTS_MIN = 5
TPS_MEAN_GAP_US_MIN = 1_000
"""Below it the chunks came in one burst: what was measured is a buffer."""
TPS_ACTIVE_US_MIN = 200_000


def several_choices(sums: Sums, end: MessageEnd | None) -> bool:
    """Whether more than one choice was asked for or came: their events interleave, so that gaps mean nothing."""
    return sums.multiple_choices or (end is not None and len(end.choices) > 1) or sums.choices_asked > 1


def timings(sums: Sums, terminal: LogEvent, usage: Usage | None, attempt_end: AttemptEnd | None) -> Timings:
    """All of them, of the committed attempt."""
    clock = sums.clock
    first_us, last_us = clock.first_us, clock.last_us
    end, error = terminal.message_end, terminal.error
    latency = end.latency if end is not None else error.latency if error is not None else None
    dispatched_us = attempt_end.dispatched_us if attempt_end is not None else None
    known = Timings(
        ttft_us=first_us,
        attempt_ttft_us=_since(dispatched_us, first_us),
        attempt_ttft_text_us=_since(dispatched_us, sums.first_text_us),
        ttft_emitted_us=latency.ttft_emitted_us if latency is not None else None,
        e2e_us=last_us,
    )
    if several_choices(sums, end):
        return structs.replace(known, tps_null_reason="multiple_choices")
    if first_us is None or last_us is None or clock.content_events < 2:  # noqa: PLR2004 - a gap has two ends
        return structs.replace(known, tps_null_reason="too_few")
    gaps_us = sorted(clock.icl_gaps_us)
    known = structs.replace(
        known,
        generation_us=last_us - first_us,
        active_generation_us=last_us - first_us - clock.stall_us,
        stall_us=clock.stall_us,
        stall_count=clock.stall_count,
        stall_runs=clock.stall_runs,
        longest_stall_us=clock.longest_stall_us,
        icl_p50_us=stalls.percentile(gaps_us, 50),
        icl_p95_us=stalls.percentile(gaps_us, 95),
        icl_p99_us=stalls.percentile(gaps_us, 99),
        icl_max_us=clock.icl_max_us,
    )
    return _with_rates(known, sums, usage, last_us - first_us)


def _with_rates(known: Timings, sums: Sums, usage: Usage | None, generation_us: int) -> Timings:
    """Time per token and tokens per second, where there are enough events to say so."""
    output = usage.output if usage is not None else None
    if usage is None or output is None:
        return structs.replace(known, tps_null_reason="unmeasured")
    hidden = usage.reasoning if usage.reasoning and not sums.reasoning_events else 0
    if output - hidden > 1:
        known = structs.replace(known, tpot_us=_divided(generation_us, output - hidden - 1))
    why_not = "hidden_reasoning" if hidden else _too_little(sums, generation_us)
    if why_not is not None:
        return structs.replace(known, tps_null_reason=why_not)
    wall = _divided(output * 1_000_000_000, generation_us)
    active_us = generation_us - sums.clock.stall_us
    if active_us < TPS_ACTIVE_US_MIN or active_us <= sums.clock.stall_us:
        return structs.replace(
            known, tokens_per_second_wall_milli=wall, tps_basis="wall", tps_null_reason="too_short"
        )
    return structs.replace(
        known,
        tokens_per_second_active_milli=_divided(output * 1_000_000_000, active_us),
        tokens_per_second_wall_milli=wall,
        tps_basis="active",
    )


def _too_little(sums: Sums, generation_us: int) -> str | None:
    """Why there can be no rate at all; None where there can."""
    events = sums.clock.content_events
    if events < TPS_CONTENT_EVENTS_MIN:
        return "too_few"
    if generation_us < TPS_MEAN_GAP_US_MIN * (events - 1):
        return "burst"
    return "too_short" if generation_us < TPS_ACTIVE_US_MIN else None


def _since(from_us: int | None, at_us: int | None) -> int | None:
    return None if from_us is None or at_us is None else at_us - from_us


def _divided(numerator: int, denominator: int) -> int:
    """The quotient, halves rounded up."""
    return (2 * numerator + denominator) // (2 * denominator)
