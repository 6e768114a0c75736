"""Providers' usage reports in disjoint buckets: null is unmeasured, 0 is measured zero.

Running totals are never summed: per field the largest value of the non-null reports stands. What OpenAI's dialects call
prompt (input) tokens contains the cached ones; Anthropic's does not. Where a gateway in between mixes the conventions,
``total_tokens`` tells which one holds. Nothing is clamped: what does not add up is flagged and left unmeasured, with the
reports kept as they came.

Flags: ``usage_malformed`` (a count that is none), ``usage_inconsistent`` (counts that contradict one another).

Before: ``digest``. After: ``money``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from schemas.events import Usage, UsageSource

MALFORMED = "usage_malformed"
INCONSISTENT = "usage_inconsistent"
COUNT_MAX = 2**53 - 1  # the largest count that every reader of JSON carries exactly; no attempt comes near
BYTES_PER_TOKEN = 4  # of the estimate: a rule of thumb for English text, always flagged

_Path = tuple[str, ...]
_Counts = dict[str, int | None]

# Ours → where each dialect reports it; the first place that holds a number counts.
_OPENAI_CHAT: dict[str, tuple[_Path, ...]] = {
    "prompt": (("prompt_tokens",),),
    "output": (("completion_tokens",),),
    "total": (("total_tokens",),),
    "cache_read": (
        ("prompt_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),
        ("cached_tokens",),
    ),
    "cache_write": (("prompt_tokens_details", "cache_write_tokens"),),
    "cache_write_1h": (),
    "reasoning": (("completion_tokens_details", "reasoning_tokens"),),
    "input_audio": (("prompt_tokens_details", "audio_tokens"),),
    "output_audio": (("completion_tokens_details", "audio_tokens"),),
    "server_tool_requests": (),
}
_OPENAI_RESPONSES: dict[str, tuple[_Path, ...]] = _OPENAI_CHAT | {
    "prompt": (("input_tokens",),),
    "output": (("output_tokens",),),
    "cache_read": (("input_tokens_details", "cached_tokens"),),
    "cache_write": (("input_tokens_details", "cache_write_tokens"),),
    "reasoning": (("output_tokens_details", "reasoning_tokens"),),
    "input_audio": (("input_tokens_details", "audio_tokens"),),
    "output_audio": (("output_tokens_details", "audio_tokens"),),
}
_ANTHROPIC: dict[str, tuple[_Path, ...]] = dict.fromkeys(_OPENAI_CHAT, ()) | {
    "prompt": (("input_tokens",),),
    "output": (("output_tokens",),),
    "cache_read": (("cache_read_input_tokens",),),
    "cache_write": (("cache_creation_input_tokens",),),
    "cache_write_1h": (("cache_creation", "ephemeral_1h_input_tokens"),),
    "server_tool_requests": (("server_tool_use", "web_search_requests"),),
}
FIELDS = {
    "openai.chat": _OPENAI_CHAT,
    "openai.responses": _OPENAI_RESPONSES,
    "anthropic.messages": _ANTHROPIC,
}
"""The dialects whose reports can be read."""


class _Malformed(Exception):
    """A count that is not a whole number of tokens."""


class _Inconsistent(Exception):
    """Counts of which no reading adds up."""


def normalise(
    dialect: str, reports: Sequence[dict[str, Any]], *, convention: str = "standard"
) -> Usage | None:
    """The usage of one attempt from the provider's reports in order of arrival; None where nothing was reported.

    Args:
        dialect: whose field names the reports use.
        reports: the provider's usage objects, one after the other.
        convention: ``additive`` where the provider is configured as one whose cached tokens come on top.
    """
    flags: list[str] = []
    raw = json.dumps(list(reports), ensure_ascii=False, separators=(",", ":"))
    try:
        read = [_read(FIELDS[dialect], report) for report in reports]
        largest = {name: max(_known(r[name] for r in read), default=None) for name in FIELDS[dialect]}
        if all(count is None for count in largest.values()):
            return None
        if dialect == "anthropic.messages":
            counts = largest
        else:
            counts, flags = _disjoint(largest, _last_with_total(read), additive=convention == "additive")
    except _Malformed:
        return Usage(source=UsageSource.REPORTED, flags=[MALFORMED], raw=raw)
    except _Inconsistent:
        return Usage(source=UsageSource.REPORTED, flags=[INCONSISTENT], raw=raw)
    flags += _drop_impossible_parts(counts)
    whole = counts["prompt"] is not None and counts["output"] is not None
    return Usage(
        input=counts["prompt"],
        cache_read=counts["cache_read"],
        cache_write=counts["cache_write"],
        cache_write_1h=counts["cache_write_1h"],
        output=counts["output"],
        reasoning=counts["reasoning"],
        input_audio=counts["input_audio"],
        output_audio=counts["output_audio"],
        server_tool_requests=counts["server_tool_requests"],
        source=UsageSource.REPORTED if whole else UsageSource.PARTIAL_REPORTED,
        flags=sorted(set(flags)),
        raw=raw,
    )


def as_partial(usage: Usage) -> Usage:
    """The same reports of a stream that broke off before the last one: what it says of the output is a lower bound."""
    if usage.source is UsageSource.REPORTED and not is_unusable(usage):
        return msgspec.structs.replace(usage, source=UsageSource.PARTIAL_REPORTED)
    return usage


def estimated(prompt_bytes: int, output_bytes: int) -> Usage:
    """What stands in for the report of an attempt that has none: bytes/4, rounded up; its source says so."""
    return Usage(
        input=tokens_of_bytes(prompt_bytes),
        output=tokens_of_bytes(output_bytes),
        source=UsageSource.ESTIMATED,
    )


def tokens_of_bytes(count: int) -> int:
    """The estimate of so many bytes of text, in tokens."""
    return -(-count // BYTES_PER_TOKEN)


def is_unusable(usage: Usage) -> bool:
    """Whether the provider reported something of which no bucket can be believed."""
    doubted = MALFORMED in usage.flags or INCONSISTENT in usage.flags
    return doubted and usage.input is None and usage.output is None and usage.cache_read is None


def _read(fields: Mapping[str, tuple[_Path, ...]], report: Any) -> _Counts:
    if not isinstance(report, dict):
        raise _Malformed
    return {
        name: next(_known(_count(report, path) for path in paths), None) for name, paths in fields.items()
    }


def _count(report: dict[str, Any], path: _Path) -> int | None:
    value: Any = report
    for key in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _Malformed
        value = value.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= COUNT_MAX:  # a bool is no count, nor is 1e3
        raise _Malformed
    return value


def _known(counts: Any) -> Any:
    return (count for count in counts if count is not None)


def _last_with_total(read: Sequence[_Counts]) -> _Counts | None:
    """The report whose arithmetic is tested: totals of different reports do not belong together."""
    whole = (r for r in reversed(read) if None not in (r["prompt"], r["output"], r["total"]))
    return next(whole, None)


def _disjoint(largest: _Counts, witness: _Counts | None, *, additive: bool) -> tuple[_Counts, list[str]]:
    """OpenAI's buckets made disjoint; ``prompt`` becomes the uncached input.

    Cached tokens and reasoning are parts of prompt and completion, or come on top: the total of a report tells.
    """
    cache_on_top, reasoning_on_top = additive, False
    if witness is not None:
        cache_on_top, reasoning_on_top = _convention(witness, additive=additive)
    counts, flags = dict(largest), []
    prompt, output, reasoning = counts["prompt"], counts["output"], counts["reasoning"]
    cached = (counts["cache_read"] or 0) + (counts["cache_write"] or 0)
    if prompt is not None and not cache_on_top:
        if cached > prompt:
            raise _Inconsistent
        counts["prompt"] = prompt - cached
    if output is not None and reasoning is not None:
        if reasoning_on_top:
            counts["output"] = output + reasoning
        elif reasoning > output and witness is None:
            raise _Inconsistent  # a part, or on top: nothing tells, and the money differs
        elif reasoning > output:
            counts["reasoning"] = None
            flags.append(INCONSISTENT)
    return counts, flags


def _convention(report: _Counts, *, additive: bool) -> tuple[bool, bool]:
    """(cached tokens on top, reasoning on top), as the report's total says; _Inconsistent where no reading fits."""
    known = {name: count or 0 for name, count in report.items()}
    cached, reasoning = known["cache_read"] + known["cache_write"], known["reasoning"]
    beyond = known["total"] - known["prompt"] - known["output"]
    if beyond == 0:
        return additive, False
    fitting = {
        (cache_on_top, reasoning_on_top)
        for cache_on_top in ((False, True) if cached else (False,))
        for reasoning_on_top in ((False, True) if reasoning else (False,))
        if beyond == cached * cache_on_top + reasoning * reasoning_on_top
        and (cache_on_top or additive or cached <= known["prompt"])
        and (reasoning_on_top or reasoning <= known["output"])
    }
    if len(fitting) != 1:
        raise _Inconsistent
    cache_on_top, reasoning_on_top = fitting.pop()
    return cache_on_top or additive, reasoning_on_top


def _drop_impossible_parts(counts: _Counts) -> list[str]:
    """An "of which" that exceeds its whole is forgotten and flagged: the whole is what is billed."""
    flags = []
    for part, whole in (
        ("reasoning", "output"),
        ("output_audio", "output"),
        ("cache_write_1h", "cache_write"),
    ):
        part_count, whole_count = counts[part], counts[whole]
        if part_count is not None and whole_count is not None and part_count > whole_count:
            counts[part] = None
            flags.append(INCONSISTENT)
    return flags
