"""What happens when in a simulated answer: options in, timed steps out, lazily.

Pure: delays are values, nobody waits here. The text depends on the seed alone, on every machine and Python version.
Before it in the flow: ``options``. After it: ``chunks`` (steps as bytes), ``server`` (plays them).
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from compose.embedded.simulator.options import SimulatorOptions, tokens_of

Kind = Literal[
    "role",
    "reasoning",
    "text",
    "tool_head",
    "tool",
    "finish",
    "usage",
    "error",
    "done",
    "cut",
    "reset",
    "hang",
]
TOKEN_KINDS: Final = frozenset({"reasoning", "text", "tool"})

TOOL_FRAGMENT_CHARACTERS: Final = 8

# Ordinary words, and what breaks careless readers: line ends, a JSON quote and backslash, U+2028, bytes that look like
# our own framing, characters of two to four bytes, one made of several code points.
_WORDS: Final = (
    " the| stream| of| tokens| is| a| log| that| nobody| loses| and| every| reader| finds| its| place| again|,|.| When"
    "| it| breaks|;| then| we| resume| from| here|:| offset| after| one| more| word|!| (maybe)| 3.14| naïve| Zürich"
    '| “so”| "quoted"| back\\slash| it\'s| <b>&amp;</b>|\n|\n\n|\t|\r\n| data: [DONE]|\u2028'
    "| 🚀| 👩\u200d👩\u200d👧| 🌍| 那|東京|한국어| привет| مرحبا| e\u0301|\ufeff"
)
VOCABULARY: Final = tuple(_WORDS.split("|"))


class Step(NamedTuple):
    """After ``delay_ms`` since the step before (drift-free), write ``value`` as a chunk of this kind, or end so."""

    delay_ms: float
    kind: Kind
    value: str = ""


def word(seed: int, index: int) -> str:
    """The index-th text delta (from 0) of the answer with this seed."""
    return VOCABULARY[zlib.crc32(f"{seed}/{index}".encode()) % len(VOCABULARY)]


def seed_of(options: SimulatorOptions, body: Mapping[str, Any], server_seed: int) -> int:
    """The script's seed, else the request's, else the server's mixed with the prompt: the same question, same answer."""
    for seed in (options.seed, body.get("seed")):
        if isinstance(seed, int):
            return seed
    return zlib.crc32(json.dumps(_prompt_of(body), sort_keys=True).encode(), server_seed & 0xFFFFFFFF)


def prompt_tokens_of(body: Mapping[str, Any]) -> int:
    """A prompt's size: four characters a token, three tokens a message, as rough as deterministic."""
    prompt = _prompt_of(body) or []
    messages = [{"content": prompt}] if isinstance(prompt, str) else prompt
    return max(1, sum(3 + len(str(m.get("content") or "")) // 4 for m in messages if isinstance(m, dict)))


def _prompt_of(body: Mapping[str, Any]) -> Any:
    """What is asked: ``input`` in the Responses dialect, ``messages`` in the others."""
    return body.get("messages", body.get("input"))


def steps(options: SimulatorOptions, seed: int, *, report_usage: bool) -> Iterator[Step]:
    """The whole answer. The first content comes ``ttft_ms`` after the start, the role chunk half-way to it."""
    half_ttft_ms = options.ttft_ms / 2
    yield Step(half_ttft_ms, "role")
    stalls_ms: dict[int, float] = {}
    for after, stall_ms in options.stalls:
        stalls_ms[after] = stalls_ms.get(after, 0) + stall_ms
    sent = 0
    for kind, value in _deltas(options, seed):
        end = _end_after(options, sent)
        if end is not None:
            yield end
            return
        if kind == "tool_head":
            yield Step(0, kind, value)
            continue
        delay_ms = (options.interval_ms if sent else half_ttft_ms) + stalls_ms.get(sent, 0)
        yield Step(delay_ms, kind, value)
        sent += 1
    end = _end_after(options, sent)
    if end is not None:
        yield end
        return
    yield Step(options.interval_ms + stalls_ms.get(sent, 0), "finish", finish_reason_of(options))
    if report_usage and options.usage:
        yield Step(0, "usage")
    yield Step(0, "done")


def finish_reason_of(options: SimulatorOptions) -> str:
    """The provider's word for the end."""
    return options.finish_reason or ("tool_calls" if options.tool_call else "stop")


def tool_fragments(options: SimulatorOptions) -> list[str]:
    """The arguments of the tool call in the pieces in which they are streamed."""
    arguments = options.tool_call.arguments if options.tool_call else ""
    return [
        arguments[i : i + TOOL_FRAGMENT_CHARACTERS]
        for i in range(0, len(arguments), TOOL_FRAGMENT_CHARACTERS)
    ]


def _deltas(options: SimulatorOptions, seed: int) -> Iterator[tuple[Kind, str]]:
    for index in range(options.reasoning_tokens):
        yield "reasoning", word(seed ^ 0x5EED, index)
    given = None if options.text is None else tokens_of(options.text)
    for index in range(options.tokens):
        yield "text", word(seed, index) if given is None else given[index]
    if options.tool_call:
        yield "tool_head", options.tool_call.name
        for fragment in tool_fragments(options):
            yield "tool", fragment


def _end_after(options: SimulatorOptions, sent: int) -> Step | None:
    """The untimely end that is due once ``sent`` tokens are out, if there is one."""
    if options.cut_after == sent:
        return Step(0, "cut")
    if options.reset_after == sent:
        return Step(0, "reset")
    if options.hang_after == sent:
        return Step(0, "hang")
    if options.error_after == sent:
        return Step(options.interval_ms, "error")
    return None
