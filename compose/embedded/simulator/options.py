"""What a simulated answer is made of: one frozen value, chosen by model name and overridden by the request.

Pure. A request may carry ``"simulate": {field: value, …}`` with the fields of ``SimulatorOptions``; unknown fields are
refused, so that a misspelt fault cannot pass as a good answer. After it in the flow: ``plan``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

TOKENS_MAX: Final = 1_000_000  # a script is played lazily; the limit keeps an answer's end in sight (hours)
WAIT_MS_MAX: Final = 3_600_000  # longer than any time-out of the edge

Count = Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]
WaitMs = Annotated[float, msgspec.Meta(ge=0, le=WAIT_MS_MAX)]


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one tool call of an answer; ``arguments`` is JSON text, streamed in fragments of eight characters."""

    name: str = "get_weather"
    arguments: str = '{"city": "Zürich", "days": 3}'


class SimulatorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer. *Token* below means one content delta: reasoning first, then text, then tool fragments."""

    tokens: Count = 60  # text deltas
    text: str | None = (
        None  # what the text deltas say, instead of words of the seed; ``tokens`` follows from it
    )
    reasoning_tokens: Count = 0
    tool_call: ToolCall | None = None
    ttft_ms: WaitMs = 100  # request read → first token; the role chunk comes after half of it
    interval_ms: WaitMs = 20  # between tokens
    stalls: tuple[tuple[Count, WaitMs], ...] = ()  # (after so many tokens, so much longer than interval_ms)
    finish_reason: str | None = (
        None  # None: tool_calls with a tool call, length when max_tokens cut, else stop
    )
    usage: bool = True  # False: none is reported, even when asked for
    cached_tokens: Count = 0  # part of the prompt
    cut_after: Count | None = None  # after so many tokens the connection ends without the body's end mark
    reset_after: Count | None = None  # … is reset (RST)
    hang_after: Count | None = None  # … stays open and silent
    error_after: Count | None = None  # … an error object comes in band, then the body ends
    error: dict[str, Any] | None = None  # the error object of error_after and status; None: the usual one
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = (
        None  # answer with this status and an error body
    )
    retry_after_s: Annotated[int, msgspec.Meta(ge=0)] | None = None  # header of an answer with ``status``
    silent: bool = False  # not even a response head
    stamp: bool = (
        False  # x_sim.sent_ns = CLOCK_MONOTONIC at the write: lets a bench measure latency on one machine
    )
    seed: int | None = None  # of the text; None: the request's seed, else the prompt
    tag: str = ""  # comes back in the record of the request


_TOKEN = re.compile(r"\s*\S{1,5}|\s+")
MARKDOWN: Final = """\
## A log that nobody loses

Every event is **published before it is shown**, so what you read here *can* be read again:

1. the edge publishes to Kafka,
2. the log acknowledges,
3. only then does a client see it.

```python
async def show(event):
    offset = await log.append(event)  # first the log
    await socket.send(frame(event, offset))
```

| what breaks | what is lost |
|---|:-:|
| the connection | nothing |
| the edge, with `kill -9` | nothing |

> A lost connection is no cancel.

Cut the connection and resume: the text goes on where it stopped.
"""

PRESETS: Final[Mapping[str, SimulatorOptions]] = {
    "sim-fast": SimulatorOptions(tokens=40, ttft_ms=20, interval_ms=5),
    "sim-steady": SimulatorOptions(tokens=100, ttft_ms=100, interval_ms=20),
    "sim-stall": SimulatorOptions(tokens=60, stalls=((20, 2300),)),
    "sim-error": SimulatorOptions(error_after=10),
    "sim-cut": SimulatorOptions(cut_after=20),
    "sim-long": SimulatorOptions(tokens=2000),
    "sim-tool": SimulatorOptions(tokens=0, tool_call=ToolCall()),
    "sim-reason": SimulatorOptions(reasoning_tokens=20, tokens=40),
    "sim-markdown": SimulatorOptions(text=MARKDOWN),
}


class UnknownModel(Exception):
    """No preset has this name and the request brings no script."""


class BadScript(ValueError):
    """The ``simulate`` field cannot be used; the message says which part."""


def _nothing() -> SimulatorOptions | None:
    return None


def options_of(
    body: Mapping[str, Any],
    nth_call: int = 0,
    other: Callable[[], SimulatorOptions | None] = _nothing,
) -> SimulatorOptions:
    """The options of a request: preset of the model, then ``simulate``, then the request's own limits.

    ``simulate`` may be a list: the n-th call (from 0) of a script takes its n-th entry, later ones the last. ``other``
    gives the answer of a request without script whose model is no preset.
    """
    model = str(body.get("model", ""))
    script = body.get("simulate")
    if isinstance(script, list):
        script = script[min(nth_call, len(script) - 1)] if script else {}
    if model not in PRESETS and script is None:
        drawn = other()
        if drawn is None:
            raise UnknownModel(model)
        return _limited(drawn, body)
    base = PRESETS.get(model, SimulatorOptions())
    if script is not None and not isinstance(script, dict):
        raise BadScript("simulate is an object or a list of objects")
    try:
        options = msgspec.convert({**msgspec.to_builtins(base), **(script or {})}, SimulatorOptions)
    except msgspec.ValidationError as error:
        raise BadScript(f"simulate: {error}") from error
    if options.text is not None:
        options = msgspec.structs.replace(options, tokens=len(tokens_of(options.text)))
    return _limited(options, body)


def tokens_of(text: str) -> list[str]:
    """A given text in the pieces in which it is streamed: together they are the text."""
    return _TOKEN.findall(text)


def _limited(options: SimulatorOptions, body: Mapping[str, Any]) -> SimulatorOptions:
    """Apply max_tokens as a provider does: reasoning counts, and a cut answer ends in ``length``."""
    named = (body.get(f"max_{what}tokens") for what in ("completion_", "output_", ""))
    limit = next((limit for limit in named if limit is not None), None)
    if not isinstance(limit, int) or limit >= options.reasoning_tokens + options.tokens:
        return options
    reasoning = min(options.reasoning_tokens, limit)
    return msgspec.structs.replace(
        options,
        reasoning_tokens=reasoning,
        tokens=limit - reasoning,
        tool_call=None,
        finish_reason=options.finish_reason or "length",
    )
