"""What a diagnosis means in words: one sentence from its evidence, and what to do next.

Invariants: a sentence says nothing that its evidence does not; a diagnosis of a newer version is shown with its evidence as
it is. Pure. Before this file: ``commands/diagnose``. After it: ``pipeline.diagnoses`` and ``sinks/sql`` make them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Evidence = Mapping[str, Any]


class Finding(NamedTuple):
    """A diagnosis as people read it."""

    name: str
    says: str
    next_step: str
    evidence: Evidence


_SEGMENTS = {
    "gateway": (
        "in our own gateway, before the provider was called",
        "Look at the edge's load and its limits.",
    ),
    "queue": ("waiting in a queue", "Add capacity or another route; see `tokentrail sql latency`."),
    "earlier_attempts": (
        "on attempts that failed first",
        "See the attempts: a breaker or an earlier fallback saves this.",
    ),
    "prefill": (
        "in the provider's prefill of the prompt",
        "Shorten the prompt, or keep its beginning the same for the cache.",
    ),
    "provider": (
        "at the provider, which says nothing of it",
        "Compare providers; a hedge helps where it is one slow call.",
    ),
    "emit": (
        "between the edge and the reader's socket",
        "Look at the reader's connection and at the proxies before it.",
    ),
}
_CAUSES = {
    "provider": ("the provider fell silent", "See `tokentrail sql stalls`, and the view stalls_by_provider."),
    "network": (
        "the connection to the provider broke",
        "Offer `continue`; look at the path to the provider.",
    ),
    "reader": ("no reader was left", "Look at the client's network; it can resume by its Last-Event-ID."),
    "edge_pause": (
        "the edge itself stopped reading, since the log did not keep up",
        "Look at Kafka's acknowledgements.",
    ),
}


def finding(name: str, evidence_json: str) -> Finding:
    """The words for a diagnosis."""
    try:
        evidence = json.loads(evidence_json)
    except ValueError:
        evidence = {"raw": evidence_json}
    words = _WORDS.get(name)
    if words is None or not isinstance(evidence, dict):
        return Finding(
            name, "This version has no words for it.", "Read its evidence.", {"evidence": evidence}
        )
    says, next_step = words(evidence)
    return Finding(name, says, next_step, evidence)


def evidence_lines(evidence: Evidence) -> list[tuple[str, str]]:
    """The evidence as names and values for people, in its own order; what was not measured is left out."""
    return [_in_words(name, value) for name, value in evidence.items() if value is not None]


def _in_words(name: str, value: Any) -> tuple[str, str]:
    """A field without its unit, and its value with it; what is nested is one line."""
    bare, _, unit = name.rpartition("_")
    of_time = unit in ("us", "ms") and bare != ""
    label = (bare if of_time else name).replace("_", " ")
    if isinstance(value, Mapping):
        inner = (_in_words(f"{key}_{unit}" if of_time else str(key), one) for key, one in value.items())
        return label, ", ".join(f"{word} {said}" for word, said in inner) or "none"
    if isinstance(value, list):
        return label, ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return label, "yes" if value else "no"
    if of_time and isinstance(value, int | float):
        return label, _ms(value * (1000 if unit == "ms" else 1))
    return label, f"{value:,}" if isinstance(value, int) else str(value)


def _slow(evidence: Evidence) -> tuple[str, str]:
    segment = str(evidence.get("segment"))
    where, step = _SEGMENTS.get(segment, (segment, "Read its evidence."))
    longest = evidence.get("segments_us", {}).get(segment)
    never = "" if "ttft_us" in evidence else " and none came"
    return (
        f"The first token was waited for {_ms(evidence.get('waited_us'))}{never}; most of it, {_ms(longest)}, {where}.",
        step,
    )


def _jittery(evidence: Evidence) -> tuple[str, str]:
    cause, step = _CAUSES.get(str(evidence.get("cause")), (str(evidence.get("cause")), "Read its evidence."))
    parts = []
    if evidence.get("stall_count"):
        count = evidence["stall_count"]
        stalls = "stall" if count == 1 else "stalls"
        parts.append(f"{count} {stalls} of {_ms(evidence.get('stall_us'))} together")
    if evidence.get("unclosed_us"):
        parts.append(f"a silence of {_ms(evidence['unclosed_us'])} that no content ended")
    if not parts and evidence.get("icl_p99_us") is not None:
        parts.append(
            f"gaps of {_ms(evidence.get('icl_p50_us'))} in the middle and {_ms(evidence['icl_p99_us'])} at the 99th percentile"
        )
    if evidence.get("pauses_us"):
        parts.append(f"pauses of our own of {_ms(evidence['pauses_us'])}")
    return f"The stream was uneven: {', '.join(parts)}. Mostly {cause}.", step


def _after_cancel(evidence: Evidence) -> tuple[str, str]:
    parts = []
    if evidence.get("tokens_after"):
        tokens = evidence["tokens_after"]
        parts.append(f"about {tokens} token{'' if tokens == 1 else 's'} came after it")
    if evidence.get("after_us") is not None:
        parts.append(f"the provider's socket was closed {_ms(evidence['after_us'])} later")
    if not evidence.get("socket_released"):
        parts.append("nobody is known to have closed the provider's socket")
    step = "A hard cancel does not wait for the read in progress." if evidence.get("mode") == "soft" else ""
    if not evidence.get("socket_released"):
        step = "The provider may have gone on: compare what it bills for this time."
    return (
        f"A cancel ({evidence.get('reason')}) did not end the cost at once: {'; '.join(parts)}.",
        step or "See its attempts.",
    )


def _changed(evidence: Evidence) -> tuple[str, str]:
    changed = evidence.get("changed") or []
    words = [changed] if isinstance(changed, str) else list(changed)
    differs = ", ".join(str(word) for word in words if word) or "nothing that was recorded"
    if "previous_generation_id" in evidence:
        return (
            f"It is another answer than that of {evidence['previous_generation_id']}; what differed: {differs}.",
            "Compare the two answers; fix seed and temperature where they should be the same.",
        )
    begun = " An earlier attempt had begun to answer." if evidence.get("instead_of") else ""
    who = f"Attempt {evidence.get('attempt')} ({evidence.get('answered')})"
    says = f"{who} answered in place of the first ({evidence.get('first')}); what differed: {differs}.{begun}"
    return says, "Compare the models on this prompt before you rely on the fallback."


def _broken(evidence: Evidence) -> tuple[str, str]:
    result, reason = evidence.get("result"), evidence.get("error_code") or evidence.get("finish_reason")
    if result == "truncated":
        return (
            f"The JSON was cut off ({reason}).",
            "Raise the output limit, or continue from the partial answer.",
        )
    return (
        f"The JSON is malformed, or not what its schema asks for ({reason}).",
        "Check prompt and schema; repair re-asks.",
    )


def _storm(evidence: Evidence) -> tuple[str, str]:
    step = "See `tokentrail sql storms`; a provider that is down needs a breaker, not retries."
    if "minute" in evidence:
        calls = f"{evidence.get('retries')} of {evidence.get('attempts')} calls to {evidence.get('provider')}"
        return f"In the minute of {evidence['minute']}, {calls} were repeats.", step
    errors = ", ".join(f"{count}× {code}" for code, count in (evidence.get("by_error") or {}).items())
    return f"It took {evidence.get('tries')} tries ({errors or 'no error told'}).", step


def _ms(us: Any) -> str:
    return f"{us / 1000:,.0f} ms" if isinstance(us, int | float) else "an unknown time"


_WORDS: dict[str, Callable[[Evidence], tuple[str, str]]] = {
    "slow_first_token": _slow,
    "jittery_stream": _jittery,
    "cost_after_cancel": _after_cancel,
    "answer_changed_after_retry": _changed,
    "json_broken_at_end": _broken,
    "retry_storm": _storm,
}
